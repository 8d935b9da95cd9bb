"""The discrete Gaussian distribution: the printed algorithm of Canonne, Kamath and Steinke 2020 on the same words."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.errors import PolicyError
from tests.later import later

from ..examples import examples
from .test_discrete_laplace import RECORD, Oracle, law_of
from .test_discrete_laplace import Walk as LaplaceWalk

stats = later("scipy.stats")

STATISTIC = 9
VARIANCES = st.builds(Fraction, st.integers(1, 2**20), st.integers(1, 2**20)) | st.builds(
    Fraction, st.integers(1, 2**48), st.integers(1, 2**48)
)


class Gaussian(Oracle):
    """Algorithm 3 with fractions, word by word."""

    def pair_below(self, bound):
        pairs = (low + (high << 64) for low, high in zip(self.words, self.words, strict=True))
        return next(pair for pair in pairs if pair < 2**128 // bound * bound) % bound

    def attempt_gaussian(self, variance):
        """One round of algorithm 3; None where it starts anew."""
        t = math.isqrt(variance.numerator // variance.denominator) + 1
        k = self.laplace(Fraction(1, t))
        return k if self.exp_minus_any(k, t, variance) else None

    def exp_minus_any(self, k, t, variance):
        """True with probability exp(-(|k| - variance / t)^2 / (2 variance)); the quotient stays as it is written."""
        a, b = variance.numerator, variance.denominator
        p, q = (abs(k) * t * b - a) ** 2, 2 * a * b * t * t
        assert Fraction(p, q) == (abs(k) - variance / t) ** 2 / (2 * variance)
        return self.exp_minus_wide(p, q)

    def exp_minus_wide(self, p, q):
        if not all(self.exp_minus(1, 1) for _ in range(p // q)):
            return False
        k = 1
        while self.pair_below(q * k) < p % q:
            k += 1
        return k % 2 == 1

    def gaussian(self, variance):
        return next(k for k in iter(lambda: self.attempt_gaussian(variance), object()) if k is not None)


def law(variance, reach):
    """Probabilities of -reach to reach, with what lies beyond counted as nothing (it is below 1e-15 in all uses)."""
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-(k.astype(float) ** 2) / (2 * float(variance)))
    return weights / weights.sum()


def draws(count, num, den, first=0, key=RECORD):
    return _kernel.discrete_gaussians(key, STATISTIC, first, count, num, den)


@given(st.binary(min_size=32, max_size=32), st.integers(0, 2**63), VARIANCES)
@examples(150)
def test_every_draw_is_that_of_the_printed_algorithm(key, position, variance):
    drawn = _kernel.discrete_gaussians(key, STATISTIC, position, 1, variance.numerator, variance.denominator)
    assert drawn == [Gaussian(key, STATISTIC, position).gaussian(variance)]


def test_a_large_variance_keeps_its_spread():
    n, sigma = 30_000, 2**24
    found = np.array(draws(n, sigma**2, 1), dtype=float)
    assert stats.kstest(found / sigma, stats.norm.cdf).pvalue > 1e-6  # steps are tiny: continuous
    assert len(set(found % 16)) == 16  # every low bit is drawn


GOLDEN = {
    (1, 1): [0, 1, 1, -1, 0, 1, 0, 0, 1, 0, -2, -1, -1, -1, 1, 1],
    (9, 2): [-5, 0, -2, -1, 0, -2, 3, -2, 4, -2, -1, -2, -3, 1, 1, -2],
    (1, 3): [0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 1, -1, 1, 0, 0],
    (10**6, 1): [-603, 1080, -1183, -683, 62, 1284, 792, 607, 923, -1361, -485, -771],
    (2**48, 1): [-17213669, -10967828, 18213148, -19259854, 9069234, 19422243, 4893333, 16539688],
    (123457, 1000): [-17, 24, -22, -2, 10, 12, 15, -11, 8, -17, -13, -5, 9, -1, 7, -2],
}


@pytest.mark.parametrize(("num", "den"), GOLDEN)
def test_golden_draws_stay_frozen(num, den):
    expected = GOLDEN[num, den]
    assert draws(len(expected), num, den) == expected
    assert draws(len(expected) - 3, num, den, first=3) == expected[3:]
    assert [Gaussian(RECORD, STATISTIC, i).gaussian(Fraction(num, den)) for i in range(len(expected))] == expected


@pytest.mark.parametrize("variance", [Fraction(1), Fraction(1, 3), Fraction(5, 2)])
def test_the_algorithm_has_the_law_by_enumeration(variance):
    class Walk(LaplaceWalk, Gaussian):  # the Laplace draw and the last coin, as one step each
        def laplace(self, rate):
            a = math.exp(-rate)
            return self.ask({k: (1 - a) / (1 + a) * a ** abs(k) for k in range(-40, 41)})

        def exp_minus_any(self, k, t, variance):
            chance = math.exp(-((abs(k) - variance / t) ** 2) / (2 * variance))
            return self.ask({True: chance, False: 1 - chance})

    found, _ = law_of(lambda walk: Walk(walk.answers).attempt_gaussian(variance), 1e-30)
    found.pop(None)
    shares = np.array([found.get(k, 0.0) for k in range(-12, 13)])
    assert shares / shares.sum() == pytest.approx(law(variance, 12), abs=1e-9)


@pytest.mark.parametrize(("p", "q"), [(0, 1), (1, 2), (3, 2), (7, 3)])
def test_the_last_coin_is_exact_by_enumeration(p, q):
    """Chances of the coin for p / q above 1, too: as many coins of exp(-1) as p / q has wholes, then the rest."""

    class Walk(LaplaceWalk, Gaussian):
        def exp_minus(self, one, other):
            return self.ask({True: math.exp(-one / other), False: 1 - math.exp(-one / other)})

        def pair_below(self, bound):
            return self.ask(dict.fromkeys(range(bound), 1 / bound))

    found, undecided = law_of(lambda walk: Walk(walk.answers).exp_minus_wide(p, q), 1e-9)
    assert found[True] == pytest.approx(math.exp(-p / q), abs=1e-5 + undecided)


@pytest.mark.parametrize(("num", "den"), [(0, 1), (1, 0), (2**48 + 1, 1), (1, 2**48 + 1)])
def test_a_variance_out_of_reach_is_refused(num, den):
    with pytest.raises(PolicyError, match="variance"):
        draws(1, num, den)
