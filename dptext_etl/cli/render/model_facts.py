"""Collect facts about mechanisms with models: one draw, or the noise, and conversions of the amounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dptext_etl.guarantee import Spend
    from dptext_etl.mechanism import Mechanism

DELTAS = (1e-6, 1e-9)
RECORDS = (1, 10)
"""Numbers of records of one person that are released together."""


def of(mechanism: Mechanism, words: int) -> dict[str, Any]:
    """Return the mechanism's facts about one draw or about its noise, and `conversions` of the cost of a text."""
    from dptext_etl.mechanism import worst_spend

    found = {name: facts for name, facts in mechanism.described().items() if name != "table"}
    return {**found, "conversions": _converted(worst_spend(mechanism, words))} if found else {}


def _converted(spend: Spend) -> list[dict[str, Any]]:
    """Return the least known epsilon at a fixed delta, with its rule, for one record and for several of a person."""
    from dptext_etl.accounting import joint, least
    from dptext_etl.guarantee import MICRO

    found = []
    for records in RECORDS:
        for delta in DELTAS:
            bound = least(joint([spend] * records, delta))
            found.append({"records": records, "delta": delta, "epsilon": bound.epsilon / MICRO, "rule": bound.rule})
    return found
