"""Take one shard through a phase of a run, and say in counts and hashes what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from dptext_etl.checks.canaries.rows import CANARY
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
    """

    rows: int
    outcomes: Mapping[str, int]
    shard: Mapping[str, Any] | None

    @classmethod
    def of(cls, shards: Shards, planted: pl.DataFrame, index: int, phase: Phase) -> Done:
        """Take a shard through a phase."""
        rows = int((~planted[CANARY]).sum())
        if phase == "reserve":
            return cls(rows, dict(shards.reserve(planted, index).answers), None)
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
