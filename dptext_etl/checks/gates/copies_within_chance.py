"""Gate `copies_within_chance` requires that no more texts equal their originals than chance makes, over the whole run.

It judges only where the policy sets `copy_gate_false_alarm` and pays for it (docs/spec/privacy.md#copy-gate).
"""

from __future__ import annotations

from collections.abc import Mapping

from dptext_etl.checks.candidate import Stage
from dptext_etl.checks.reports import CATCHES, COPIES, CopyCount, CopyGate, CopyReport, copy_reports
from dptext_etl.errors import InputError
from dptext_etl.policy import Policy


class CopiesWithinChance(CopyGate):
    """Compares the number of copies of one text column with its bound."""

    catches = CATCHES[COPIES]
    stages = frozenset({Stage.STAGED})
    order = 110

    @classmethod
    def reports(cls, policy: Policy, copies: Mapping[str, CopyCount]) -> tuple[CopyReport, ...]:
        reports = copy_reports(policy, copies)
        unbounded = {item.name for item in policy.columns} - {item.column for item in reports}
        if unbounded:
            msg = f"copy_gate_false_alarm is set, but {len(unbounded)} columns have no copy count or no bound"
            hint = "count while staging (`reports.count_copies`), or leave copy_gate_false_alarm out"
            raise InputError(msg, hint)
        return reports
