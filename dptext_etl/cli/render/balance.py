"""Show how much of a cap units have used, and how much is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dptext_etl.cli.render import terminal


def show(found: Mapping[str, Any]) -> None:
    """Print one scope of `Ledger.remaining`: the cap, quantiles of used and left amounts, requested units."""
    unit = found["unit"]
    limits = ", ".join(f"{name} {amount(limit)}" for name, limit in found["limits"].items())
    capped = f"cap of {limits} per {unit}" if limits else "no cap"
    terminal.heading(f"Budget of {found['scope']}: {capped}")
    terminal.say(f"{found['units']:,} {unit}s charged, {found['exhausted']:,} at the cap")
    tables = [(f"{name} {word}", at) for word in ("used", "left") for name, at in found[word].items() if at]
    columns = list(dict.fromkeys(place for _, at in tables for place in at))
    if tables:
        terminal.table(("", *columns), [(name, *(amount(at[place]) for place in columns)) for name, at in tables])
    for number, one in enumerate(found["asked"], start=1):
        said = "; ".join(
            f"{name} " + ", ".join(f"{word} {amount(micros)}" for word, micros in amounts.items())
            for name, amounts in one.items()
        )
        terminal.say(f"{unit} {number} of those asked for: {said}")


def amount(micros: float | str) -> str:
    """Write millionths as a plain amount; "inf" stays."""
    from dptext_etl.guarantee import MICRO

    return micros if isinstance(micros, str) else terminal.number(micros / MICRO)
