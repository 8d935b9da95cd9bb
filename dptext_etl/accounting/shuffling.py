"""Describe a shuffled release, and bound the information about one record in a multiset of texts.

This is the privacy of `surrogate` without ids and order.

Among m texts, N are near a record's text and weigh W each, the others weigh w. Only the multiset of n drawn texts is
published. The share of each law that is uniform over all m texts hides the record (Balle, Bell, Gascón and Nissim 2019,
"The Privacy Blanket of the Shuffle Model"). Specification: docs/spec/shuffled.md#bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from dptext_etl.guarantee import LARGEST_DELTA, LARGEST_SUM, MICRO, exact

Floats = npt.NDArray[np.float64]

_LOG_TAIL = -math.log(1e-18)  # tails of binomial counts below 1e-18 are cut; their mass is added to the bound
_LOG_NOTHING = 500.0  # tails of binomial counts below e^-500 count as 0 where only a sign is asked for
_MARGIN = 1e-9  # relative margin, far above the rounding errors of the probabilities here (about 1e-11)
_FINE = 150
"""A bin of the number of hiding records spans 1/150 of its mean, or half its deviation less 2 where that is more."""
_NEAR = 3e-4  # an epsilon is found to about this part of it, or to a millionth
_MOST_ROWS = 10**7  # more rows count as that many; fewer hide less
_LARGEST = 16.0
"""A larger epsilon counts as this one, whose divergence is not smaller; up to it all thresholds below are exact."""
_RAISES = (0, 8, 24, 64)
_CLOSE = 1.015
_ROUNDING = 1e-15
"""Above the rounding errors of one step of a running product or sum, relative to the sum of absolute values."""


class Law(NamedTuple):
    """How a record's public text is drawn."""

    texts: int  # number of texts of the corpus (m)
    near: int  # how many of them are near a text (N)
    inside: int  # weight of a near text (W)
    outside: int  # weight of any other text (w)

    @property
    def uniform(self) -> float:
        """The probability with which a record draws as if it had no text (gamma)."""
        return float(Fraction(self.texts * self.outside, self._total))

    @property
    def gain(self) -> float:
        """The gain of a near text, in units of the uniform probability of a text (g)."""
        return float(Fraction(self.texts * (self.inside - self.outside), self._total))

    @property
    def _total(self) -> int:
        return self.near * self.inside + (self.texts - self.near) * self.outside

    @property
    def widest(self) -> int:
        """The largest number of texts by which two near sets can differ, at least 1."""
        return max(1, min(self.near, self.texts - self.near))

    def chance(self, width: int) -> float:
        """Return the probability that a uniform text lies in one of two differences of that many texts each."""
        return min(1.0, 2 * width / self.texts)


def divergence(eps: float, rows: int, law: Law) -> float:
    """Bound the hockey-stick divergence at `eps` between the multisets of two tables that differ in one text."""
    eps = min(eps, _LARGEST)
    uniform, gain, e = law.uniform, law.gain, math.exp(eps)
    pair = lone = back = 0.0
    width = law.widest
    hiding, cut = binned(min(rows, _MOST_ROWS) - 1, uniform)
    for count, mass in hiding:
        size = count + 1
        near, chance = binomial(size, law.near / law.texts)
        lone += mass * float(chance @ np.maximum(0.0, uniform + gain * near / size - e))
        back += mass * float(chance @ np.maximum(0.0, 1 - e * (uniform + gain * near / size)))
        bound, width = _widest(eps, size, law, width, _RAISES if mass > 1e-7 else (0,))
        pair += mass * bound
    # The sums leave out tails of binomials: these count with all their probability, and the largest excess.
    slack = cut + 8 * math.exp(-_LOG_TAIL) * max(1.0, uniform + gain)
    return (max(pair, lone, back) + slack) * (1 + _MARGIN)


