"""Describe what a release does to a record, as plain data; the accountant says what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple


class MetricClaim(NamedTuple):
    """A guarantee that grows with the distance of two words (class METRIC, docs/spec/privacy.md#classes).

    Attributes:
        epsilon: Epsilon per unit of distance.
        metric: Name of the distance.
        diameter: Largest distance of two words.
    """

    epsilon: float | Fraction
    metric: str
    diameter: float | Fraction


@dataclass(frozen=True)
class PureDraws:
    """Adaptive draws at one pure epsilon.

    Attributes:
        epsilon: Pure epsilon of one draw, 0 or more.
        count: Number of draws, 0 or more.
        tight: Exact pure parameter of the integers that the sampler uses for one draw; None if it is unknown.
        range_bounded: True if a draw is a range-bounded exponential mechanism, False if it is only pure.
        metric: The claim per unit of distance; None without one.
    """

    epsilon: float | Fraction
    count: int
    tight: Fraction | None = None
    range_bounded: bool = True
    metric: MetricClaim | None = None


@dataclass(frozen=True)
class DividedDraws:
    """Draws that divide one budget, after a first release that may divide it.

    Attributes:
        total: Epsilon of all draws together, above 0.
        count: Number of draws, 0 or more.
        largest: Largest epsilon of one draw.
        outputs: Size of the largest output set of range-bounded draws, whose budget the text itself may divide. None
            for noise, whose budget is divided by what is public or released.
        first: Epsilon of the first release; 0 without one.
        each: Epsilon of each of its `count` draws.
        tightness: Ratio of the loss that the noise realizes to its epsilon, at most 1.
        metric: The claim per unit of distance; None without one.
    """

    total: float
    count: int
    largest: Fraction
    outputs: int | None
    first: float = 0.0
    each: Fraction = Fraction(0)
    tightness: Fraction = Fraction(1)
    metric: MetricClaim | None = None


@dataclass(frozen=True)
class GaussianNoise:
    """Gaussian noise.

    Attributes:
        mu2: (sensitivity / sigma) squared.
    """

    mu2: Fraction


@dataclass(frozen=True)
class ZeroConcentrated:
    """Any release that is rho-zCDP.

    Attributes:
        rho: The parameter of zCDP.
    """

    rho: Fraction


@dataclass(frozen=True)
class Approximate:
    """An event with the (epsilon, delta) pair that its mechanism declares.

    Attributes:
        event: What is released.
        epsilon: Declared epsilon.
        delta: Declared delta.
    """

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
