"""The laws of lists, enumerated for every pair of places and every output.

Specification: docs/spec/privacy.md#e7, docs/spec/privacy.md#e8.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.families.lists import GRID_BITS, GeometricDistribution, TemDistribution
from dptext_etl.sampling import integer_weights, stated

from ..examples import examples
from ..quick import quick

ROUNDING = 1e-11


def geometric(epsilon, places):
    """The published closed form, as logarithms, shape (places, places): row = input, column = output."""
    gap = np.abs(np.subtract.outer(np.arange(places), np.arange(places)))
    a = math.exp(-epsilon)
    logs = math.log((1 - a) / (1 + a)) - epsilon * gap
    logs[:, [0, -1]] = -math.log(1 + a) - epsilon * gap[:, [0, -1]]
    return logs


def tem(epsilon, gamma, places):
    """The published formula: softmax of -epsilon * min(distance, gamma) / 2."""
    gap = np.abs(np.subtract.outer(np.arange(places), np.arange(places)))
    scores = -epsilon * np.minimum(gap, gamma) / 2
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def logs(rows):
    return np.log(np.array([[float(chance) for chance in row] for row in rows]))


def on_words(law, orders):
    """A uniform mixture over lists: the law of words, from the law of places, as logarithms."""
    chances = np.zeros_like(law)
    for order in orders:
        place = np.argsort(order)
        chances += np.exp(law)[np.ix_(place, place)] / len(orders)
    return np.log(chances)


def distances(orders, gamma=None):
    """Largest distance over the lists of every pair of words."""
    places = np.stack([np.argsort(order) for order in orders])
    largest = np.abs(places[:, :, None] - places[:, None, :]).max(axis=0)
    return largest if gamma is None else np.minimum(largest, gamma)


def excess(law, bound):
    """The certificate: how far any output's log ratio of any two inputs exceeds its bound; 0 or less holds it."""
    return max(float(((row - law).max(axis=1) - limit).max()) for row, limit in zip(law, bound, strict=True))


def permuted(places, lists, seed=5):
    random = np.random.default_rng(seed)
    return [np.arange(places), *(random.permutation(places) for _ in range(lists - 1))]


@pytest.mark.parametrize("places", [2, 3, 4, 6, 9])
@pytest.mark.parametrize("epsilon", ["0.1", "1.0", "3.25"])
@pytest.mark.parametrize("lists", [1, 3])
def test_e7_geometric(places, epsilon, lists):
    law = GeometricDistribution(Fraction(epsilon))
    rows = [law.chances(place, places) for place in range(places)]
    assert all(sum(row) == 1 for row in rows)
    np.testing.assert_allclose(logs(rows), geometric(float(epsilon), places), rtol=0, atol=1e-13)
    orders = permuted(places, lists)
    mixture, bound = on_words(logs(rows), orders), float(epsilon) * distances(orders)
    assert excess(mixture, bound) <= ROUNDING
    if lists == 1:
        for i, j in itertools.permutations(range(places), 2):  # equality, attained at an end of the list
            ratios = mixture[i] - mixture[j]
            assert ratios.max() == pytest.approx(float(epsilon) * abs(i - j), abs=ROUNDING)
            assert ratios[0 if i < j else -1] == pytest.approx(ratios.max(), abs=ROUNDING)
        worst = mixture.max(axis=0) - mixture.min(axis=0)
        assert float(law.realized(orders)["epsilon_table"]) == pytest.approx(worst.max(), abs=ROUNDING)


@pytest.mark.parametrize("lists", quick([1, 3]))
def test_e7_a_thousand_places(lists):
    law, epsilon, places = GeometricDistribution(Fraction(1, 2)), 0.5, 1000
    closed = geometric(epsilon, places)
    for place in (0, 1, 250, 777, 999):
        np.testing.assert_allclose(logs([law.chances(place, places)])[0], closed[place], rtol=0, atol=ROUNDING)
    orders = permuted(places, lists)
    some = np.arange(0, places, 7)  # of the words that are compared; each with every output
    assert excess(on_words(closed, orders)[some], epsilon * distances(orders)[np.ix_(some, some)]) <= ROUNDING


