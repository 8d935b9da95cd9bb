"""What a run spent, as whole millionths that add up over shards and as JSON can hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from dptext_etl.accounting import log10_odds
from dptext_etl.column import INFINITE, spends
from dptext_etl.guarantee import MICRO
from dptext_etl.mechanism import Released
from dptext_etl.policy import Policy
from dptext_etl.runner.claims import with_gate
from dptext_etl.runner.shard.charging import Column

COMPONENTS = ("eps_pure", "eps_tight", "eps_approx", "delta", "rho")
CHARGED = "eps_charged"
"""Pure epsilon that the ledger holds: less than `eps_pure` where draws that were not made are given back."""
SHOWN = (*COMPONENTS, CHARGED)
"""What a summary shows."""
ENDLESS = -1
"""How an infinite amount is written in a staging record."""


def settles(policy: Policy) -> bool:
    """Whether the ledger gives back what was not used: on a pure cap alone (docs/spec/privacy.md#expost)."""
    return policy.cap is not None and policy.cap.measure == "pure"


def spent(
    columns: list[Column],
    released: Mapping[str, Released],
    canary: npt.NDArray[np.bool_],
    delta: int,
    *,
    settled: bool = False,
) -> tuple[dict[str, int], dict[str, int]]:
    """Count a computed shard without its canary rows.

    Args:
        columns: Its text columns.
        released: Texts and draws by column, shape (rows,).
        canary: Planted rows, shape (rows,).
        delta: What the copy gate costs every row, in millionths.
        settled: Whether draws that were not made are given back.

    Returns:
        Counts (rows, words, null texts), and the sum over records and the largest record of every shown component.
    """
    own = ~canary
    counts = {"rows": int(own.sum()), "words": 0, "null": 0}
    totals = {name: np.zeros(int(own.sum()), dtype=np.int64) for name in SHOWN}
    endless = dict.fromkeys(SHOWN, False)
    for column in columns:
        texts, positions, steps = released[column.name]
        counts["words"] += int(positions.to_numpy(zero_copy_only=False)[own].sum())
        counts["null"] += int(texts.is_null().to_numpy(zero_copy_only=False)[own].sum())
        mechanism = column.policy.mechanism
        costs = with_gate(spends(mechanism, positions), delta)
        costs[CHARGED] = costs["eps_pure"]
        if settled and mechanism.refundable and steps is not None:
            costs[CHARGED] = mechanism.spent(steps.to_numpy(zero_copy_only=False))
        for name in SHOWN:
            amounts = costs[name][own]
            endless[name] |= bool((amounts == INFINITE).any())
            totals[name] += np.where(amounts == INFINITE, 0, amounts)
    result = {}
    for name, amounts in totals.items():
        result[f"sum_{name}"] = ENDLESS if endless[name] else int(amounts.sum())
        result[f"max_{name}"] = ENDLESS if endless[name] else int(amounts.max(initial=0))
    return counts, result


def combined(shards: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add sums and take the largest maxima over shards."""
    total = {f"{kind}_{name}": 0 for kind in ("sum", "max") for name in SHOWN}
    for shard in shards:
        for name, amount in shard.items():
            before = total[name]
            if ENDLESS in {before, amount}:
                total[name] = ENDLESS
            else:
                total[name] = before + amount if name.startswith("sum_") else max(before, amount)
    return total


def given_back(spend: Mapping[str, Mapping[str, float | str]]) -> str | None:
    """Say what a run charged of what its records are guaranteed, where draws were not made; else None."""
    total = spend["sum_over_records"]
    charged, worst = total[CHARGED], total["eps_pure"]
    if charged == worst or isinstance(charged, str):
        return None
    return f"epsilon {charged:,.6g} of at most {worst:,.6g}: draws that were not made were given back"


def shown(spends_total: Mapping[str, int]) -> dict[str, dict[str, float | str]]:
    """Write amounts as people and JSON read them: units instead of millionths, "inf" where there is no bound."""
    facts: dict[str, dict[str, float | str]] = {"sum_over_records": {}, "largest_record": {}}
    for key, amount in spends_total.items():
        group, _, name = key.partition("_")
        place = facts["sum_over_records" if group == "sum" else "largest_record"]
        place[name] = "inf" if amount == ENDLESS else amount / MICRO
    largest = spends_total.get("max_eps_approx", 0)
    facts["largest_record"]["log10_odds"] = "inf" if largest == ENDLESS else round(log10_odds(largest), 3)
    return facts
