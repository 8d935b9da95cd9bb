"""What gates look at: staged parts with their canary rows, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow.parquet as pq

from dptext_etl.checks.canaries.rows import CanaryPlan
from dptext_etl.checks.lineage import Lineage
from dptext_etl.policy import Policy

if TYPE_CHECKING:
    from dptext_etl.checks.reports.copies import CopyCount
    from dptext_etl.ledger import Ledger
    from dptext_etl.ledger.terms import ReleaseRef

BATCH_ROWS = 20_000
"""Rows that are held at a time."""


@dataclass(frozen=True)
class Candidate:
    """A run's staged output, before anybody decides about its publication.

    Attributes:
        policy: The run's policy.
        parts: Staged Parquet files, canary rows included and marked.
        canaries: The canary rows that were planted, one plan per shard.
        quarantined: Records that were left out over the cap.
        ledger: Where every row must have a committed spend.
        refs: Registered release of each text column.
        texts: Other artefacts to search for canaries: the manifest's draft, logs.
        lineage: What the run did to columns; None where it did what the policy declares.
        copies: Whole-run copy counts by text column, made inside the boundary; they gate only with `policy.beta`.
    """

    policy: Policy
    parts: tuple[Path, ...]
    canaries: tuple[CanaryPlan, ...]
    quarantined: int
    ledger: Ledger
    refs: Mapping[str, ReleaseRef]
    texts: tuple[Path, ...] = ()
    lineage: Lineage | None = None
    copies: Mapping[str, CopyCount] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows of all parts, canary rows included."""
        return sum(pq.read_metadata(part).num_rows for part in self.parts)


def schema(part: Path) -> pl.Schema:
    """Return the columns and types of a Parquet file."""
    return pl.Schema(pl.read_parquet_schema(part))


def batches(part: Path) -> Iterator[pl.DataFrame]:
    """Read a Parquet file in batches of bounded size."""
    with pq.ParquetFile(part) as table:
        for batch in table.iter_batches(batch_size=BATCH_ROWS):
            yield pl.DataFrame(batch)
