"""Add up what a run spent over shards, in whole millionths, and write amounts for people and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from dptext_etl.accounting import log10_odds
from dptext_etl.arrays import to_numpy
from dptext_etl.column import spends, step_costs
from dptext_etl.guarantee import MICRO, PURE, millionths
from dptext_etl.ledger.storage.hashed_ids import SATURATED, plus
from dptext_etl.mechanism import Released
from dptext_etl.policy import Policy
from dptext_etl.runner.publish.manifest import with_gate
from dptext_etl.runner.shard.charging import Column

_CHARGED = "eps_charged"
"""The pure epsilon that the ledger holds: less than the declared one where it gives back draws that were not made."""
AMOUNTS = (PURE, "eps_tight", "eps_approx", "delta", "rho", _CHARGED)
"""The amounts in a summary."""
_UNBOUNDED = -1
"""An infinite amount in a staging record."""
VACUOUS = 30
"""From this epsilon on, a bound says nothing in practice (docs/spec/privacy.md#odds)."""


def settles(policy: Policy) -> bool:
    """Return whether the ledger gives back what was not used: under a pure cap alone (docs/spec/privacy.md#expost)."""
    return policy.cap is not None and policy.cap.measure == "pure"


def refunds(policy: Policy) -> bool:
    """Return whether the ledger may give back draws of a policy, which the cap then admits to later records."""
    return settles(policy) and any(column.mechanism.refundable for column in policy.charged_columns())


def shard_spends(
    columns: list[Column],
    released: Mapping[str, Released],
    canary: npt.NDArray[np.bool_],
    delta: int,
    *,
    settled: bool = False,
) -> tuple[dict[str, int], dict[str, int | float]]:
    """Return counts of a computed shard, and sums and maxima of its spends, without its canary rows."""
    own, draws = ~canary, dict[str, Any]()
    counts = {"rows": int(own.sum()), "words": 0, "null": 0}
    for column in columns:
        texts, positions, steps, _ = released[column.name]
        draws[f"positions of {column.name}"] = to_numpy(positions)
        if settled and column.policy.mechanism.refundable and steps is not None:
            draws[f"steps of {column.name}"] = to_numpy(steps)
        counts["words"] += int(to_numpy(positions)[own].sum())
        counts["null"] += int(to_numpy(texts.is_null())[own].sum())
    groups = pl.DataFrame(draws).filter(pl.Series(own)).group_by(pl.all()).agg(pl.len().alias("rows"))
    times = groups["rows"].to_list()  # rows of equal draws cost the same
    totals = {name: np.zeros(groups.height, dtype=np.int64) for name in AMOUNTS}
    unbounded = dict.fromkeys(AMOUNTS, False)
    for column in columns:
        mechanism = column.policy.mechanism
        costs = with_gate(spends(mechanism, groups[f"positions of {column.name}"].to_arrow()), delta)
        costs[_CHARGED] = costs[PURE]
        if f"steps of {column.name}" in draws:
            costs[_CHARGED] = step_costs(mechanism, groups[f"steps of {column.name}"].to_numpy())
        for name in AMOUNTS:
            totals[name] = plus(totals[name], costs[name])
            unbounded[name] |= bool((totals[name] >= SATURATED).any())
    result: dict[str, int | float] = {}
    for name, amounts in totals.items():
        total = sum(amount * count for amount, count in zip(amounts.tolist(), times, strict=True))
        for kind, amount in (("sum", total), ("max", int(amounts.max(initial=0)))):
            result[f"{kind}_{name}"] = _UNBOUNDED if unbounded[name] else millionths(name, amount)
    return counts, result


def total_spends(shards: Iterable[Mapping[str, int | float]]) -> dict[str, int | float]:
    """Add the sums of several shards and take the largest of their maxima."""
    total: dict[str, int | float] = {f"{kind}_{name}": 0 for kind in ("sum", "max") for name in AMOUNTS}
    for shard in shards:
        for name, amount in shard.items():
            if _UNBOUNDED in {total[name], amount}:
                total[name] = _UNBOUNDED
            else:
                total[name] = total[name] + amount if name.startswith("sum_") else max(total[name], amount)
    return total


def equal_spends(amounts: Mapping[str, float | str], rows: int) -> dict[str, int | float]:
    """Return what `total_spends` returns for rows that each spend the same; amounts that are missing are unbounded."""
    each = {name: amounts.get(name, "inf") for name in AMOUNTS}
    result: dict[str, int | float] = {}
    for name, amount in each.items():
        result[f"sum_{name}"] = _UNBOUNDED if isinstance(amount, str) else amount * rows
        result[f"max_{name}"] = _UNBOUNDED if isinstance(amount, str) else amount
    return result


def spend_facts(total: Mapping[str, int | float]) -> dict[str, dict[str, float | str]]:
    """Convert amounts for people and JSON: units instead of millionths, "inf" where there is no bound."""
    facts: dict[str, dict[str, float | str]] = {"sum_over_records": {}, "largest_record": {}}
    for key, amount in total.items():
        kind, _, name = key.partition("_")
        facts["sum_over_records" if kind == "sum" else "largest_record"][name] = (
            "inf" if amount == _UNBOUNDED else amount / MICRO
        )
    largest = total.get("max_eps_approx", 0)
    facts["largest_record"]["log10_odds"] = "inf" if largest == _UNBOUNDED else round(log10_odds(largest), 3)
    return facts


def refund_notes(total: Mapping[str, int | float]) -> list[str]:
    """Say how much less a run charged than its records are guaranteed, if draws were given back."""
    charged, worst = total[f"sum_{_CHARGED}"], total[f"sum_{PURE}"]
    if charged in {worst, _UNBOUNDED}:
        return []
    amounts = f"epsilon {at_most(charged / MICRO)} of at most {at_most(worst / MICRO)}"
    return [f"{amounts}: draws that were not made were given back"]


def at_most(amount: float | str, digits: int = 6) -> str:
    """Write an amount to so many digits, rounded up: what is printed as a bound is one."""
    if isinstance(amount, str):
        return "unbounded"
    exact = Decimal(repr(float(amount)))
    if not exact:
        return "0"
    up = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), ROUND_CEILING).normalize()
    return f"{up:,f}" if up >= Decimal("0.001") else f"{up.normalize():g}".replace("E", "e")
