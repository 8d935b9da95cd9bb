"""Say how many rows a cap keeps, from what persons cost in total."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from dptext_etl.policy import Policy
from dptext_etl.runner.forecast import Forecast

ENOUGH = 0.95
"""The share of rows from which on no larger cap is shown."""
_PROMISE = "set it by what you promise to people, never by what the table needs"


def kept_share(rows: Iterable[int], most: int) -> float:
    """Return the share of rows that stay if at most `most` of each person do; `rows` counts those of each person."""
    counts = [*rows]
    return sum(min(count, most) for count in counts) / max(1, sum(counts))


def caps(policy: Policy, forecast: Forecast) -> dict[str, Any]:
    """Return how many rows caps around that of the policy would keep; nothing without a cap, or of one whole table.

    `caps` lists pairs of a limit and a number of rows: half the policy's limit, its own, and up to three larger ones;
    the last keeps about 95%, if any does.
    """
    if policy.cap is None or policy.one_table:
        return {}
    rows, kept = forecast.records().total(), forecast.kept()
    if not rows:
        return {}
    own = rows - forecast.over_cap()["records"]
    name = next(iter(policy.cap.model_dump(exclude_none=True).keys() & {"epsilon", "rho"}))
    larger = [(factor, count) for factor, count in kept.items() if factor > 1 and count > own]
    enough = next((at for at, (_, count) in enumerate(larger) if count >= ENOUGH * rows), None)
    shown = (
        [] if own >= ENOUGH * rows else larger[:2] if enough is None else [*larger[: min(2, enough)], larger[enough]]
    )
    limit = float(getattr(policy.cap, name))
    found = [(0.5, kept[0.5]), (1.0, own), *shown]
    return {"rows": rows, "limit": name, "caps": [[limit * factor, count] for factor, count in found]}


def lines(part: dict[str, Any]) -> list[str]:
    """Say which share of the rows caps keep, rounded down."""
    if not part:
        return []
    shares = ", ".join(f"{cap:g} → {math.floor(100 * count / part['rows'])}%" for cap, count in part["caps"])
    return [f"caps ({part['limit']}) and rows that they keep: {shares}; {_PROMISE}"]
