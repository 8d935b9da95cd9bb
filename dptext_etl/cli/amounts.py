"""Convert the ledger's millionths to plain amounts of epsilon, rho and delta, for people and for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from dptext_etl.cli import terminal
from dptext_etl.errors import counted
from dptext_etl.guarantee import ADDITIVE

_COUNTED = frozenset(("epsilon", "diameter", *ADDITIVE))


def plain(micros: float | str) -> float | str:
    """Return millionths as an amount; "inf" stays.

    >>> plain(4_000_000), plain(7), plain(1e-06), plain("inf")
    (4.0, 7e-06, 1e-12, 'inf')
    """
    if isinstance(micros, str) or micros == float("inf"):
        return "inf"
    return float(Decimal(repr(micros)) / 1_000_000)


def plain_all(amounts: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the numbers of nested mappings."""
    return {name: plain_all(item) if isinstance(item, Mapping) else plain(item) for name, item in amounts.items()}


def balance(remaining: Mapping[str, Any]) -> dict[str, Any]:
    """Convert `Ledger.remaining` as a mapping."""
    converted = {name: plain_all(remaining[name]) for name in ("limits", "used", "left")}
    return {**remaining, **converted, "asked": [plain_all(unit) for unit in remaining["asked"]]}


def releases(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Convert the rows of `Reports.show`; all counts but `canaries` then leave canary rows out."""
    converted = []
    for release in rows:
        shown = {name: plain(item) if name.startswith("max_") else item for name, item in release.items()}
        del shown["canaries_by_state"]
        planted: Mapping[str, int] = release["canaries_by_state"]
        shown |= {name: release[name] - count for name, count in planted.items()}
        converted.append({**shown, "records": release["records"] - release["canaries"]})
    return converted


def public_view(exported: Mapping[str, Any]) -> dict[str, Any]:
    """Convert `Reports.export`."""
    datasets = {
        name: {**dataset, "releases": [_claim(release) for release in dataset["releases"]]}
        for name, dataset in exported["datasets"].items()
    }
    return {**exported, "amounts": "epsilon, rho, delta", "datasets": datasets}


def _claim(release: Mapping[str, Any]) -> dict[str, Any]:
    changed = {
        place: {
            name: plain(item) if name in _COUNTED and item is not None else item
            for name, item in release[place].items()
        }
        for place in ("worst_case", "least")
        if release.get(place)
    }
    return {**release, **changed}


def show_balance(scope: Mapping[str, Any]) -> None:
    """Print one scope of `balance`: the cap, quantiles of used and left amounts, requested units."""
    unit = scope["unit"]
    limits = ", ".join(f"{name} {terminal.number(limit)}" for name, limit in scope["limits"].items())
    capped = f"cap of {limits} per {unit}" if limits else "no cap"
    terminal.heading(f"Budget of {scope['scope']}: {capped}")
    terminal.say(f"{scope['units']:,} {unit}s charged, {scope['exhausted']:,} at the cap")
    tables = [(f"{name} {word}", at) for word in ("used", "left") for name, at in scope[word].items() if at]
    columns = list(dict.fromkeys(place for _, at in tables for place in at))
    if tables:
        terminal.table(("", *columns), [(name, *(at[place] for place in columns)) for name, at in tables])
    for place, requested in enumerate(scope["asked"], start=1):
        text = "; ".join(f"{name} {terminal.number(amounts)}" for name, amounts in requested.items())
        terminal.say(f"{unit} {place} of those asked for: {text}")


def show_further(further: Mapping[str, Any]) -> None:
    """Print how many more releases fit (`runner.planning.further`)."""
    person = "person" if further["unit"] == "subject" else "record"
    for kind, one in {"units": person, "rows": "row without a person"}.items():
        found = further.get(kind)
        if found is None:
            continue
        fits = counted(found["p99"], "more such release fits", "more such releases fit")
        if further["from_ledger"]:
            several = one.replace(" ", "s ", 1) if " " in one else f"{one}s"
            terminal.say(f"{fits} for 99% of {found['count']:,} {several}, {found['least']:,} for the most charged one")
        else:
            of = f"{counted(further['records'], 'record')} of the longest text"
            terminal.say(f"{fits} for a new {one} with {of}: the ledger holds no record of this dataset")


def shown(amounts: Mapping[str, float] | None) -> str:
    return " and ".join(f"{name} {amount:g}" for name, amount in (amounts or {}).items())
