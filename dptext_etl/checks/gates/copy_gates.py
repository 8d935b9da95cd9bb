"""Gates of copies and shared n-grams: no more texts may repeat their originals than chance makes, over the whole run.

They judge only where the policy sets `copy_gate_false_alarm` and pays for it (docs/spec/privacy.md#copy-gate). The
stored names of counts say "runs" for shared n-grams.
"""

from __future__ import annotations

from dptext_etl.checks.candidate import Candidate, Stage
from dptext_etl.checks.gate import Gate, Verdict
from dptext_etl.checks.reports import CATCHES, COPIES, NGRAMS, copy_reports, ngram_reports
from dptext_etl.errors import InputError
from dptext_etl.policy import Policy


class _CopyGate(Gate):
    """Compares counts of the whole run with their bounds, one verdict per text column."""

    stages = frozenset({Stage.STAGED})

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self._copies = candidate.copies

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:
        return None if policy.copy_gate_false_alarm is None else super().columns(policy)


class CopiesWithinChance(_CopyGate):
    """Judges how many texts of a column equal their originals."""

    catches = CATCHES[COPIES]
    order = 110

    def verdict(self) -> tuple[Verdict, ...]:
        reports = copy_reports(self.policy, self._copies)
        unbounded = {item.name for item in self.policy.columns} - {item.column for item in reports}
        if unbounded:
            msg = f"copy_gate_false_alarm is set, but {len(unbounded)} columns have no copy count or no bound"
            hint = "count while staging (`reports.count_copies`), or leave copy_gate_false_alarm out"
            raise InputError(msg, hint)
        return tuple(report.gate() for report in reports)


class NgramsWithinChance(_CopyGate):
    """Judges how many texts of a column share an n-gram with their originals."""

    catches = CATCHES[NGRAMS]
    order = 120

    def verdict(self) -> tuple[Verdict, ...]:
        return tuple(report.gate() for report in ngram_reports(self.policy, self._copies))
