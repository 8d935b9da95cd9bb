"""Require that a policy names the disclosures of a mechanism, and its class if that has no finite bound."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import PlainSerializer

from dptext_etl.errors import DisclosureError
from dptext_etl.guarantee import DEFAULT_ALLOWED, Disclosure, GuaranteeClass
from dptext_etl.mechanism import Mechanism

_IN_ORDER = PlainSerializer(sorted, return_type=list[str], when_used="json")
"""Sets of names vary in order by process: a policy is written in the same way by all."""
Allowed = Annotated[frozenset[Disclosure], _IN_ORDER]
"""Disclosures that a policy consents to."""
Accepted = Annotated[frozenset[Literal[GuaranteeClass.UMLDP]], _IN_ORDER]
"""Classes without a finite bound that a policy can accept; NONE is not one of them."""


def require_consent(mechanism: Mechanism, allow: frozenset[Disclosure], column: str | None) -> None:
    """Refuse a mechanism that discloses more than is allowed; the refusal prints the line to paste."""
    missing = mechanism.guarantee.disclosures - allow - DEFAULT_ALLOWED
    if missing:
        said = "; ".join(f"{item.value} ({item.meaning})" for item in sorted(missing))
        line = ", ".join(f'"{item.value}"' for item in sorted(missing | (allow - DEFAULT_ALLOWED)))
        where = f"column {column!r}: " if column else ""
        msg = f"{where}{mechanism.name} discloses what the policy does not allow: {said}"
        raise DisclosureError(msg, f"to consent, write: allow = [{line}]")


def require_acceptance(mechanism: Mechanism, accept: frozenset[GuaranteeClass], column: str | None) -> None:
    """Refuse a mechanism without a finite bound unless its class is accepted; the refusal prints the line to paste."""
    kind = mechanism.guarantee.guarantee_class
    if kind is GuaranteeClass.UMLDP and kind not in accept:
        where = f"column {column!r}: " if column else ""
        msg = f"{where}{mechanism.name} has no finite epsilon here, class {kind.value}: {kind.meaning}"
        raise DisclosureError(msg, f'to accept this, write: accept_unbounded = ["{kind.value}"]')
