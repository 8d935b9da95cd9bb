"""Gate `ngrams_within_chance` requires that no more texts share words in a row with their originals than chance makes.

The stored name says "runs" for shared n-grams. It judges only where the policy sets `copy_gate_false_alarm` and pays
for it (docs/spec/privacy.md#copy-gate).
"""

from __future__ import annotations

from collections.abc import Mapping

from dptext_etl.checks.candidate import Stage
from dptext_etl.checks.reports import CATCHES, NGRAMS, CopyCount, CopyGate, CopyReport, ngram_reports
from dptext_etl.policy import Policy


class NgramsWithinChance(CopyGate):
    """Compares the number of texts of one column that share an n-gram with its bound."""

    catches = CATCHES[NGRAMS]
    stages = frozenset({Stage.STAGED})
    order = 120

    @classmethod
    def reports(cls, policy: Policy, copies: Mapping[str, CopyCount]) -> tuple[CopyReport, ...]:
        return ngram_reports(policy, copies)
