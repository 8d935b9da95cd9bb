"""Take one shard through a phase of a run, and say in counts and hashes what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from dptext_etl.checks.canaries.rows import CANARY
from dptext_etl.runner.shard.charging import MODULUS
from dptext_etl.runner.shard.records import StagedShard
from dptext_etl.runner.shard.shard import Shards

Phase = Literal["reserve", "release"]
"""What is done with the shards: "reserve" charges only; "release" charges, computes, stages and commits."""


@dataclass(frozen=True)
class Done:
    """What became of the rows that were computed together; it travels as JSON from an executor to the driver.

    Attributes:
        rows: Rows of the source among them.
        outcomes: Records by the answer of the ledger (`Outcome`).
        shard: What was staged, as `StagedShard.as_dict` writes it; None where rows were only reserved.
        draws: Records that were reserved with a draw, without canary rows.
        digest: Sum of the identities of the reserved records modulo 2^256, 64 hex digits, without canary rows.
    """

    rows: int
    outcomes: Mapping[str, int]
    shard: Mapping[str, Any] | None
    draws: int = 0
    digest: str = ""

    @classmethod
    def of(cls, shards: Shards, planted: pl.DataFrame, index: int, phase: Phase) -> Done:
        """Take a shard through a phase."""
        rows = int((~planted[CANARY]).sum())
        if phase == "reserve":
            reserved = shards.reserve(planted, index)
            return cls(rows, dict(reserved.answers), None, *reserved.within_cap().whole_table())
        staged, answers = shards.release(planted, index)
        return cls(rows, dict(answers), staged.as_dict())

    @property
    def staged(self) -> StagedShard:
        """The staged shard."""
        return StagedShard.from_dict(dict(self.shard or {}))


def outcomes(done: Iterable[Done]) -> Counter[str]:
    """Add up the answers of the ledger."""
    total: Counter[str] = Counter()
    for item in done:
        total.update(item.outcomes)
    return total


def whole_table(done: Iterable[Done]) -> tuple[int, str]:
    """Return the number of reserved draws of a table, and its keyed digest, whatever shards it was reserved in."""
    items = list(done)
    total = sum(int(item.digest, 16) for item in items if item.digest) % MODULUS
    return sum(item.draws for item in items), f"{total:064x}"
