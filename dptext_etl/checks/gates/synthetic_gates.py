"""Gates of tables with stated rows and labels: `row_count` and `labels_in_list` require those of the policy."""

from __future__ import annotations

import polars as pl

from dptext_etl.checks.candidate import Candidate, Stage
from dptext_etl.checks.gate import Gate, Verdict
from dptext_etl.errors import counted
from dptext_etl.families.unlinked import OTHER
from dptext_etl.policy import Policy


class _SyntheticGate(Gate):
    """Judges synthetic tables only."""

    stages = frozenset(Stage)

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:
        return None if policy.synthetic is None else ()


class RowCount(_SyntheticGate):
    """Counts rows: their number is public, and never that of the private records."""

    catches = "Rows that were added to a synthetic table, left out, or drawn as often as there are private records."
    order = 15

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self.state = {"rows": 0}

    def rows(self, batch: pl.DataFrame) -> None:
        self.state["rows"] += batch.height

    def verdict(self) -> Verdict:
        rows, wanted = self.state["rows"], 0 if self.policy.synthetic is None else self.policy.synthetic.rows
        message = f"{counted(rows, 'row')}, of {wanted:,} that the policy says"
        return self.outcome({"rows": rows, "wanted": wanted}, message, passed=rows == wanted)


class LabelsInList(_SyntheticGate):
    """Compares every label with the public list, also those of an unlinked release."""

    catches = "Labels of private records that the public list does not name, and rows without a label."
    order = 72

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self.state = {"rows": 0, "outside": 0}
        self._names: tuple[str, ...] = ()
        self._listed: set[tuple[str | None, ...]] = set()
        if self.policy.synthetic is not None and self.policy.synthetic.labels is not None:
            self._names = self.policy.synthetic.labels.all_columns
            self._listed = {*self.policy.synthetic.labels.cells.values()}
        if self.policy.labels is not None:
            self._names = (self.policy.labels.column,)
            unpublished = (OTHER, None) if candidate.stage is Stage.STAGED else ()
            self._listed = {(value,) for value in (*self.policy.labels.values, *unpublished)}

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:
        return None if policy.synthetic is None and policy.labels is None else ()

    def rows(self, batch: pl.DataFrame) -> None:
        self.state["rows"] += batch.height
        if any(batch.schema.get(name) != pl.String for name in self._names):
            self.state["outside"] += batch.height
        elif self._names:
            for *cell, often in batch.group_by(self._names).len().iter_rows():
                self.state["outside"] += often * (tuple(cell) not in self._listed)

    def verdict(self) -> Verdict:
        rows, outside = self.state["rows"], self.state["outside"]
        message = f"all {rows:,} rows have a listed label, or need none"
        if outside:
            message = f"{outside:,} of {rows:,} rows have a label that the policy does not list"
        return self.outcome(self.state, message, passed=not outside)
