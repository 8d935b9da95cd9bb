"""Gate `row_count` requires that a synthetic table has exactly as many rows as its policy says."""

from __future__ import annotations

from typing import ClassVar

import polars as pl

from dptext_etl.checks.candidate import Stage
from dptext_etl.checks.gate import Gate, Verdict
from dptext_etl.errors import counted
from dptext_etl.policy import Policy


class RowCount(Gate):
    """Counts rows: their number is public, and never that of the private records."""

    catches = "Rows that were added to a synthetic table, left out, or drawn as often as there are private records."
    stages = frozenset(Stage)
    seen: ClassVar[tuple[str, ...]] = ("_rows",)
    order = 15
    synthetic = True

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._rows = 0

    @classmethod
    def applies(cls, policy: Policy) -> bool:
        return policy.synthetic is not None

    def feed(self, batch: pl.DataFrame) -> None:
        self._rows += batch.height

    def verdict(self) -> Verdict:
        wanted = 0 if self.policy.synthetic is None else self.policy.synthetic.rows
        message = f"{counted(self._rows, 'row')}, of {wanted} that the policy says"
        return self.outcome({"rows": self._rows, "wanted": wanted}, message, passed=self._rows == wanted)
