"""Enumerate the loss of one record in a multiset of public texts, and compare it with the bound."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from dptext_etl.accounting.shuffling import Law, Shuffled, binned, binomial, central_epsilon, divergence, gains, raised
from dptext_etl.corpora.frequencies import weights
from tests.quick import quick

EPSILONS = (0.05, 0.2, 0.5, 0.9)
SMALL = [
    (2, 3, 1, 3),
    (3, 4, 1, 3),
    (3, 4, 2, 4),
    (4, 3, 1, 8),
    (3, 4, 3, 3),  # more than half of the texts are near
    (4, 4, 1, 3),
    (2, 5, 4, 5),
    (2, 6, 2, 5),
    (3, 5, 2, 2),
]
"""Rows, texts of the corpus, near texts, and the ratio of their weights."""

Multiset = dict[tuple[int, ...], Fraction]


def _laws(law: Law) -> list[list[Fraction]]:
    """Return the law of a draw for every near set, and last the law of a text without known words."""
    total = law.near * law.inside + (law.texts - law.near) * law.outside
    sets = itertools.combinations(range(law.texts), law.near)
    found = [[Fraction(law.inside if y in near else law.outside, total) for y in range(law.texts)] for near in sets]
    return [*found, [Fraction(1, law.texts)] * law.texts]


def _released(laws: list[list[Fraction]], records: tuple[int, ...]) -> Multiset:
    out: Multiset = {(): Fraction(1)}
    for record in records:
        longer: Counter[tuple[int, ...]] = Counter()
        for texts, mass in out.items():
            for text, chance in enumerate(laws[record]):
                longer[tuple(sorted((*texts, text)))] += mass * chance  # type: ignore[assignment]
        out = dict(longer)  # type: ignore[arg-type]
    return out


def _largest(rows: int, law: Law, eps: float) -> Fraction:
    """Return the largest divergence over all tables and all pairs of texts of one record."""
    laws, e = _laws(law), Fraction(math.exp(eps))
    found = Fraction(0)
    for others in itertools.combinations_with_replacement(range(len(laws)), rows - 1):
        views = [_released(laws, (text, *others)) for text in range(len(laws))]
        for a, b in itertools.permutations(views, 2):
            found = max(found, sum((max(Fraction(0), a[key] - e * b[key]) for key in a), Fraction(0)))
    return found


@pytest.mark.parametrize("case", quick([(case,) for case in SMALL], first=5), ids=str)
def test_the_bound_holds_for_every_small_table(case: tuple[int, int, int, int]) -> None:
    rows, texts, near, ratio = case
    law = Law(texts, near, ratio, 1)
    for eps in EPSILONS:
        assert float(_largest(rows, law, eps)) <= divergence(eps, rows, law) + 1e-15


def test_the_bound_is_reached() -> None:
    law = Law(4, 1, 3, 1)
    assert float(_largest(3, law, 0.5)) == pytest.approx(divergence(0.5, 3, law), rel=1e-6)


def test_counting_other_texts_alone_is_no_bound() -> None:
    """The clones of only the two near texts give 0.0090; the multiset has more than twice that."""
    law = Law(4, 1, 3, 1)
    assert float(_largest(3, law, 0.9)) > 0.022
    assert divergence(0.9, 3, law) >= float(_largest(3, law, 0.9))


@pytest.mark.parametrize(
    ("epsilon", "near", "rows", "known"),
    [(2, 1838, 1000, 0.267), (4, 475, 1000, 1.046), (4, 475, 10_000, 0.3045), (4, 820, 10_000, 0.359)],
)
def test_known_answers(epsilon: int, near: int, rows: int, known: float) -> None:
    law = Law(20_000, near, *weights(20_000, near, Decimal(epsilon)))
    found = central_epsilon(rows, law, 1e-6)
    assert known - 0.004 < found < known
    assert divergence(float(found), rows, law) <= 1e-6


@pytest.mark.parametrize(("eps", "uniform", "gain"), [(0.1, 0.3, 40.0), (0.4, 0.05, 3.0), (2.0, 0.7, 90.0)])
def test_the_closed_form_is_the_sum_rounded_up(eps: float, uniform: float, gain: float) -> None:
    size, e, share, more = 500, Fraction(math.exp(eps)), Fraction(uniform), Fraction(gain)
    first, values = gains(eps, size, 200, uniform, gain)
    for k in (0, 1, 2, 7, 40, 41, 120, 199, 200):
        found = float(values[k - first]) if 0 <= k - first < len(values) else 0.0
        excess = [share * (1 - e) + more * ((1 + e) * a - e * k) / size for a in range(k + 1)]
        exact = float(sum(math.comb(k, a) * max(Fraction(0), one) for a, one in enumerate(excess)) / 2**k)
        assert exact - 1e-18 * (uniform + gain) <= found <= exact * (1 + 1e-9) + 1e-10


def _every_width(eps: float, rows: int, law: Law) -> float:
    """Return the specified bound with every width evaluated, every number of hiding records, and direct sums."""
    e, uniform, gain = math.exp(eps), law.uniform, law.gain
    pair, lone, back = np.zeros(law.widest), 0.0, 0.0
    chances = [min(1.0, 2 * width / law.texts) for width in range(1, law.widest + 1)]
    for hiding, mass in enumerate(_masses(rows - 1, uniform)):
        if mass < 1e-25:
            continue
        size = hiding + 1
        k = np.arange(size + 1)
        excess = np.array(
            [
                _masses(n, 0.5)
                @ np.maximum(0.0, uniform * (1 - e) + gain * ((1 + e) * np.arange(n + 1) - e * n) / size)
                for n in k.tolist()
            ]
        )
        pair += mass * np.array([_masses(size, chance) @ excess for chance in chances])
        near = _masses(size, law.near / law.texts)
        lone += mass * float(near @ np.maximum(0.0, uniform + gain * k / size - e))
        back += mass * float(near @ np.maximum(0.0, 1 - e * (uniform + gain * k / size)))
    return max(float(pair.max()), lone, back)


@cache
def _masses(trials: int, chance: float) -> npt.NDArray[np.float64]:
    if chance >= 1:
        return np.asarray(np.arange(trials + 1) == trials, np.float64)
    logs = [math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1) for k in range(trials + 1)]
    k = np.arange(trials + 1)
    return np.asarray(np.exp(np.array(logs) + k * math.log(chance) + (trials - k) * math.log1p(-chance)))


def _random_laws() -> list[tuple[int, Law, float]]:
    draw = np.random.default_rng(20)
    found = []
    for _ in range(40):
        texts, rows = int(math.exp(draw.uniform(1.4, 5.5))), int(math.exp(draw.uniform(0, 5)))
        near = int(draw.integers(1, texts if draw.random() < 0.5 else max(2, texts // 10)))
        epsilon = Decimal(round(draw.uniform(0.3, 6), 2)).quantize(Decimal("0.01"))
        found.append((rows, Law(texts, near, *weights(texts, near, epsilon)), 10 ** -draw.uniform(3, 9)))
    return found


@pytest.mark.parametrize("case", quick(range(40), first=10))
def test_the_search_is_no_lower_than_every_width_and_costs_little(case: int) -> None:
    rows, law, delta = _random_laws()[case]
    found = float(central_epsilon(rows, law, delta))
    for eps in (found / 3, found, found * 0.998 - 2e-6):
        assert divergence(eps, rows, law) >= _every_width(eps, rows, law) * (1 - 1e-10)
    assert _every_width(found * 0.998 - 2e-6, rows, law) > delta


@pytest.mark.parametrize(("trials", "chance"), [(0, 0.3), (1, 0.3), (30, 0.99), (1000, 0.001), (100_000, 0.7)])
def test_bins_hold_all_counts(trials: int, chance: float) -> None:
    bins, cut = binned(trials, chance)
    assert sum(mass for _, mass in bins) == pytest.approx(1, abs=1e-12)
    assert bins[0][0] == binomial(trials, chance)[0][0]
    assert 0 < cut < 1e-17


def test_more_trials_leave_the_means_as_they_are() -> None:
    values = np.array([0.3, 0.1, 0.7, 0.2])
    more = raised(values, 2, 9, 5)
    for chance in (0.1, 0.45, 0.8):
        before, after = _masses(9, chance)[2:6] @ values, _masses(14, chance)[2:11] @ more
        assert after == pytest.approx(before, rel=1e-12)


def test_more_rows_hide_more() -> None:
    law = Law(2000, 40, *weights(2000, 40, Decimal(4)))
    found = [central_epsilon(rows, law, 1e-6) for rows in (1, 10, 100, 1000, 10_000)]
    assert found == sorted(found, reverse=True)
    assert found[0] <= Fraction("4.000001")


@pytest.mark.parametrize(("trials", "chance"), [(1, 0.3), (40, 0.5), (300, 0.01), (2000, 0.9), (5, 1.0)])
def test_binomial_probabilities_are_exact_to_eleven_digits(trials: int, chance: float) -> None:
    counts, found = binomial(trials, chance)
    p = Fraction(chance)
    for count, mass in list(zip(counts.tolist(), found.tolist(), strict=True))[:: max(1, len(counts) // 40)]:
        exact = float(math.comb(trials, count) * p**count * (1 - p) ** (trials - count))
        assert mass == pytest.approx(exact, rel=1e-11, abs=1e-300)
    assert np.isclose(found.sum(), 1, rtol=1e-12)


@pytest.mark.parametrize(
    ("rows", "delta", "named"),
    [(100_000, 1e-6, {"delta", "per_subject"}), (1000, 1e-6, {"rows", "delta", "per_subject"})],
)
def test_a_refused_delta_names_others_that_are_not_refused(rows: int, delta: float, named: set[str]) -> None:
    law, asked = Law(64, 1, 28388777563193916, 70368744177664), Shuffled(rows=rows, delta=delta, per_subject=5)
    with pytest.raises(ValueError, match="multiplies the delta") as caught:
        asked.charged_delta(law)
    *others, most = (
        dict(part.split(" = ") for part in re.findall(r"\w+ = [\w.-]+", side))
        for side in str(caught.value).partition(": ")[2].split(" or ")
    )
    assert {*others[0], *most} == named
    for changes in (*others, most):
        values = {name: float(value) if name == "delta" else int(value) for name, value in changes.items()}
        assert asked.model_copy(update=values).charged_delta(law) <= Fraction("1e-6")
