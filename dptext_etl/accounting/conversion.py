"""Convert events (descriptions of releases) to costs: epsilon, (epsilon, delta), rho, and powers of ten of the odds.

A cap is a *filter*: no one may be charged more than a sum that was fixed in advance. This holds for releases that are
chosen after earlier outputs were seen. The ledger shows running sums of additive measures only. A converted epsilon
that is read at a time which depends on outputs is an odometer, and the conversions here do not cover it (Rogers et al.
2016; docs/spec/privacy.md#filters). Bounds round up.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from operator import add
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl import sampling
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import FINE, MICRO, PURE, Guarantee, Micro, Spend, exact, fine, log10_odds, micro, millionths

_ROUNDING = 1e-9  # relative; above the rounding of everything here
_BIN = 1e-3  # of the privacy loss
_BINS = 2_000_000  # of a composed distribution, at most
_FINE = 48  # halvings


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Convert rho-zCDP to epsilon at `delta`, by the best order (Canonne, Kamath and Steinke 2020, proposition 12).

    Epsilon is rounded up.

    >>> round(zcdp_epsilon(20 / 8, 1e-6), 2)
    13.37
    """
    require_delta(delta)
    if rho == 0:
        return 0.0

    def at(log_excess: float) -> float:
        excess = math.exp(log_excess)  # the order less 1; every order gives a valid statement
        order = 1 + excess
        return order * rho + (-math.log(delta) - log_excess + order * math.log(excess / order)) / excess

    low, high = -20.0, 20.0
    for _ in range(4 * _FINE):  # by thirds; all values are valid bounds: a second minimum only makes the result larger
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if at(left) <= at(right) else (left, high)
    return max(0.0, at((low + high) / 2)) * (1 + _ROUNDING)


