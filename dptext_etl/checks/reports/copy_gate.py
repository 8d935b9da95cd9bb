"""Let a whole-run count of copies decide, where the policy pays for it (docs/spec/privacy.md#copy-gate)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from dptext_etl.checks.gate import Gate
from dptext_etl.checks.reports.copies import CopyCount, CopyReport
from dptext_etl.checks.verdict import Verdict
from dptext_etl.policy import Policy

if TYPE_CHECKING:
    from dptext_etl.checks.candidate import Candidate


class CopyGate(Gate):
    """Judges the counts of one text column; a release has one such gate per column."""

    needs_markers = False

    def __init__(self, policy: Policy, found: CopyReport) -> None:
        super().__init__(policy)
        self._report = found

    @classmethod
    def applies(cls, policy: Policy) -> bool:
        """Judge only where the policy sets `copy_gate_false_alarm`."""
        return policy.copy_gate_false_alarm is not None

    @classmethod
    def over(cls, candidate: Candidate) -> Sequence[Self]:
        """Make one gate per column that was counted."""
        return tuple(cls(candidate.policy, found) for found in cls.reports(candidate.policy, candidate.copies))

    @classmethod
    @abstractmethod
    def reports(cls, policy: Policy, copies: Mapping[str, CopyCount]) -> tuple[CopyReport, ...]:
        """Return the counts next to their bounds, one per column."""

    def verdict(self) -> Verdict:
        """Return the decision alone: the count itself is an exact statistic of raw text and stays inside."""
        return self._report.gate()
