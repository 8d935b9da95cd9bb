"""Take one shard through a phase of a run, and return counts and hashes of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from dptext_etl.arrays import to_arrow
from dptext_etl.checks.canaries import CANARY
from dptext_etl.errors import InputError
from dptext_etl.runner.shard.charging import MODULUS, Reserved
from dptext_etl.runner.shard.records import StagedShard, WholeTable
from dptext_etl.runner.shard.shard import Shards
from dptext_etl.runner.source.selection import PAIRS, sum_of_pairs

Phase = Literal["reserve", "compare", "release"]
"""What is done with the shards: "reserve" charges only; "release" charges, computes, stages and commits.

Of a table that is summed, "reserve" also sums, "compare" looks at what is committed, and "release" commits.
"""


@dataclass(frozen=True)
class ShardResult:
    """Counts of the rows of a shard; it travels as JSON from an executor to the driver."""

    rows: int  # rows of the source among them
    outcomes: Mapping[str, int]  # records by the answer of the ledger (`Outcome`)
    # the staged shard, as `StagedShard.as_dict` writes it; None where rows were only reserved
    shard: Mapping[str, Any] | None
    # which records of an unlinked release are drawn or to be drawn among them, in numbers; None otherwise
    admitted: Mapping[str, Any] | None = None
    pairs: str | None = None  # sum of digests of its records with their persons, 32 hex digits; None without persons
    sums: str | None = None  # exact sums of a table that is summed (`families.aggregate.Partial`), in base64
    agrees: bool = True  # whether what is committed of a table that is summed was committed with the drawn table

    @classmethod
    def of(cls, shards: Shards, raw: pl.DataFrame, index: int, phase: Phase) -> ShardResult:
        rows, whole = int((~raw[CANARY]).sum()), shards.policy.unlinked is not None
        labels = shards.policy.labels
        if phase == "release":
            staged, reserved = shards.release(raw, index)
            admitted = reserved.whole_table(labels)._asdict() if whole else None
            return cls(rows, dict(reserved.answers), staged.as_dict(), admitted)
        reserved = shards.reserve(raw, index)
        if not whole:
            return cls(rows, dict(reserved.answers), None)
        pairs = pairs_of(reserved)
        written, kept = None if pairs is None else f"{pairs:032x}", reserved.without(shards.left_out)
        return cls(rows, dict(reserved.answers), None, kept.whole_table(labels)._asdict(), written)

    @property
    def staged(self) -> StagedShard:
        return StagedShard.from_dict(dict(self.shard or {}))


def pairs_of(reserved: Reserved) -> int | None:
    """Return the sum of digests of records with their persons, without canary rows; None without persons."""
    subjects, own = reserved.charged.subjects, to_arrow(~reserved.canary)
    return None if subjects is None else sum_of_pairs(reserved.charged.ids.filter(own), subjects.filter(own))


def outcomes(results: Iterable[ShardResult]) -> Counter[str]:
    total: Counter[str] = Counter()
    for item in results:
        total.update(item.outcomes)
    return total


def whole_table(results: Iterable[ShardResult]) -> WholeTable:
    """Add up the admitted records of a table, whatever shards they are in."""
    parts = [WholeTable(**item.admitted) for item in results if item.admitted is not None]
    digest = sum(int(part.digest, 16) for part in parts) % MODULUS
    labels = Counter[str]()
    for part in parts:
        labels.update(part.labels or {})
    counts = sum(part.records for part in parts), sum(part.draws for part in parts)
    return WholeTable(*counts, f"{digest:064x}", dict(labels))


def refuse_other_persons(pairs: int | None, results: Iterable[ShardResult]) -> None:
    """Refuse records that have other persons than when they were chosen: one may have more of them now."""
    if pairs is not None and sum(int(item.pairs or "0", 16) for item in results) % PAIRS != pairs:
        msg = "the source changed while it was read: records, or their persons, are not those that were chosen"
        raise InputError(msg, "run again when no one writes to it; this run drew and charged nothing")
