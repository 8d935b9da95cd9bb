"""Forecast the least epsilon over all records of one person, at one fixed delta."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np

from dptext_etl import extras
from dptext_etl.accounting import PureDraws, joint, least, range_bounded, spend
from dptext_etl.arrays import to_arrow
from dptext_etl.checks.reports import gate_delta
from dptext_etl.column import spends
from dptext_etl.guarantee import ADDITIVE, MICRO, Micro, Spend
from dptext_etl.mechanism import Mechanism
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner.balances import Forecast, is_infinite
from dptext_etl.runner.claims import guarantee_of, with_gate

DELTA = 1e-6
"""The delta of the statement, unless the caller gives another."""
INSTALL = f"`{extras.install('accounting')}` may give a smaller epsilon for all records of a person together"


def least_epsilon(forecast: Forecast, policy: Policy, columns: list[ColumnPolicy], delta: float) -> dict[str, Any]:
    """Return the least epsilon that holds at `delta` for every person, over all records of the run.

    The bound adds up, column by column, the largest total of any unit. So it holds for each unit, also where one has
    the most words in one column and another in the next.

    Specification: docs/spec/privacy.md#compose-records, docs/spec/privacy.md#compose-mixture.
    """
    gate = gate_delta(policy)
    totals = [_largest(forecast, column, at, gate) for at, column in enumerate(columns)]
    drawn = None if gate or not installed() else _draws(forecast, columns)
    bound = least(joint(totals, delta, draws=drawn))
    epsilon = "inf" if math.isinf(bound.epsilon) else bound.epsilon / MICRO
    return {"unit": policy.unit, "epsilon": epsilon, "delta": bound.delta / MICRO, "rule": bound.rule}


def installed() -> bool:
    """Return whether the extra `accounting` is installed, which composes privacy losses."""
    return find_spec("dp_accounting") is not None


def _largest(forecast: Forecast, column: ColumnPolicy, at: int, gate: int) -> Spend:
    """Return the largest total of any unit in one column, component by component."""
    charged = forecast.charged(at)
    amounts = with_gate(spends(column.mechanism, to_arrow(charged)), gate)
    totals: dict[str, Any] = {name: _finite(forecast.largest_total(amounts[name])) for name in ADDITIVE}
    return Spend(guarantee_of(column.mechanism, gate).guarantee_class, **totals)


def _draws(forecast: Forecast, columns: list[ColumnPolicy]) -> list[PureDraws] | None:
    """Return the most draws of any unit in each column, or None if a column holds anything but range-bounded draws."""
    found: list[PureDraws] = []
    for at, column in enumerate(columns):
        draws = composable(column.mechanism, forecast.largest_total(forecast.charged(at).astype(np.int64)))
        if draws is None:
            return None
        found += draws
    return found


def composable(mechanism: Mechanism, positions: int) -> list[PureDraws] | None:
    """Return the draws of a record if privacy losses compose them; None also where `spend` is not that of the event."""
    event = mechanism.event(positions)
    charged = mechanism.spend(positions) == spend(mechanism.guarantee, event, positions)
    return range_bounded(event) if charged else None


def _finite(amount: int) -> Micro:
    return math.inf if is_infinite(amount) else amount