def test_the_grid_of_irrational_chances_is_finer_than_a_float():
    law = GeometricDistribution(Fraction(7, 10))
    row = law.chances(3, 1_200)
    assert all(chance.denominator.bit_length() <= GRID_BITS + 1 for chance in row)
    assert sum(row) == 1
    for place in (0, 3, 17, 500, 900, 1_000):
        gap, a = abs(place - 3), math.exp(-0.7)
        exact = -0.7 * gap + math.log(1 / (1 + a) if place == 0 else (1 - a) / (1 + a))
        assert math.log(row[place]) == pytest.approx(exact, abs=1e-11)
    assert row[-1] == 0  # exp(-0.7 * 1196) lies below 2**-1100
    for place, places in itertools.product((0, 1, 5), (6, 7, 90)):
        assert 0 <= law.stays(place, places) - law.chances(place, places)[place] <= Fraction(1, 2**63)


@pytest.mark.parametrize("places", [2, 3, 5, 9, 40])
@pytest.mark.parametrize("gamma", [1, 2, 5, 8, 100])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 25.0])
def test_e8_tem(places, gamma, epsilon):
    """Gamma beyond the list leaves no place outside; the law is the same formula."""
    law = TemDistribution.of(epsilon, gamma, places)
    rows = [law.chances(place, places) for place in range(places)]
    assert all(sum(row) == 1 for row in rows)
    if epsilon * gamma <= 50:  # beyond, weights are held above S * exp(-epsilon * gamma / 2)
        np.testing.assert_allclose(logs(rows), tem(epsilon, gamma, places), rtol=0, atol=1e-3)
    if epsilon * gamma <= 20:
        np.testing.assert_allclose(logs(rows), tem(epsilon, gamma, places), rtol=0, atol=2e-9)
    for orders in (permuted(places, 1), permuted(places, 3)):
        mixture = on_words(logs(rows), orders)
        assert excess(mixture, epsilon * distances(orders, gamma)) <= ROUNDING
        with_unknown = np.vstack([mixture, np.full(places, -math.log(places))])
        worst = float((with_unknown.max(axis=0) - with_unknown.min(axis=0)).max())
        assert worst <= epsilon * gamma + ROUNDING
        facts = law.realized(orders)
        assert facts["epsilon_table_is"] == "exact"
        assert float(facts["epsilon_table"]) == pytest.approx(worst, abs=1e-9)
        if len(orders) == 1:
            steps = distances(orders, gamma)
            gaps = (mixture[:, None] - mixture[None]).max(axis=2)
            steepest = (gaps[steps > 0] / steps[steps > 0]).max()
            assert float(facts["epsilon_metric"]) == pytest.approx(steepest, abs=1e-9)


@given(st.integers(2, 60), st.integers(1, 12), st.integers(1, 4), st.floats(0.01, 8.0), st.integers(0, 99))
@examples(150)
def test_the_realized_loss_is_that_of_all_pairs(places, gamma, lists, epsilon, seed):
    law, orders = TemDistribution.of(epsilon, gamma, places), permuted(places, lists, seed)
    weights = np.stack([law.weights(place, places) for place in range(places)]).astype(np.float64)
    np.testing.assert_array_equal(weights.sum(axis=1), law.totals(places).astype(np.float64))
    mixture = on_words(np.log(weights / weights.sum(axis=1, keepdims=True)), orders)
    rows = np.vstack([mixture, np.full(places, -math.log(places))])
    exact = (rows.max(axis=0) - rows.min(axis=0)).max()
    assert law.mixture_loss(orders) == pytest.approx(exact, abs=1e-9)
    bound, steepest = law.loss(places)
    assert exact <= bound + ROUNDING
    assert bound <= epsilon * gamma + ROUNDING
    assert steepest <= epsilon
    assert excess(mixture, steepest * distances(orders, min(gamma, places - 1))) <= ROUNDING


def test_weights_are_those_of_the_exponential_mechanism():
    law = TemDistribution.of(1.5, 5, 3_000)
    row = integer_weights(-np.minimum(np.abs(np.arange(3_000) - 70), 5), 7.5, low=-5, high=0)
    np.testing.assert_array_equal(law.weights(70, 3_000), row)
    assert law.reach == 5


def test_a_large_mixture_takes_the_bound_of_one_list():
    orders = [order.astype(np.uint32) for order in permuted(30_000, 5)]
    law = TemDistribution.of(0.01, 200, 30_000)
    facts = law.realized(orders)
    assert facts["epsilon_table_is"] == "bound"
    assert facts["epsilon_table"] == stated(law.loss(30_000)[0])


def test_planted_a_rounded_tail_breaks_the_metric_claim_of_tem():
    law = TemDistribution((2**46, 10, 9), 3)
    assert law.loss(50)[1] > 2.0 / 2