def bounded_range_epsilon(draws: Iterable[PureDraws], delta: float) -> float:
    """Compose the privacy loss distributions of draws and return their epsilon at `delta`.

    The composed distribution dominates the distribution of every range-bounded mechanism (Zhu, Dong and Wang 2022). Its
    losses are rounded up to a grid, so that delta is never below the exact one (Doroshenko et al. 2022). Convolutions
    are products of Fourier transforms over all losses: nothing is cut off.
    """
    require_delta(delta)
    wanted = [(float(item.epsilon), item.count) for item in draws if item.count and item.epsilon]
    pure = sum(epsilon * count for epsilon, count in wanted)
    width = max(_BIN, 2 * pure / _BINS)
    bins = [math.ceil(epsilon / width) for epsilon, _ in wanted]  # the last bin is at epsilon or above it
    top = sum(most * count for most, (_, count) in zip(bins, wanted, strict=True))
    if not top:
        return 0.0
    size = 1 << (2 * top).bit_length()  # of all losses from -top to top, which therefore do not wrap around
    spectrum, error = np.ones(size // 2 + 1, np.complex128), 0.0
    for most, (epsilon, count) in zip(bins, wanted, strict=True):
        masses = _loss_masses(epsilon, width, most)
        spectrum *= np.fft.rfft(masses, size) ** count
        error += count * float(np.linalg.norm(masses))
    # the transforms round each mass; by Cauchy and Schwarz, a sum of them is off by less than this
    delta -= error * math.sqrt(size) * math.log2(size) * np.finfo(float).eps
    masses = np.maximum(np.fft.irfft(spectrum, size)[: 2 * top + 1], 0.0)
    decay = np.exp(-width * np.arange(1, top + 1))  # of e^(loss - larger loss), by their distance

    def above(place: int) -> tuple[float, float]:
        """Return the masses of both texts above a loss, the second times e^loss; delta there is the difference."""
        rest = masses[place + 1 :]
        return float(rest.sum()), float(rest @ decay[: len(rest)])

    place = bisect_left(range(2 * top), True, top, key=lambda at: np.subtract(*above(at)) <= delta)
    if place in (top, 2 * top):
        return 0.0 if place == top else pure * (1 + _ROUNDING)
    mass, other = above(place - 1)  # delta falls to its value between this loss and the next one
    epsilon_at_delta = width * (place - 1 - top) + math.log((mass - delta) / other)
    return min(pure, epsilon_at_delta) * (1 + _ROUNDING)


def _loss_masses(epsilon: float, width: float, bins: int) -> npt.NDArray[np.float64]:
    """Return the mass of each loss j * width, j = -bins..bins, whose delta is the profile at these losses.

    Between two of them delta is linear in e^loss, and so above the profile, which is convex in it.
    """
    losses = width * np.arange(-bins, bins + 1, dtype=np.float64)
    profile = np.expm1((np.minimum(losses, epsilon) - epsilon) / 2) ** 2 / -math.expm1(-epsilon)
    profile = np.maximum(np.where(losses < epsilon, profile, 0.0), -np.expm1(np.minimum(losses, 0.0)))
    slopes = np.concatenate([[1.0], -np.diff(profile) * np.exp(-losses[:-1]) / np.expm1(width), [0.0]])
    masses: npt.NDArray[np.float64] = np.maximum(-np.diff(slopes), 0.0) * np.exp(losses)
    return masses


def require_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise PolicyError(f"delta is {delta}; allowed: above 0 and below 1", "1e-6 is usual")


def allocated_epsilon(total: float, draws: int, outputs: int, bits: int) -> float:
    """Return the pure parameter that integer weights realize, over all divisions of a budget among draws.

    All draws are range-bounded, over output sets of at most `outputs` members. With f(e) = ln(m pmax(e)) and g(e) =
    -ln(m pmin(e)), two texts that divide E as they like are at most n f(E/n) + g(E) apart, which is at most E. Integer
    weights stop growing at e_s = 2 B ln 2, so there g becomes G (docs/spec/privacy.md#theorem-a-integers).

    >>> round(allocated_epsilon(6.0, 2, 4, 46), 6)
    4.476449
    """
    saturated, most = 2 * bits * math.log(2), math.log(1 + (outputs - 1) * 2**bits) - math.log(outputs)
    whole, even = math.floor(total / saturated), total / draws
    above = math.log(outputs) - math.log1p((outputs - 1) * math.exp(-even / 2))  # f(E/n)
    concentrated = draws * most
    if whole < draws:
        rest = total - whole * saturated
        below = rest / 2 + math.log(outputs - 1 + math.exp(-rest / 2)) - math.log(outputs)  # g
        concentrated = whole * most + min(most, below)
    return min(total, draws * above + concentrated)


def allocated_rho(total: float, largest: Fraction) -> Fraction:
    """Return rho of zCDP, over all divisions of a budget in which no draw gets more than `largest`."""
    return min(largest, exact(total)) * exact(total) / 8


_STEPS = 200  # halvings: far below one unit in the last place
_MARGIN = 1e-10  # margin of ln delta above the rounding error of `log_delta`, so that the result is on the safe side


def log_normal(x: float) -> float:
    """Return the logarithm of the standard normal distribution function, which rounds to 0 as a number far below.

    >>> round(log_normal(-1.0), 6), round(log_normal(-50.0), 6)
    (-1.841022, -1254.831361)
    """
    if x > -30:
        return math.log1p(-math.erfc(x / math.sqrt(2)) / 2) if x > 0 else math.log(math.erfc(-x / math.sqrt(2)) / 2)
    rest = -1 / x**2 + 3 / x**4 - 15 / x**6 + 105 / x**8  # asymptotic, off by less than 2e-12
    return -(x**2) / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log1p(rest)


def log_delta(epsilon: float, mu: float) -> float:
    """Return ln delta(epsilon) of Gaussian noise whose sensitivity is `mu` standard deviations.

    >>> round(math.exp(log_delta(1.0, 1.0)), 6)
    0.126937
    """
    near, far = log_normal(mu / 2 - epsilon / mu), epsilon + log_normal(-mu / 2 - epsilon / mu)
    return near + math.log1p(-math.exp(min(0.0, far - near))) if far < near else -math.inf


def largest_mu(epsilon: float, delta: float) -> float:
    """Return the largest sensitivity, in standard deviations, at which noise is (epsilon, delta)-DP.

    >>> round(largest_mu(500.0, 1e-5), 6)
    27.673312
    """
    limit = math.log(delta) - _MARGIN
    # Of two neighboring floats, the one at which the bound still holds; likewise below.
    return _border(lambda mu: log_delta(epsilon, mu) <= limit)[0]


def smallest_epsilon(mu: float, delta: float, exponent: float = 0.0) -> float:
    """Return the smallest epsilon of noise with this sensitivity (in standard deviations) at delta e^-exponent."""
    limit = math.log(delta) - exponent - _MARGIN
    if mu == 0 or log_delta(0.0, mu) <= limit:
        return 0.0
    return _border(lambda epsilon: log_delta(epsilon, mu) > limit)[1]


def _border(holds: Callable[[float], bool]) -> tuple[float, float]:
    """Return neighbors among the numbers above 0: the last for which something holds, and the first for which not."""
    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


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

    The text itself may divide the budget of range-bounded draws. Public or released data divide noise.
    """

    total: float  # epsilon of all draws together, above 0
    count: int
    largest: Fraction  # largest epsilon of one draw
    outputs: int | None  # size of the largest output set of range-bounded draws; None for noise
    first: float = 0.0  # epsilon of the first release; 0 without one
    first_draw: Fraction = Fraction(0)  # epsilon of each of its `count` draws
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
"""An event: the effect of a release on a record, as plain data, which the accountant converts to costs."""

MEASURES: dict[str, tuple[str, ...]] = {"pure": (PURE,), "zcdp": ("rho",), "approx": ("eps_approx", "delta")}
"""The measures that a cap may count, each with the components of a spend that it adds up."""

_MARGIN_OF_COMPUTED = Fraction(1, 10**12)  # above the rounding error of a computed exact parameter

Exact = Fraction | float  # an exact amount, or `math.inf`


def spend(guarantee: Guarantee, event: Event, positions: int) -> Spend:
    """Return the cost of an event, every amount rounded up once (docs/spec/privacy.md#spend)."""
    cost, claim = _cost(event), _metric(event)
    return Spend(
        guarantee_class=guarantee.guarantee_class,
        disclosures=guarantee.disclosures,
        eps_pure=micro(cost.pure),
        eps_tight=micro(min(cost.pure, cost.tight)),
        eps_approx=micro(cost.approx),
        delta=fine(cost.delta),
        rho=micro(cost.rho),
        mu2=micro(cost.mu2),
        eps_metric=micro(cost.metric if claim is None else claim.epsilon),
        diameter=math.inf if claim is None else micro(exact(claim.diameter)),
        metric_id=None if claim is None else claim.metric,
        n_worst=positions,
        assumptions=guarantee.assumptions,
    )


def computed(parameter: float | Fraction) -> Fraction:
    """Return a computed exact parameter of one draw, enlarged by its possible rounding error."""
    return exact(parameter) + _MARGIN_OF_COMPUTED


def range_bounded(event: Event) -> list[PureDraws] | None:
    """Return the draws of an event if all are range-bounded, finite, and of fixed epsilons; otherwise None.

    Only such draws compose by privacy loss distributions (docs/spec/privacy.md#br-pld).
    """
    match event:
        case PureDraws(epsilon=epsilon, range_bounded=True) if math.isfinite(epsilon):
            return [event]
        case Approximate(event=inner):
            return range_bounded(inner)
        case Composed(events=events):
            parts = [range_bounded(inner) for inner in events]
            return None if None in parts else [draws for part in parts for draws in part or ()]
        case _:
            return None


class _Cost(NamedTuple):
    """Exact amounts."""

    pure: Exact
    tight: Exact
    approx: Exact
    delta: Exact
    rho: Exact
    mu2: Exact
    metric: Exact


_NOTHING = _Cost(*[Fraction(0)] * 7)
_UNBOUNDED = _Cost(math.inf, math.inf, math.inf, Fraction(0), math.inf, math.inf, math.inf)


def _cost(event: Event) -> _Cost:
    match event:
        case PureDraws(count=0) | DividedDraws(count=0):
            cost = _NOTHING
        case PureDraws(epsilon=epsilon, count=count) if math.isfinite(epsilon):
            pure, tight, rho = (count * amount for amount in _of_one_draw(epsilon, event.tight, event.range_bounded))
            cost = _Cost(pure, tight, pure, Fraction(0), rho, math.inf, math.inf)
        case DividedDraws():
            cost = _of_division(event)
        case GaussianNoise(mu2=mu2):
            cost = _UNBOUNDED._replace(rho=mu2 / 2, mu2=mu2)
        case ZeroConcentrated(rho=rho):
            cost = _UNBOUNDED._replace(rho=rho)
        case Approximate(event=inner, epsilon=epsilon, delta=delta):
            cost = _cost(inner)._replace(approx=exact(epsilon), delta=exact(delta))
        case Composed(events=events):
            cost = _Cost(*map(sum, zip(_NOTHING, *map(_cost, events), strict=True)))
        case Unbounded() | PureDraws():
            cost = _UNBOUNDED
    return cost


@lru_cache(maxsize=64, typed=True)  # records differ in the number of draws; 0.1 is not the Fraction of its bits
def _of_one_draw(
    epsilon: float | Fraction, tight: Fraction | None, range_bounded: bool
) -> tuple[Fraction, Fraction, Fraction]:
    """Return its pure parameter, the tight one, and rho (docs/spec/privacy.md#epsilon-star, #br-zcdp)."""
    cost = exact(epsilon)
    if tight is not None and tight > cost * (1 + _MARGIN_OF_COMPUTED) + 2 * _MARGIN_OF_COMPUTED:
        msg = f"a draw is charged {float(cost):.9g}, and loses {float(tight):.9g} by the integers of its sampler"
        raise PolicyError(msg, "correct the mechanism: no charge may be below the loss")
    # A range-bounded draw is eps^2/8-zCDP, any other pure draw eps^2/2.
    return cost, cost if tight is None else min(cost, tight), cost * cost / (8 if range_bounded else 2)


def _of_division(draws: DividedDraws) -> _Cost:
    """Return the cost of draws that divide one budget, and of a first release.

    The text itself may divide the budget of range-bounded draws (docs/spec/privacy.md#theorem-a). What divides the
    budget of noise is public, or was released before at its own cost, so that the epsilons of the draws add up
    (docs/spec/privacy.md#allocation-allowed).
    """
    pure, outputs = exact(draws.total) + exact(draws.first), draws.outputs
    if outputs is None:
        tight = pure * draws.tightness
        # The squares of the shares add up to at most the largest share times their sum.
        rho = (draws.largest * exact(draws.total) + draws.count * draws.first_draw**2) / 2
    else:
        loss = allocated_epsilon(draws.total, draws.count, outputs, sampling.weight_bits(outputs))
        if draws.first_draw:
            loss += draws.count * sampling.epsilon_implemented(float(draws.first_draw), outputs)
        tight = exact(loss) + (draws.count + 2) * _MARGIN_OF_COMPUTED
        rho = allocated_rho(draws.total, draws.largest) + draws.count * draws.first_draw**2 / 8
    return _Cost(pure, min(pure, tight), pure, Fraction(0), rho, math.inf, math.inf)


def _metric(event: Event) -> MetricClaim | None:
    match event:
        case PureDraws(count=count, metric=metric) | DividedDraws(count=count, metric=metric):
            return metric if count else None
        case Approximate(event=inner):
            return _metric(inner)
        case _:
            return None


@dataclass(frozen=True)
class Bound:
    """One valid (epsilon, delta) statement about a spend, with the rule that gives it.

    Rules: "tight": the sampler's exact pure parameters, added up. "pure": the declared pure epsilons, added up.
    "approx": the declared (epsilon, delta) pairs, added up. "zcdp": the sum of rho, converted. "pld": the composed
    distribution of the privacy loss. "gaussian": the exact profile of all Gaussian noise together. "pure+gaussian": the
    same, plus the epsilon of the pure releases. "none": no theorem is known.
    """

    epsilon: Micro  # in millionths, 0 or more; infinite where no theorem is known
    delta: Micro  # in millionths; 0 for a pure statement; never show an epsilon without its delta
    rule: str

    @property
    def log10_odds(self) -> float:
        """The powers of ten by which the odds between two texts can move (docs/spec/privacy.md#odds)."""
        return log10_odds(self.epsilon)


def compose(spends: Iterable[Spend]) -> Spend:
    """Add up the costs of releases of one unit: components add, disclosures unite, the weakest class stays.

    The sum holds for releases that are chosen after earlier outputs were seen. It compares histories that agree on
    every disclosure (docs/spec/privacy.md#spend-composition).
    """
    return reduce(add, spends, Spend.zero())


def bounds(spend: Spend) -> list[Bound]:
    """Return every finite statement about a spend, pure ones first; none where no theorem is known."""
    stated = [
        Bound(spend.eps_pure, 0, "pure"),
        Bound(spend.eps_tight, 0, "tight"),
        Bound(spend.eps_approx, millionths("delta", spend.delta), "approx"),
    ]
    return [bound for bound in stated if math.isfinite(bound.epsilon) and math.isfinite(bound.delta)]


def is_finite(spend: Spend, measure: str) -> bool:
    """Return True if a cap of this measure can count a spend."""
    return all(math.isfinite(getattr(spend, component)) for component in MEASURES[measure])


def least(stated: Spend | Iterable[Bound]) -> Bound:
    """Pick the statement with the least epsilon about a spend, or among given statements.

    At equal epsilon the smaller delta wins, then the statement that comes first. Where no theorem is known the epsilon
    is infinite and the rule is "none".
    """
    limits = bounds(stated) if isinstance(stated, Spend) else stated
    return min(limits, key=lambda bound: (bound.epsilon, bound.delta), default=Bound(math.inf, 0, "none"))


def joint(spends: Iterable[Spend], delta: float, *, draws: Iterable[PureDraws] | None = None) -> list[Bound]:
    """Return every finite statement at one fixed delta about several releases of one subject.

    The Gaussian rules hold for parameters that were fixed beforehand, as in a policy. `draws` are the range-bounded
    draws of all releases, if all are such draws; their composition is tighter.

    Specification: docs/spec/privacy.md#composition.
    """
    require_delta(delta)
    listed = list(spends)
    total = compose(listed)
    # Declared deltas add up, and their pair is a statement at this delta only if the sum fits into it.
    allowed = [bound for bound in bounds(total) if bound.rule != "approx" or total.delta <= exact(delta) * FINE]
    gaussian = [item for item in listed if math.isfinite(item.mu2) and not math.isfinite(item.eps_pure)]
    pure = compose(item for item in listed if math.isfinite(item.eps_pure))
    at = delta * MICRO
    if math.isfinite(total.rho):
        allowed.append(Bound(micro(zcdp_epsilon(total.rho / MICRO, delta)), at, "zcdp"))
    if draws is not None:
        allowed.append(Bound(micro(bounded_range_epsilon(draws, delta)), at, "pld"))
    others = [item for item in listed if item not in gaussian and not math.isfinite(item.eps_pure)]
    if gaussian and not others:
        mu = math.sqrt(sum(item.mu2 for item in gaussian) / MICRO)
        noisy = micro(smallest_epsilon(mu, delta))
        # The noise uses the whole delta, so only pure epsilons are added to it.
        rule = "gaussian" if len(gaussian) == len(listed) else "pure+gaussian"
        allowed.append(Bound(noisy + min(pure.eps_pure, pure.eps_tight), at, rule))
    return allowed
