"""Add up what a run spent, in whole millionths, over shards, and write the sums for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from dptext_etl.accounting import log10_odds
from dptext_etl.arrays import to_numpy
from dptext_etl.column import INFINITE, spends, step_costs
from dptext_etl.guarantee import MICRO, PURE, millionths
from dptext_etl.mechanism import Released
from dptext_etl.policy import Policy
from dptext_etl.runner.claims import with_gate
from dptext_etl.runner.shard.charging import Column

COMPONENTS = (PURE, "eps_tight", "eps_approx", "delta", "rho")
CHARGED = "eps_charged"
"""The pure epsilon that the ledger holds: less than the declared one where it gives back draws that were not made."""
SHOWN = (*COMPONENTS, CHARGED)
"""The amounts in a summary."""
ENDLESS = -1
"""An infinite amount in a staging record."""


def settles(policy: Policy) -> bool:
    """Return whether the ledger gives back what was not used: under a pure cap alone (docs/spec/privacy.md#expost)."""
    return policy.cap is not None and policy.cap.measure == "pure"


def refunds(policy: Policy) -> bool:
    """Return whether the ledger may give back draws of a policy, which the cap then admits to later records."""
    return settles(policy) and any(column.mechanism.refundable for column in policy.column_policies())


def spent(
    columns: list[Column],
    released: Mapping[str, Released],
    canary: npt.NDArray[np.bool_],
    delta: int,
    *,
    settled: bool = False,
) -> tuple[dict[str, int], dict[str, int | float]]:
    """Count a computed shard without its canary rows."""
    own = ~canary
    counts = {"rows": int(own.sum()), "words": 0, "null": 0}
    totals = {name: np.zeros(int(own.sum()), dtype=np.int64) for name in SHOWN}
    endless = dict.fromkeys(SHOWN, False)
    for column in columns:
        texts, positions, steps, _ = released[column.name]
        counts["words"] += int(to_numpy(positions)[own].sum())
        counts["null"] += int(to_numpy(texts.is_null())[own].sum())
        mechanism = column.policy.mechanism
        costs = with_gate(spends(mechanism, positions), delta)
        costs[CHARGED] = costs[PURE]
        if settled and mechanism.refundable and steps is not None:
            costs[CHARGED] = step_costs(mechanism, to_numpy(steps))
        for name in SHOWN:
            amounts = costs[name][own]
            endless[name] |= bool((amounts == INFINITE).any())
            totals[name] += np.where(amounts == INFINITE, 0, amounts)
    result: dict[str, int | float] = {}
    for name, amounts in totals.items():
        distinct, times = np.unique(amounts, return_counts=True)
        total = sum(amount * count for amount, count in zip(distinct.tolist(), times.tolist(), strict=True))
        most = int(amounts.max(initial=0))
        result[f"sum_{name}"] = ENDLESS if endless[name] else millionths(name, total)
        result[f"max_{name}"] = ENDLESS if endless[name] else millionths(name, most)
    return counts, result


def combined(shards: Iterable[Mapping[str, int | float]]) -> dict[str, int | float]:
    """Add the sums of several shards and take the largest of their maxima."""
    total: dict[str, int | float] = {f"{kind}_{name}": 0 for kind in ("sum", "max") for name in SHOWN}
    for shard in shards:
        for name, amount in shard.items():
            before = total[name]
            if ENDLESS in {before, amount}:
                total[name] = ENDLESS
            else:
                total[name] = before + amount if name.startswith("sum_") else max(before, amount)
    return total


def given_back(spend: Mapping[str, Mapping[str, float | str]]) -> str | None:
    """Say how much less a run charged than its records are guaranteed, or None if nothing was given back."""
    total = spend["sum_over_records"]
    charged, worst = total[CHARGED], total[PURE]
    if charged == worst or isinstance(charged, str):
        return None
    return f"epsilon {charged:,.6g} of at most {worst:,.6g}: draws that were not made were given back"


def shown(spends_total: Mapping[str, int | float]) -> dict[str, dict[str, float | str]]:
    """Convert amounts for people and JSON: units instead of millionths, "inf" where there is no bound."""
    facts: dict[str, dict[str, float | str]] = {"sum_over_records": {}, "largest_record": {}}
    for key, amount in spends_total.items():
        group, _, name = key.partition("_")
        place = facts["sum_over_records" if group == "sum" else "largest_record"]
        place[name] = "inf" if amount == ENDLESS else amount / MICRO
    largest = spends_total.get("max_eps_approx", 0)
    facts["largest_record"]["log10_odds"] = "inf" if largest == ENDLESS else round(log10_odds(largest), 3)
    return facts
