"""Check that a column's mechanism can be published as the policy asks, and that its cap can hold the spends."""

from __future__ import annotations

import math

from dptext_etl.guarantee import GuaranteeClass
from dptext_etl.policy.column_policy import ColumnPolicy
from dptext_etl.policy.terms import Cap

_APPROXIMATE = frozenset({GuaranteeClass.APPROX_LDP, GuaranteeClass.COND_APPROX})


def require_fit(column: ColumnPolicy, cap: Cap | None, *, publish: bool) -> None:
    """Refuse a mechanism that cannot be published, or whose spends no cap of this measure can hold."""
    mechanism = column.mechanism
    kind = mechanism.guarantee.guarantee_class
    if publish and not mechanism.publishable:
        msg = f"column {column.column!r}: a {mechanism.mode} mechanism is for benchmarks; set publish = false"
        raise ValueError(msg)
    if cap is None:
        return
    if cap.measure == "pure" and kind in _APPROXIMATE and math.isinf(mechanism.spend(1).eps_pure):
        msg = f"column {column.column!r}: {mechanism.name} has a delta, class {kind.value}: no cap on pure epsilon can "
        msg += 'hold it; write cap = { measure = "approx", epsilon = …, delta = … }, or measure = "zcdp" with rho, '
        msg += "which adds up better"
        raise ValueError(msg)
    if kind is GuaranteeClass.UMLDP:
        msg = f"column {column.column!r}: {mechanism.name} costs an infinite amount on every measure, class UMLDP: "
        msg += "no cap can hold it; put it into a dataset of its own, without a cap"
        raise ValueError(msg)
