"""Write the ledger's millionths as plain amounts of epsilon, rho and delta, for people and for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from dptext_etl.guarantee import ADDITIVE

AMOUNTS = "epsilon, rho, delta"
"""Scale of the amounts that the command line prints."""
_CLAIMED = ("worst_case", "least")
_COUNTED = frozenset(("epsilon", "diameter", *ADDITIVE))


def plain(micros: float | str) -> float | str:
    """Return millionths as an amount; "inf" stays.

    >>> plain(4_000_000), plain(7), plain(1e-06), plain("inf")
    (4.0, 7e-06, 1e-12, 'inf')
    """
    if isinstance(micros, str) or micros == float("inf"):
        return "inf"
    return float(Decimal(repr(micros)) / 1_000_000)


def each(amounts: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the numbers of nested mappings."""
    return {name: each(item) if isinstance(item, Mapping) else plain(item) for name, item in amounts.items()}


def balance(found: Mapping[str, Any]) -> dict[str, Any]:
    """Convert `Ledger.remaining` as a mapping."""
    converted = {name: each(found[name]) for name in ("limits", "used", "left")}
    return {**found, **converted, "asked": [each(one) for one in found["asked"]]}


def releases(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Convert the rows of `Ledger.show`; `records` then leaves canary rows out."""
    return [
        {
            **{name: plain(item) if name.startswith("max_") else item for name, item in release.items()},
            "records": release["records"] - release["canaries"],
        }
        for release in found
    ]


def public_view(found: Mapping[str, Any]) -> dict[str, Any]:
    """Convert `Ledger.export`."""
    datasets = {
        name: {**held, "releases": [_claim(release) for release in held["releases"]]}
        for name, held in found["datasets"].items()
    }
    return {**found, "amounts": AMOUNTS, "datasets": datasets}


def _claim(release: Mapping[str, Any]) -> dict[str, Any]:
    changed = {
        place: {
            name: plain(item) if name in _COUNTED and item is not None else item
            for name, item in release[place].items()
        }
        for place in _CLAIMED
        if release.get(place)
    }
    return {**release, **changed}
