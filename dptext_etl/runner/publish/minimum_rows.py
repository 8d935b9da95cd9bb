"""Refuse a publication that holds only a small part of the rows: most of them are left out.

The counts follow from balances, spends and ids alone, and, where the policy consents, from which texts changed; never
from what a text says (docs/spec/privacy.md#over-cap).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from dptext_etl.errors import BudgetError
from dptext_etl.policy import Policy

_WHY = {
    "quarantined": "are over the cap",
    "without_subject": "have no person",
    "changed_left_out": "have changed texts",
}


def require_enough(policy: Policy, rows: Mapping[str, int], kept: int = 0) -> None:
    """Refuse a version that would hold fewer rows than `min_released` says."""
    found = {said: rows.get(name, 0) for name, said in _WHY.items()}
    released, left_out = rows["released"] + kept, sum(found.values())
    if not left_out or released >= Fraction(repr(policy.min_released)) * (released + left_out):
        return
    why = " or ".join(said for said, count in found.items() if count)
    msg = (
        f"{left_out} of {released + left_out} rows {why}; the policy publishes only if a share of "
        f"{policy.min_released:g} of them is there (min_released). Nothing was published, and nothing was replaced"
    )
    hint = "is the cap right? `dptext ledger remaining` shows balances; a smaller min_released publishes fewer rows"
    fields = {"left_out": left_out, "rows": released + left_out, "min_released": policy.min_released}
    raise BudgetError(msg, hint, fields)
