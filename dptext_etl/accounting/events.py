"""Describe what a release does to a record, as plain data; the accountant says what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple


class MetricClaim(NamedTuple):
    """A guarantee that grows with the distance of two words (class METRIC, docs/spec/privacy.md#classes)."""

    epsilon: float | Fraction  # per unit of distance
    metric: str  # name of the distance
    diameter: float | Fraction  # largest distance of two words


@dataclass(frozen=True)
class PureDraws:
    """Adaptive draws at one pure epsilon."""

    epsilon: float | Fraction  # of one draw, 0 or more
    count: int
    tight: Fraction | None = None  # exact pure parameter of the sampler's integers for one draw; None if unknown
    range_bounded: bool = True  # True for a range-bounded exponential mechanism, False if a draw is only pure
    metric: MetricClaim | None = None


@dataclass(frozen=True)
class DividedDraws:
    """Draws that divide one budget, after a first release that may divide it.

    The text itself may divide the budget of range-bounded draws. What is public, or released, divides noise.
    """

    total: float  # epsilon of all draws together, above 0
    count: int
    largest: Fraction  # largest epsilon of one draw
    outputs: int | None  # size of the largest output set of range-bounded draws; None for noise
    first: float = 0.0  # epsilon of the first release; 0 without one
    each: Fraction = Fraction(0)  # epsilon of each of its `count` draws
    tightness: Fraction = Fraction(1)  # ratio of the loss that the noise realizes to its epsilon, at most 1
    metric: MetricClaim | None = None


@dataclass(frozen=True)
class GaussianNoise:
    """Gaussian noise."""

    mu2: Fraction  # (sensitivity / sigma) squared


@dataclass(frozen=True)
class ZeroConcentrated:
    """Any release that is rho-zCDP."""

    rho: Fraction


@dataclass(frozen=True)
class Approximate:
    """An event with the (epsilon, delta) pair that its mechanism declares."""

    event: Event
    epsilon: float | Fraction
    delta: float | Fraction


@dataclass(frozen=True)
class Composed:
    """Several events of one record, each of which may depend on the outputs of those before."""

    events: tuple[Event, ...] = ()


@dataclass(frozen=True)
class Unbounded:
    """An event without a finite claim (docs/spec/privacy.md#infinite-components)."""


Event = PureDraws | DividedDraws | GaussianNoise | ZeroConcentrated | Approximate | Composed | Unbounded
