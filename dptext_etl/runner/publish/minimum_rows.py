"""Refuse a publication that holds only a small part of the rows: most of them were over the cap.

The count follows from balances and spends alone, never from texts (docs/spec/privacy.md#over-cap).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from dptext_etl.errors import BudgetError
from dptext_etl.policy import Policy


def require_enough(policy: Policy, rows: Mapping[str, int], kept: int = 0) -> None:
    """Refuse a version that would hold fewer rows than `min_released` says."""
    released, left_out = rows["released"] + kept, rows["quarantined"]
    if not left_out or released >= Fraction(repr(policy.min_released)) * (released + left_out):
        return
    msg = (
        f"{left_out} of {released + left_out} rows are over the cap; the policy publishes only if a share of "
        f"{policy.min_released:g} of them is there (min_released). Nothing was published, and nothing was replaced"
    )
    hint = (
        "is the cap right? `dptext ledger remaining` shows balances; a smaller min_released publishes, at no new cost"
    )
    fields = {"left_out": left_out, "rows": released + left_out, "min_released": policy.min_released}
    raise BudgetError(msg, hint, fields)
