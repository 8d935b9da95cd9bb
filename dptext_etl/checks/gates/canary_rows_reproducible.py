"""Gate `canary_rows_reproducible` requires that canary rows, released again on their own, give the same texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from dptext_etl.checks.candidate import Candidate, Stage
from dptext_etl.checks.gate import Gate, Verdict
from dptext_etl.errors import counted
from dptext_etl.policy import Policy


class CanaryRowsReproducible(Gate):
    """Compares the releases of canary rows with a second computation, in reverse order and without any other row.

    A release is a function of the key, the record and its text alone. So the second one must agree in every row. A
    model may give other scores in another batch. There, no more rows may get the release of another text than agree.
    """

    catches = (
        "Rows that are not computed on their own: releases shifted by one row or sorted back wrongly, one draw that "
        "two rows share, a generator that goes on from row to row, padding or a mask that leaks inside a batch."
    )
    stages = frozenset({Stage.STAGED})
    order = 52
    needs_markers = False

    def __init__(self, policy: Policy, recomputed: Mapping[str, Mapping[str, int]]) -> None:
        super().__init__(policy)
        self._recomputed = recomputed

    @classmethod
    def over(cls, candidate: Candidate) -> Sequence[Self]:
        return (cls(candidate.policy, candidate.recomputed),)

    def verdict(self) -> Verdict:
        """Pass if enough rows agree in every column.

        How many agree is not said: where batches change scores, it would depend on the texts of a batch.
        """
        rows = wrong = 0
        for item in self.policy.column_policies():
            counts = self._recomputed.get(item.column or "", {"rows": 0, "equal": 0, "moved": 0})
            rows += counts["rows"]
            wrong += counts["equal"] < (counts["rows"] if item.mechanism.reproducible else counts["moved"])
        message = f"{rows} canary texts were released again without other rows, "
        message += f"with other results in {counted(wrong, 'column')}" if wrong else "with the same results"
        if not rows:
            message = "not applicable: this run computed no canary row"
        return self.outcome({"rows": rows, "suspicious_columns": wrong}, message, passed=not wrong)
