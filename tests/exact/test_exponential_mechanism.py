"""The integers that decide draws, enumerated (docs/spec/privacy.md#e1, docs/spec/privacy.md#e12)."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.sampling import epsilon_implemented, integer_weights, smallest_weight, weight_bits
from tests.score_oracle import epsilon_star

from ..examples import examples

EPSILONS = [0.1, 1.0, 5.0, 20.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("m", [2, 3, 6, 20, 5000])
def test_e1_the_band_is_attained(m, epsilon):
    rows = np.zeros((2, m))
    rows[0, 0] = 1.0
    rows[1, 1:] = 1.0
    weights = integer_weights(rows, epsilon)
    totals = [sum(map(int, row)) for row in weights]
    ratio = Fraction(int(weights[0, 0]), totals[0]) / Fraction(int(weights[1, 0]), totals[1])
    assert math.log(ratio) == pytest.approx(epsilon_implemented(epsilon, m), abs=1e-12)


def test_smallest_weight_is_never_below_its_bound():
    for epsilon, m in itertools.product(
        [1e-6, 0.1, 1.0, 3.0, 37.7, 63.7, 64.0, 250.0], [2, 20, 4097, 65_536, 1_000_000]
    ):
        assert smallest_weight(epsilon, m) >= 1
        exact = math.log(smallest_weight(epsilon, m)) - weight_bits(m) * math.log(2)
        assert exact >= -epsilon / 2 - 1e-15


def test_known_answers_of_the_specification():
    star = {(20, 1): 0.948209, (20, 3): 2.799893, (20, 10): 7.824329, (20, 25): 15.444368, (20, 50): 27.944439}
    star |= {(20, 100): 52.944439, (32_128, 10): 9.995391, (32_128, 25): 22.764368, (50_265, 250): 135.825044}
    for (m, epsilon), value in star.items():
        assert epsilon_star(float(epsilon), m) == pytest.approx(value, abs=6e-7)
    implemented = {(32_128, 50): 35.376712, (32_128, 100): 42.262222, (50_265, 50): 35.824304, (50_265, 250): 42.709815}
    for (m, epsilon), value in implemented.items():
        assert epsilon_implemented(float(epsilon), m) == pytest.approx(value, abs=6e-7)
    assert 8 * epsilon_star(3.0, 20) == pytest.approx(22.3991, abs=6e-5)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=2, max_size=30), st.floats(1e-3, 500))
def test_weights_do_not_depend_on_a_common_shift_of_the_row_maximum(scores, epsilon):
    weights = integer_weights(scores, epsilon)
    assert int(weights.max()) == 2 ** weight_bits(len(scores))
    assert int(weights.min()) >= smallest_weight(epsilon, len(scores))
    assert math.fsum(map(int, weights)) < 2**62


# Theorem A (docs/spec/privacy.md#e12), on allocations local to this test.


def log_pmax(epsilon, m):
    return -math.log1p((m - 1) * math.exp(-epsilon / 2))


def log_pmin(epsilon, m):
    return -epsilon / 2 - math.log(math.exp(-epsilon / 2) + m - 1)


def f(epsilon, m):
    return log_pmax(epsilon, m) + math.log(m)


def g(epsilon, m):
    return -log_pmin(epsilon, m) - math.log(m)


def realized(epsilon, m):
    """(f, g) of the integer sampler; epsilon 0 is the uniform draw."""
    if epsilon == 0:
        return 0.0, 0.0
    top, least = 2 ** weight_bits(m), smallest_weight(epsilon, m)
    high = math.log(m * top) - math.log(top + (m - 1) * least)
    low = math.log(m * least) - math.log(least + (m - 1) * top)
    return high, -low


def tight_bound(total, n, m):
    """n f(E/n) + G with the saturation of the integer sampler (docs/spec/privacy.md#theorem-a-integers)."""
    bits = weight_bits(m)
    step = 2 * bits * math.log(2)
    q, saturated = int(total // step), math.log((1 + (m - 1) * 2**bits) / m)
    tail = n * saturated if q >= n else q * saturated + min(saturated, g(total - q * step, m))
    return n * f(total / n, m) + tail


@pytest.mark.parametrize("m", [2, 4, 20])
def test_e12_integers_only_shrink_the_band(m):
    for epsilon in np.linspace(0.01, 120, 200):
        high, low = realized(float(epsilon), m)
        assert high <= f(epsilon, m) + 1e-12
        assert low <= g(epsilon, m) + 1e-12


def test_e12_known_values():
    assert 2 * f(3.0, 4) + g(6.0, 4) == pytest.approx(4.476449, abs=1e-6)
    spread, concentrated = 2 * realized(70.0, 4)[0], realized(70.0, 4)[1]
    attained = spread + 2 * concentrated
    assert attained == pytest.approx(65.97, abs=0.01)
    naive = 2 * realized(70.0, 4)[0] + realized(140.0, 4)[1]
    assert naive == pytest.approx(34.37, abs=0.01)
    assert attained <= tight_bound(140.0, 2, 4) + 1e-9 <= 140.0


@examples(200)
@given(st.data())
def test_e12_adaptive_allocations_stay_within_the_total(data):
    m, n = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 3))
    total = data.draw(st.floats(0.1, 150))

    def walk(prefix, left_x, left_y, ratio):
        """All transcripts: two inputs with adaptive allocations and separate arbitrary scores."""
        if len(prefix) == n:
            assert ratio <= tight_bound(total, n, m) + 1e-9
            assert ratio <= total + 1e-9
            return
        spend_x = left_x * data.draw(st.floats(0, 1))
        spend_y = left_y * data.draw(st.floats(0, 1))
        rows = [
            probabilities(data.draw(st.tuples(*[st.sampled_from([0.0, 0.5, 1.0])] * m)), e, m)
            for e in (spend_x, spend_y)
        ]
        outcome = int(np.argmax(rows[0] - rows[1]))
        step = float(rows[0][outcome] - rows[1][outcome])
        walk((*prefix, outcome), left_x - spend_x, left_y - spend_y, ratio + step)

    walk((), total, total, 0.0)


def probabilities(scores, epsilon, m):
    weights = integer_weights(scores, epsilon).astype(float) if epsilon > 0 else np.ones(m)
    return np.log(weights) - np.log(weights.sum())
