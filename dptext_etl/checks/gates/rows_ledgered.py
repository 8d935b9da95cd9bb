"""Gate `rows_ledgered` requires that every released cell has a committed spend, and the bytes that were committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
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

HELD_ROWS = 1 << 19
"""Rows of a column that are looked up together: each look-up goes through the whole index of the ledger."""


class _Cells(NamedTuple):
    """Cells of one column, shape (rows,): canonical ids, digests of the texts, and which rows are canary rows."""

    ids: pa.Array
    digests: pa.Array
    canary: npt.NDArray[np.bool_]


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
        self._held: dict[str, list[_Cells]] = {name: [] for name in refs}
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
        """Take a batch of rows; marked canary rows are looked up as such."""
        if self.policy.id not in batch.columns:
            self._cells += batch.height
            self._uncommitted += batch.height
            return
        for name in self._columns:
            if name in self._refs and name in batch.columns:
                self._cells += batch.height
                known = batch.filter(pl.col(self.policy.id).is_not_null())
                self._uncommitted += batch.height - known.height
                if known.schema[name] == pl.String:
                    self._hold(name, known)
                else:
                    self._different += known.height

    def state(self) -> dict[str, Any]:
        """Look up what is held, and return the counts."""
        self._look_up_all()
        return super().state()

    def verdict(self) -> Verdict:
        """Pass if every column is registered, and every cell is committed with these bytes."""
        self._look_up_all()
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

    def _hold(self, name: str, rows: pl.DataFrame) -> None:
        """Hold what is looked up of rows that have an id."""
        if not rows.height:
            return
        marked = CANARY in rows.columns
        canary = rows[CANARY].fill_null(value=False).to_numpy() if marked else np.zeros(rows.height, np.bool_)
        digests = pa.array(_kernel.digests(rows[name].to_arrow()))
        held = self._held[name]
        held.append(_Cells(canonical_ids(rows[self.policy.id].to_arrow()), digests, canary))
        if sum(len(cells.ids) for cells in held) >= HELD_ROWS:
            self._look_up(name)

    def _look_up_all(self) -> None:
        for name in self._held:
            if self._held[name]:
                self._look_up(name)

    def _look_up(self, name: str) -> None:
        """Compare what is held of a column with what the ledger vouches for."""
        held, self._held[name] = self._held[name], []
        ids, here = pa.concat_arrays([cells.ids for cells in held]), pa.concat_arrays([cells.digests for cells in held])
        canary = np.concatenate([cells.canary for cells in held])
        while len(ids):  # the ledger is asked for an id once: one that is repeated takes another turn
            first = pl.Series(ids, dtype=pl.String).is_first_distinct().to_numpy()
            chosen, rest = pa.array(first), pa.array(~first)
            committed = self._ledger.committed(self._refs[name], ids.filter(chosen), canary=canary[first])
            equal = pc.fill_null(pc.equal(here.filter(chosen), committed.digests), fill_value=False)
            self._uncommitted += int(np.sum(~committed.mask))
            self._different += int(np.sum(committed.mask & ~equal.to_numpy(zero_copy_only=False)))
            ids, here, canary = ids.filter(rest), here.filter(rest), canary[~first]
