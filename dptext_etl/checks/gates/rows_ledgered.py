"""Gate `rows_ledgered` requires that every released cell has a committed spend, and the bytes that were committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl import _kernel
from dptext_etl.checks.canaries.rows import CANARY
from dptext_etl.checks.candidate import Candidate, Stage
from dptext_etl.checks.gate import Gate
from dptext_etl.checks.verdict import Verdict
from dptext_etl.errors import GateError
from dptext_etl.keys import canonical_ids
from dptext_etl.policy import Policy

if TYPE_CHECKING:
    from dptext_etl.ledger import Ledger
    from dptext_etl.ledger.terms import ReleaseRef


class RowsLedgered(Gate):
    """Looks up every row by (release, record id), and compares the digest of its bytes with the committed one.

    Args:
        policy: The policy of the release.
        ledger: The ledger, open.
        refs: Registered release of each text column.
    """

    catches = (
        "Text that nobody paid for: rows that skipped the ledger, a second draw of a record by a retry or another "
        "machine, bytes edited after the commit, texts moved to other rows, raw text in the released column's place."
    )
    stages = frozenset(Stage)
    seen = ("_cells", "_uncommitted", "_different")
    order = 80

    def __init__(self, policy: Policy, ledger: Ledger, refs: Mapping[str, ReleaseRef]) -> None:
        super().__init__(policy)
        self._columns = [item.name for item in policy.columns]
        self._ledger = ledger
        self._refs = refs
        self._cells = self._uncommitted = self._different = 0
        self._unregistered = sum(name not in refs for name in self._columns)

    @classmethod
    def over(cls, candidate: Candidate) -> Sequence[Self]:
        """Judge a release by its ledger.

        Raises:
            GateError: The ledger is not open.
        """
        if candidate.ledger is None:
            raise GateError("the ledger is not open, so no row can be looked up")
        return (cls(candidate.policy, candidate.ledger, candidate.refs),)

    def feed(self, batch: pl.DataFrame) -> None:
        """Look up a batch of rows; marked canary rows are looked up as such."""
        if self.policy.id not in batch.columns:
            self._cells += batch.height
            self._uncommitted += batch.height
            return
        for name in self._columns:
            if name in self._refs and name in batch.columns:
                cells, uncommitted, different = unledgered(batch, self.policy.id, name, self._ledger, self._refs[name])
                self._cells += cells
                self._uncommitted += uncommitted
                self._different += different

    def verdict(self) -> Verdict:
        """Pass if every column is registered, and every cell is committed with these bytes."""
        counts = {
            "cells": self._cells,
            "uncommitted": self._uncommitted,
            "different": self._different,
            "unregistered_columns": self._unregistered,
        }
        passed = not (self._uncommitted or self._different or self._unregistered)
        said = f"all {self._cells} cells are committed with these bytes"
        if not passed:
            said = f"of {self._cells} cells {self._uncommitted} have no commit, {self._different} hold other bytes"
        if self._unregistered:
            said += f"; {self._unregistered} columns have no registered release"
        return self.outcome(counts, said, passed=passed)


def unledgered(
    rows: pl.DataFrame, id_column: str, column: str, ledger: Ledger, ref: ReleaseRef
) -> tuple[int, int, int]:
    """Count the cells of a column that the ledger does not vouch for.

    Args:
        rows: Released rows; a Boolean column `CANARY` marks canary rows, where there is one.
        id_column: Column of the record ids.
        column: The text column.
        ledger: The ledger, open.
        ref: The column's registered release.

    Returns:
        Cells; cells without a commit, those of rows without an id included; committed cells that hold other bytes.
    """
    known = rows.filter(pl.col(id_column).is_not_null())
    texts, nameless = known[column], rows.height - known.height
    if texts.dtype != pl.String:
        return rows.height, nameless, known.height
    canary = known[CANARY].fill_null(value=False).to_numpy() if CANARY in known.columns else None
    committed = ledger.committed(ref, canonical_ids(known[id_column].to_arrow()), canary=canary)
    here = pa.array(_kernel.digests(texts.to_arrow()))
    equal = pc.fill_null(pc.equal(here, committed.digests), fill_value=False).to_numpy(zero_copy_only=False)
    return rows.height, nameless + int(np.sum(~committed.mask)), int(np.sum(committed.mask & ~equal))
