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
from dptext_etl.arrays import to_arrow
from dptext_etl.checks.canaries.rows import CANARY
from dptext_etl.checks.candidate import Candidate, Stage
from dptext_etl.checks.gate import Gate
from dptext_etl.checks.verdict import Verdict
from dptext_etl.errors import GateError
from dptext_etl.keys import canonical_ids
from dptext_etl.policy import Policy

if TYPE_CHECKING:
    from dptext_etl.ledger import Ledger
    from dptext_etl.ledger.terms import Committed, Posted, ReleaseRef

HELD_ROWS = 1 << 19
"""Rows of a column that are looked up together: each look-up goes through the whole index of the ledger."""


class _Cells(NamedTuple):
    """Cells of one column, shape (rows,): canonical ids, digests of the texts, and which rows are canary rows."""

    ids: pa.Array
    digests: pa.Array
    canary: npt.NDArray[np.bool_]


class _Place(NamedTuple):
    """A text column, and the chain of post-processing that made its cells; None for what a mechanism released."""

    column: str
    chain: str | None


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
    rewritten = True
    asks_ledger = True

    def __init__(self, policy: Policy, ledger: Ledger, refs: Mapping[str, ReleaseRef]) -> None:
        super().__init__(policy)
        self._columns = [item.name for item in policy.columns]
        self._ledger = ledger
        self._refs = refs
        self._chains = {item.column or "": item.chain for item in policy.column_policies() if item.chain is not None}
        self._held: dict[_Place, list[_Cells]] = {}
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
        self._take(batch, {_Place(name, None): name for name in self._columns})

    def feed_rewritten(self, batch: pl.DataFrame) -> None:
        """Take a batch of rows after post-processing: what it made of texts, and what is kept beside that."""
        places = {_Place(name, self._chains.get(name)): name for name in self._columns}
        places |= {_Place(item.name, None): item.intermediate for item in self.policy.columns if item.intermediate}
        self._take(batch, places)

    def _take(self, batch: pl.DataFrame, places: Mapping[_Place, str]) -> None:
        """Hold the cells of the columns that stand in a batch."""
        if self.policy.id not in batch.columns:
            self._cells += batch.height
            self._uncommitted += batch.height
            return
        for place, name in places.items():
            if place.column in self._refs and name in batch.columns:
                self._cells += batch.height
                known = batch.filter(pl.col(self.policy.id).is_not_null())
                self._uncommitted += batch.height - known.height
                if known.schema[name] == pl.String:
                    self._hold(place, name, known)
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

    def _hold(self, place: _Place, name: str, rows: pl.DataFrame) -> None:
        """Hold what is looked up of rows that have an id."""
        if not rows.height:
            return
        marked = CANARY in rows.columns
        canary = rows[CANARY].fill_null(value=False).to_numpy() if marked else np.zeros(rows.height, np.bool_)
        digests = pa.array(_kernel.digests(rows[name]))
        held = self._held.setdefault(place, [])
        held.append(_Cells(canonical_ids(rows[self.policy.id].to_arrow()), digests, canary))
        if sum(len(cells.ids) for cells in held) >= HELD_ROWS:
            self._look_up(place)

    def _look_up_all(self) -> None:
        for place, held in self._held.items():
            if held:
                self._look_up(place)

    def _look_up(self, place: _Place) -> None:
        """Compare what is held of a column with what the ledger vouches for."""
        held, self._held[place] = self._held[place], []
        ids, here = pa.concat_arrays([cells.ids for cells in held]), pa.concat_arrays([cells.digests for cells in held])
        canary = np.concatenate([cells.canary for cells in held])
        while len(ids):  # the ledger is asked for an id once: one that is repeated takes another turn
            first = pl.Series(ids, dtype=pl.String).is_first_distinct().to_numpy()
            chosen, rest = to_arrow(first), to_arrow(~first)
            committed = self._vouched(place, ids.filter(chosen), canary[first])
            equal = pl.Series(pc.equal(here.filter(chosen), committed.digests)).fill_null(value=False).to_numpy()
            self._uncommitted += int(np.sum(~committed.mask))
            self._different += int(np.sum(committed.mask & ~equal))
            ids, here, canary = ids.filter(rest), here.filter(rest), canary[~first]

    def _vouched(self, place: _Place, ids: pa.Array, canary: npt.NDArray[np.bool_]) -> Committed | Posted:
        """Look up digests of what was committed, or of what post-processing made of it."""
        ref = self._refs[place.column]
        if place.chain is None:
            return self._ledger.committed(ref, ids, canary=canary)
        return self._ledger.posted(ref, place.chain, ids, canary=canary)
