"""Gate `labels_in_list` requires that a synthetic table has no labels but those that its policy lists."""

from __future__ import annotations

from typing import ClassVar

import polars as pl

from dptext_etl.checks.candidate import Stage
from dptext_etl.checks.gate import Gate, Verdict
from dptext_etl.policy import Policy


class LabelsInList(Gate):
    """Compares every label with the public list."""

    catches = "Labels of private records that the public list does not name, and rows without a label."
    stages = frozenset(Stage)
    seen: ClassVar[tuple[str, ...]] = ("_rows", "_outside")
    order = 72
    synthetic = True

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._rows = self._outside = 0

    @classmethod
    def applies(cls, policy: Policy) -> bool:
        return policy.synthetic is not None

    def feed(self, batch: pl.DataFrame) -> None:
        labels = None if self.policy.synthetic is None else self.policy.synthetic.labels
        self._rows += batch.height
        if labels is None:
            return
        cells = batch[labels.column] if labels.column in batch.columns else pl.Series(dtype=pl.Null)
        listed = int(cells.is_in(labels.values).sum()) if cells.dtype == pl.String else 0
        self._outside += batch.height - listed

    def verdict(self) -> Verdict:
        counts = {"rows": self._rows, "outside": self._outside}
        message = f"all {self._rows} rows have a listed label, or need none"
        if self._outside:
            message = f"{self._outside} of {self._rows} rows have a label that the policy does not list"
        return self.outcome(counts, message, passed=not self._outside)
