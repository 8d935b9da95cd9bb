"""Enumerate what a multiset of public texts reveals of one record, and compare it with the bound."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dptext_etl.accounting.shuffling import Law, _binomial, _gains, central_epsilon, divergence
from dptext_etl.corpora.weights import weights

EPSILONS = (0.05, 0.2, 0.5, 0.9)
SMALL = [
    (2, 3, 1, 3),
    (3, 4, 1, 3),
    (4, 4, 1, 3),
    (3, 4, 2, 4),
    (3, 5, 2, 2),
    (4, 3, 1, 8),
    (3, 4, 3, 3),  # more than half of the texts are near
    (2, 5, 4, 5),
    (2, 6, 2, 5),
]
"""Rows, texts of the corpus, near texts, and the ratio of their weights."""

Multiset = dict[tuple[int, ...], Fraction]


def _laws(law: Law) -> list[list[Fraction]]:
    """Return the law of a draw for every near set, and last that of a text without known words."""
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


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_the_bound_holds_for_every_small_table(case: tuple[int, int, int, int]) -> None:
    rows, texts, near, ratio = case
    law = Law(texts, near, ratio, 1)
    for eps in EPSILONS:
        assert float(_largest(rows, law, eps)) <= divergence(eps, rows, law) + 1e-15


def test_the_bound_is_reached() -> None:
    law = Law(4, 1, 3, 1)
    assert float(_largest(3, law, 0.5)) == pytest.approx(divergence(0.5, 3, law), rel=1e-6)


def test_counting_other_texts_alone_is_no_bound() -> None:
    """The clones of the two near texts alone give .0090; the multiset has more than twice that."""
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
    counts, size, e = np.array([0, 1, 2, 7, 40, 200]), 500, Fraction(math.exp(eps))
    share, more = Fraction(uniform), Fraction(gain)
    for k, found in zip(counts.tolist(), _gains(eps, size, counts, uniform, gain).tolist(), strict=True):
        excess = [share * (1 - e) + more * ((1 + e) * a - e * k) / size for a in range(k + 1)]
        exact = float(sum(math.comb(k, a) * max(Fraction(0), one) for a, one in enumerate(excess)) / 2**k)
        assert exact <= found <= exact * (1 + 1e-9) + 1e-10


def test_more_rows_hide_more() -> None:
    law = Law(2000, 40, *weights(2000, 40, Decimal(4)))
    found = [central_epsilon(rows, law, 1e-6) for rows in (1, 10, 100, 1000, 10_000)]
    assert found == sorted(found, reverse=True)
    assert found[0] <= Fraction("4.000001")


@pytest.mark.parametrize(("trials", "chance"), [(1, 0.3), (40, 0.5), (300, 0.01), (2000, 0.9), (5, 1.0)])
def test_binomial_probabilities_are_exact_to_eleven_digits(trials: int, chance: float) -> None:
    counts, found = _binomial(trials, chance)
    p = Fraction(chance)
    for count, mass in list(zip(counts.tolist(), found.tolist(), strict=True))[:: max(1, len(counts) // 40)]:
        exact = float(math.comb(trials, count) * p**count * (1 - p) ** (trials - count))
        assert mass == pytest.approx(exact, rel=1e-11, abs=1e-300)
    assert np.isclose(found.sum(), 1, rtol=1e-12)
