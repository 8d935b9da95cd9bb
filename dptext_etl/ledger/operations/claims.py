"""Compare what is claimed of a release with what was pinned: sentences may change, numbers and kinds may not weaken.

A release pins its configuration. What is claimed of it is words and numbers that code derives: an accounting rule may
get another name, a sentence better words, a bound may become tighter. What was promised may never become less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dptext_etl.guarantee import ADDITIVE, GuaranteeClass

PINNED = ("mechanism", "configuration", "artifact_hashes", "unit")
"""Facts of a release that stay as they are."""
_STRENGTH = list(GuaranteeClass)


def weakened(pinned: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what a claim promises less than the pinned one, in words; empty if it promises as much or more."""
    found = [name for name in PINNED if pinned.get(name) != now.get(name)]
    if bool(pinned.get("expost")) != bool(now.get("expost")):
        found.append("what commits are charged")
    if _rank(now["class"]) > _rank(pinned["class"]):
        found.append(f"the class: {now['class']} for {pinned['class']}")
    for name in ("disclosures", "assumptions"):
        more = sorted(set(now[name]) - set(pinned[name]))
        if more:
            found.append(f"more {name}: {', '.join(more)}")
    before, after = (_amounts(facts["worst_case"]) for facts in (pinned, now))
    return found + [f"a larger {name}" for name, amount in after.items() if amount > before[name]]


def _rank(name: str) -> int:
    return _STRENGTH.index(GuaranteeClass(name))


def _amounts(worst: Mapping[str, Any]) -> dict[str, float]:
    """Return the amounts of a worst case, infinite where none is stated."""
    return {name: math.inf if worst.get(name, "inf") == "inf" else worst[name] for name in (*ADDITIVE, "diameter")}