@lru_cache(maxsize=256)
def central_epsilon(rows: int, law: Law, delta: float) -> Fraction:
    """Return an epsilon, in whole millionths, at which the multiset is (epsilon, delta)-private.

    `divergence` confirms it, or it is the loss of one draw, rounded up. It exceeds the smallest epsilon that
    `divergence` confirms by about 1/3,000 of it, or by a millionth.
    """
    largest = math.ceil((math.log(law.inside) - math.log(law.outside)) * MICRO) + 1
    start = divergence(0.0, rows, law)
    if start <= delta:
        return Fraction(1, MICRO)

    def depth(at: int) -> float:  # about proportional to epsilon
        return math.sqrt(math.log(max(1.0, start / divergence(at / MICRO, rows, law))))

    return Fraction(_reached(depth, math.sqrt(math.log(start / delta)), largest), MICRO)


def _reached(depth: Callable[[int], float], goal: float, high: int) -> int:
    """Return a place that is near to where a function reaches a goal, and not before; `high` counts as such a place.

    The function is 0 at 0, grows about linearly, and may end with a long plateau.
    """
    low, short, most = 0, -goal, depth(high)
    far = most - goal
    while far > 0 and high > 2 and (excess := depth(high // 3)) > goal:
        high, far = high // 3, excess - goal
        if excess < 0.99 * most:
            break
    side = 0
    while high - low > 1:
        part = (_NEAR / 2 * goal - short) / (far - short) if far > 0 else 0.5
        middle = min(max(low + round((high - low) * part), low + 1), high - 1)
        excess = depth(middle) - goal
        if 0 <= excess <= _NEAR * goal:
            return middle
        if excess < 0:
            low, short, far, side = middle, excess, far / 2 if side < 0 else far, -1
        else:
            high, far, short, side = middle, excess, short / 2 if side > 0 else short, 1
    return high


def _widest(eps: float, size: int, law: Law, guess: int, raises: tuple[int, ...]) -> tuple[float, int]:
    """Bound the expected excess among `size` texts over all widths, and say where it is largest."""
    first, values = gains(eps, size, _range(size, law.chance(law.widest))[1], law.uniform, law.gain)
    largest, width = 0.0, guess
    for times in raises if len(values) else ():
        values = raised(values, first, size, times)
        size += times
        largest, width = _top(values, first, size, law, width)
        if largest <= _CLOSE * _mean(values, first, size, law.chance(width)):
            break
    return largest, width


def _top(values: Floats, first: int, size: int, law: Law, guess: int) -> tuple[float, int]:
    """Bound the mean of values of the number k of texts in the differences, over all widths; say where it is largest.

    The values are raised until they rise in k up to one place and then fall. The mean f of such v over k ~ Bin(n, p)
    has the derivative n E[v(k + 1) - v(k)], k ~ Bin(n - 1, p). Its positive terms lie at smaller k than its negative
    ones, so the ratio of their sums falls as p grows: f rises and then falls, and a search finds its top. That ratio
    falls by more than 1e-9 from one width to the next, so a rounded sign moves the top by one width at most.
    """
    if law.widest == 1:
        return _mean(values, first, size, law.chance(1)), 1
    top = int(values.argmax())
    left, right = np.maximum.accumulate(values[:top]), np.maximum.accumulate(values[top:][::-1])[::-1]
    smooth = np.concatenate([left, right])
    steps = np.diff(smooth, prepend=0.0)

    def rises(width: int) -> bool:
        low, high = _range(size - 1, law.chance(width), _LOG_NOTHING)
        low, high = max(low, first - 1), min(high, first + len(steps) - 2)
        if low > high:
            return high < first + top
        shape = _shape(size - 1, law.chance(width), low, high)
        return float(shape @ steps[low - first + 1 : high - first + 2]) >= 0

    width = _last(rises, law.widest, guess)
    candidates = {width, min(width + 1, law.widest)}
    return max(_mean(smooth, first, size, law.chance(candidate)) for candidate in candidates), width


def raised(values: Floats, first: int, degree: int, times: int) -> Floats:
    """Return values, from `first` on, that have the same binomial means with that many trials more than `degree`."""
    k = np.arange(first, first + len(values) + times, dtype=np.float64)
    for trials in range(degree + 1, degree + times + 1):
        longer = np.empty(len(values) + 1)
        longer[:-1], longer[-1] = values, 0.0
        share = k[: len(longer)] / trials
        longer -= share * longer
        longer[1:] += share[1:] * values
        values = longer
    return values


def _mean(values: Floats, first: int, trials: int, chance: float) -> float:
    """Return the mean of values of a binomial count, which are those from `first` on; the others are 0."""
    counts, chances = binomial(trials, chance)
    low, high = max(int(counts[0]), first), min(int(counts[-1]) + 1, first + len(values))
    if low >= high:
        return 0.0
    return float(chances[low - int(counts[0]) : high - int(counts[0])] @ values[low - first : high - first])


def _last(holds: Callable[[int], bool], most: int, guess: int) -> int:
    """Return the last of 1 to `most` up to which something holds, at least 1; a good guess makes it short."""
    low, high, by = 1, most + 1, 1
    middle = guess
    while high - low > 1:
        if holds(middle):
            low = middle
            middle = low + by if low + by < high else (low + high) // 2
        else:
            high = middle
            middle = high - by if high - by > low else (low + high) // 2
        by *= 4
        middle = min(max(middle, low + 1), high - 1)
    return low


def gains(eps: float, size: int, most: int, uniform: float, gain: float) -> tuple[int, Floats]:
    """Bound the expected excess if k of `size` texts, up to `most`, fall into the two differences.

    The bounds belong to the k from the first on that is returned; all other bounds are 0. With a of k texts in the
    first difference, a ~ Bin(k, 1/2), the excess is positive from a(k) on, which grows by 0 or 1 as k grows by 1. The
    probabilities of a(k), and of a(k) and more, follow from those for k - 1.
    """
    e = math.exp(eps)
    free = uniform * (e - 1) * size / gain if gain else math.inf
    first, last = _mattering(e, free, most)
    k = np.arange(first, last + 1, dtype=np.float64)
    least = np.ceil((free + e * k) / (1 + e))
    start = int(np.count_nonzero(least > k))  # k - a(k) never falls
    k, least = k[start:], least[start:]
    if not len(k):
        return 1, k
    at = int(np.argmin((2 * least - k) ** 2 / k))
    counts, chance = binomial(int(k[at]), 0.5)
    here = int(least[at]) - int(counts[0])
    exact, above = float(chance[here]), float(chance[here:].sum())
    grows = np.diff(least) > 0
    ratio = 0.5 * (k[:-1] + 1) / np.where(grows, least[:-1] + 1, k[:-1] + 1 - least[:-1])
    point = exact * _run(np.multiply, 1.0, 1 / ratio[:at], ratio[at:])
    change = 0.5 * point[:-1] * np.where(grows, -1.0, least[:-1] / (k[:-1] - least[:-1] + 1))
    tail = _run(np.add, above, -change[:at], change[at:])
    up, down = gain * (1 + e) / (2 * size) * least * point, (e - 1) * (uniform + gain * k / (2 * size))
    spread = above + float(np.abs(change).sum())
    rounding = _ROUNDING * (len(k) + len(counts) + 16)
    values = np.maximum(0.0, up - down * tail) + rounding * (up + down * spread)
    return int(k[0]), values if last == most else np.append(values, 0.0)


def _run(operation: np.ufunc, start: float, before: Floats, after: Floats) -> Floats:
    """Return the running results of an operation from a start on to both sides."""
    at = len(before)
    sums = np.concatenate([before, [start], after])
    operation.accumulate(sums[at:], out=sums[at:])
    operation.accumulate(sums[at::-1], out=sums[at::-1])
    return sums


def _mattering(e: float, free: float, most: int) -> tuple[int, int]:
    """Return the first and last k, up to `most`, where Bin(k, 1/2) may reach a(k) with 1e-18 or more (Hoeffding).

    As a(k) is at least (free + e k) / (1 + e), they have exp(-(2 free + (e - 1) k)^2 / (2 k (1 + e)^2)) at most.
    """
    half = (1 + e) * math.sqrt(2 * _LOG_TAIL)
    root = half * half - 8 * free * (e - 1)
    if not root >= 0:
        return 1, 0
    root = half + math.sqrt(root)
    highest = (root / (2 * (e - 1))) ** 2 if e > 1 else math.inf
    return max(1, math.floor((4 * free / root) ** 2)), min(most, math.ceil(min(highest, most)))  # outward


def binned(trials: int, chance: float) -> tuple[list[tuple[int, float]], float]:
    """Return bins of a binomial count, each by its smallest member, and the probability of all counts below them.

    Fewer hide less, so a bin may count as its smallest member; counts above all bins go to the last one.
    """
    counts, masses = binomial(trials, chance)
    mean = trials * chance - int(counts[0])
    deviation = math.sqrt(trials * chance * (1 - chance))
    step = max(1, int(max(trials * chance / _FINE, deviation / 2 - 2)))
    low, high = max(0, math.floor(mean - 4.5 * deviation)), min(len(counts), math.ceil(mean + 4.5 * deviation))
    edges = sorted({0, *range(0, low, 4 * step - 3), *range(low, high, step), len(counts)})
    bins = [(int(counts[a]), float(masses[a:b].sum())) for a, b in pairwise(edges)]
    return bins, 2 * math.exp(-_LOG_TAIL)


def binomial(trials: int, chance: float) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the counts that matter and their probabilities."""
    low, high = _range(trials, chance)
    shape = _shape(trials, chance, low, high)
    return np.arange(low, high + 1), shape / shape.sum()


def _shape(trials: int, chance: float, low: int, high: int) -> Floats:
    """Return the probabilities of binomial counts from `low` to `high` in units of the largest, by their ratios."""
    if chance >= 1:
        return np.asarray(np.arange(low, high + 1) == trials, np.float64)
    k = np.arange(low, high, dtype=np.float64)
    ratio = (trials - k) / (k + 1) * (chance / (1 - chance))
    mode = min(max(math.floor((trials + 1) * chance), low), high) - low
    return _run(np.multiply, 1.0, 1 / ratio[:mode], ratio[mode:])


def _range(trials: int, chance: float, log_tail: float = _LOG_TAIL) -> tuple[int, int]:
    """Return counts outside of which a binomial count lies with e^-log_tail at most, on each side (Chernoff)."""
    mean = trials * chance
    below = math.sqrt(2 * mean * log_tail)
    above = (log_tail + math.sqrt(log_tail**2 + 18 * mean * log_tail)) / 3
    return max(0, math.floor(mean - below)), min(trials, math.ceil(mean + above))


COUNT = "count"  # the column that says how often a text was drawn, in the form "counts"
OTHER = "other"  # the label of null and unlisted values
_STRICT = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
_Text = Annotated[str, Field(min_length=1, max_length=200)]


class ShuffledLabels(BaseModel):
    """The labels under which a shuffled release publishes its texts.

    Attributes:
        column: Column that holds them, of strings, whole numbers ("5"), or booleans ("true"). They are not protected.
        values: The public list of labels. Others, and null, count as "other": published if listed, and otherwise left
            out, uncharged.
    """

    model_config = _STRICT

    column: _Text
    values: tuple[_Text, ...]

    @property
    def named(self) -> tuple[str, ...]:
        """Return the labels that are published as they are."""
        return tuple(value for value in self.values if value != OTHER)

    @model_validator(mode="after")
    def _listed(self) -> Self:
        if len({*self.values}) < len(self.values):
            raise ValueError("values lists a label twice: list each public label once")
        if not self.named:
            raise ValueError(f'values lists one label or more in addition to "{OTHER}", which covers all others')
        return self


class Shuffled(BaseModel):
    """The table `[shuffled]` of a policy.

    Attributes:
        rows: Public lower bound on the number of released texts, with `labels` for every label; a run with fewer is
            refused before any draw.
        delta: Delta of one record, at most 1e-6.
        per_subject: Most records of a person, under all labels together; the others are excluded.
        form: "rows" publishes every drawn text, "counts" distinct texts with their counts.
        labels: Publish the label of each text: `column`, and `values` (the public list).
    """

    model_config = _STRICT

    rows: Annotated[int, Field(ge=2, le=10**9, strict=True)]
    delta: Annotated[float, Field(gt=0, le=LARGEST_DELTA, allow_inf_nan=False, strict=True)]
    per_subject: Annotated[PositiveInt, Field(le=10**9)] = 1
    form: Literal["rows", "counts"] = "rows"
    labels: ShuffledLabels | None = Field(default=None, exclude_if=lambda labels: labels is None)

    def columns(self, text: str) -> tuple[str, ...]:
        """Return the columns of the published table, by the name of its text column."""
        label = () if self.labels is None else (self.labels.column,)
        return (*label, text) if self.form == "rows" else (*label, text, COUNT)

    def epsilon(self, law: Law) -> Fraction:
        """Return the central epsilon of one record under any label, in whole millionths rounded up."""
        return central_epsilon(self.rows, law, self.delta)

    def charged_delta(self, law: Law) -> Fraction:
        """Return the delta that each record is charged, so that `per_subject` of them cover a person, rounded up."""
        charged = self._multiplied(law)
        if self.per_subject > 1 and charged > LARGEST_DELTA:
            msg = f"per_subject = {self.per_subject} multiplies the delta of a record to {float(charged):.2g}, above "
            raise ValueError(f"{msg}{LARGEST_DELTA:g}: {self._sound(law)}")
        return charged

    def _multiplied(self, law: Law) -> Fraction:
        if self.per_subject == 1:
            return exact(self.delta)
        exponent = float((self.per_subject - 1) * self.epsilon(law))
        return exact(self.delta) * Fraction(math.exp(min(exponent, 100.0)) * (1 + 1e-12))

    def _sound(self, law: Law) -> str:
        """Return values that work: the largest delta or the least rows, and the largest per_subject."""
        deltas = [{"delta": 10.0**-power} for power in range(7, 12) if 10.0**-power < self.delta]
        rows = [{"rows": 10**power, "delta": min(self.delta, 1e-8)} for power in range(3, 8) if 10**power > self.rows]
        fewer = [{"per_subject": most} for most in range(self.per_subject - 1, 0, -1)]
        changes = [next(filter(partial(self._works, law), tried), {}) for tried in ([*deltas, *rows], fewer)]
        parts = [" and ".join(f"{name} = {value:.9g}" for name, value in change.items()) for change in changes]
        parts[0] += " (if there are that many texts)" if "rows" in changes[0] else ""
        return f"{' or '.join(filter(None, parts))} works"

    def _works(self, law: Law, changes: dict[str, Any]) -> bool:
        other = self.model_copy(update=changes)
        return other.per_subject == 1 or other._multiplied(law) <= LARGEST_DELTA  # noqa: SLF001  (of this class)

    def most_records(self, law: Law) -> int:
        """Return for how many records the charged delta may be stated (docs/spec/privacy.md#delta-policy)."""
        return int(LARGEST_SUM / self.charged_delta(law))

    def condition(self, law: Law) -> dict[str, Any]:
        """Return the public conditions of the bound (docs/spec/shuffled.md#bound)."""
        weights = [law.inside, law.outside]
        return {**self.model_dump(mode="json"), "corpus_texts": law.texts, "near_texts": law.near, "weights": weights}


def shuffled_of(mechanism: object) -> Shuffled | None:
    """Return the settings of a shuffled release; None where rows are published."""
    return getattr(mechanism, "shuffled", None)
