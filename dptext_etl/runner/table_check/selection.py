"""Say how many rows a cap keeps, from what persons cost in total, and which share of each period is left out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from dptext_etl.policy import Policy
from dptext_etl.runner.forecast import FACTORS
from dptext_etl.runner.preview import Expected
from dptext_etl.runner.source.examine import Examined
from dptext_etl.runner.source.kept_types import period_of

ENOUGH = 0.95
"""The share of rows from which on no larger cap is shown."""
MOST_PERIODS = 6
"""Periods that a screen shows."""
_PROMISE = "set it by what you promise to people, never by what the table needs"


def kept_share(rows: Iterable[int], most: int) -> float:
    """Return the share of rows that stay if at most `most` of each person do; `rows` counts those of each person."""
    counts = [*rows]
    return sum(min(count, most) for count in counts) / max(1, sum(counts))


def found(policy: Policy, source: Examined[Any], seen: Expected) -> dict[str, Any]:
    """Return how many rows caps around that of the policy would keep, and how many are left out of each period.

    `caps` lists pairs of a limit and a number of rows: half the policy's limit, its own, and up to three larger ones;
    the last keeps about 95%, if any does. `periods` lists a month or year, its rows, and those that are left out.
    """
    return {**_caps(policy, seen), **_periods(policy, source, seen)}


def _caps(policy: Policy, seen: Expected) -> dict[str, Any]:
    rows, kept = seen.records, dict(zip(FACTORS, seen.kept, strict=False))
    if policy.cap is None or policy.one_table or not rows or not kept:
        return {}
    own = rows - seen.over_cap
    name = next(iter(policy.cap.model_dump(exclude_none=True).keys() & {"epsilon", "rho"}))
    larger = [(factor, count) for factor, count in kept.items() if factor > 1 and count > own]
    enough = next((at for at, (_, count) in enumerate(larger) if count >= ENOUGH * rows), None)
    shown = (
        [] if own >= ENOUGH * rows else larger[:2] if enough is None else [*larger[: min(2, enough)], larger[enough]]
    )
    limit = float(getattr(policy.cap, name))
    pairs = [(0.5, kept[0.5]), (1.0, own), *shown]
    return {"rows": rows, "limit": name, "caps": [[limit * factor, count] for factor, count in pairs]}


def _periods(policy: Policy, source: Examined[Any], seen: Expected) -> dict[str, Any]:
    by, outside = period_of(policy, source.table.schema), source.outside or {}
    if by is None or not seen.periods or (source.outside is None and source.beyond + source.nameless):
        return {}
    counts = {name: seen.periods.get(name, (0, 0)) for name in sorted({*seen.periods, *outside})}
    each = [[name, rows + outside.get(name, 0), gone + outside.get(name, 0)] for name, (rows, gone) in counts.items()]
    return {"by": by[0], "periods": each} if any(gone for *_, gone in each) else {}


def lines(part: dict[str, Any]) -> list[str]:
    """Say which share of the rows caps keep, rounded down, and which share of each period is left out."""
    said = []
    if "caps" in part:
        shares = ", ".join(f"{cap:,g} → {math.floor(100 * count / part['rows'])}%" for cap, count in part["caps"])
        said.append(f"caps ({part['limit']}) and rows that they keep: {shares}; {_PROMISE}")
    if "periods" in part:
        each = part["periods"]
        beyond = len(each) - MOST_PERIODS
        if beyond > 0:
            sums = (sum(row[at] for row in each[: beyond + 1]) for at in (1, 2))
            each = [(f"up to {each[beyond][0]}", *sums), *each[beyond + 1 :]]
        shares = ", ".join(f"{name}: {gone / rows:.0%}" for name, rows, gone in each)
        said.append(f"left out by {part['by']}: {shares}")
    return said
