"""Compare the cap that a policy asks for with the pinned one, in words for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from dptext_etl.accounting import MEASURES
from dptext_etl.guarantee import steps
from dptext_etl.ledger.operations.scopes import Pinned, components, limits
from dptext_etl.ledger.terms import Scope
from dptext_etl.policy import Cap


@dataclass(frozen=True)
class CapChange:
    """What a policy would change about the cap of a scope.

    Attributes:
        scope: The scope in words.
        change: "lower" in some component, "higher" in some component, or "measure".
        pinned: The pinned cap by component, in units of epsilon, rho or delta.
        asked: The cap of the policy, likewise.
    """

    scope: str
    change: Literal["lower", "higher", "measure"]
    pinned: dict[str, float]
    asked: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as JSON can hold them."""
        return asdict(self)

    def __str__(self) -> str:
        before, after = (_said(amounts) for amounts in (self.pinned, self.asked))
        then = {
            "lower": "a run with it needs --accept-lower-cap; a lowered cap stays low",
            "higher": "a run with it is refused; `dptext ledger set-cap` raises a cap on purpose",
            "measure": "a run with it is refused: a scope keeps its measure; a new period may have another",
        }[self.change]
        return f"the cap of {self.scope} is pinned at {before}; this policy asks for {after}: {then}"


def cap_change(scope: Scope, pinned: Pinned | None, cap: Cap | None) -> CapChange | None:
    """Return what a policy would change, or None if it asks for the pinned cap, for the first cap, or for none."""
    if pinned is None or pinned.measure is None or cap is None:
        return None
    asked = limits(cap)
    if (pinned.measure, pinned.limits) == (cap.measure, asked):
        return None
    shown = [
        {name: limit / steps(name) for name, limit in zip(names, amounts, strict=True)}
        for names, amounts in ((components(pinned), pinned.limits), (MEASURES[cap.measure], asked))
    ]
    if pinned.measure != cap.measure:
        return CapChange(str(scope), "measure", shown[0], shown[1])
    higher = any(new > old for new, old in zip(asked, pinned.limits, strict=True))
    return CapChange(str(scope), "higher" if higher else "lower", shown[0], shown[1])


def _said(amounts: dict[str, float]) -> str:
    return " and ".join(f"{name} {amount:g}" for name, amount in amounts.items())
