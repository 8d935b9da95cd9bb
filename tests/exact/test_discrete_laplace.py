"""The discrete Laplace distribution: the printed algorithms of Canonne, Kamath and Steinke 2020 on the same words."""

import itertools
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

stats = later("scipy.stats")

OVERFLOW = 1 << 31
RECORD = bytes.fromhex("e353bcaa494e7cd3361f12b7817fe00ddc0ba5328def9e8517aee79144a557b8")
LENGTH = 6


class Oracle:
    """The algorithms with fractions, word by word."""

    def __init__(self, key, purpose, position):
        self.words = (_kernel.stream_words(key, purpose | OVERFLOW, position, i, 1)[0] for i in itertools.count())

    def below(self, bound):
        return next(word for word in self.words if word < 2**64 // bound * bound) % bound

    def bernoulli(self, p):
        return self.below(p.denominator) < p.numerator

    def unreduced(self, p, q):
        return self.below(q) < p

    def exp_minus(self, p, q):
        """Algorithm 1 for p/q in [0, 1]; the quotient stays as it is written."""
        k = next(k for k in itertools.count(1) if not self.unreduced(p, q * k))
        return k % 2 == 1

    def attempt(self, rate):
        """One round of algorithm 2 with t = the rate's denominator and s = its numerator; None where it starts anew."""
        s, t = rate.numerator, rate.denominator
        u = self.below(t)
        if not self.exp_minus(u, t):
            return None
        v = next(v for v in itertools.count() if not self.exp_minus(1, 1))
        y = (u + t * v) // s
        if self.bernoulli(Fraction(1, 2)):
            return -y if y else None
        return y

    def laplace(self, rate):
        return next(k for k in iter(lambda: self.attempt(rate), object()) if k is not None)


def exact(rate, k):
    a = math.exp(-rate)
    return (1 - a) / (1 + a) * math.exp(-rate * abs(k))


@given(
    st.binary(min_size=32, max_size=32),
    st.sampled_from([1, 2, 6, 262, 2**31 - 1]),
    st.integers(0, 2**63),
    st.fractions(min_value=Fraction(1, 1000), max_value=50, max_denominator=2**40) | st.integers(1, 9).map(Fraction),
)
@examples(200)
def test_every_draw_is_that_of_the_printed_algorithm(key, purpose, position, rate):
    drawn = _kernel.discrete_laplace(key, purpose, position, rate.numerator, rate.denominator)
    assert drawn == Oracle(key, purpose, position).laplace(rate)


GOLDEN = {
    (1, 1): [0, 0, -1, 0, 0, 0, -1, 0, -2, 0, 0, 2, 0, -1, 0, -3],
    (1, 2): [0, 6, -1, 0, -1, -1, -2, 1, -2, 1, 1, 5, 1, 0, -1, -6],
    (3, 2): [0, 2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, -1, -2],
    (1, 10): [8, 41, -15, -21, 5, -1, -6, 0, 27, 7, 3, 25, -2, 2, 3, -37],
    (1, 99990): [-423970, -8007, 23555, -2856, 50025, -24511, -23806, 144189],
    (123457, 1000000): [0, -4, -15, 10, 0, -6, -17, -5, -16, -1, 0, 9, -6, -11, 1, -1],
}


@pytest.mark.parametrize(("num", "den"), GOLDEN)
def test_golden_draws_stay_frozen(num, den):
    expected = GOLDEN[num, den]
    assert _kernel.discrete_laplaces(RECORD, LENGTH, 0, len(expected), num, den) == expected
    assert _kernel.discrete_laplaces(RECORD, LENGTH, 3, len(expected) - 3, num, den) == expected[3:]
    assert [_kernel.discrete_laplace(RECORD, LENGTH, i, num, den) for i in range(len(expected))] == expected
    assert [Oracle(RECORD, LENGTH, i).laplace(Fraction(num, den)) for i in range(len(expected))] == expected


def test_a_small_rate_reaches_far_and_keeps_its_mean_size():
    num, den, n = 1, 99_990, 40_000  # a noisy length: 0.1 over 9,999 steps
    draws = np.array(_kernel.discrete_laplaces(RECORD, LENGTH, 0, n, num, den), dtype=float)
    assert abs(draws.mean()) < 6 * math.sqrt(2) * den / math.sqrt(n)
    assert np.abs(draws).mean() == pytest.approx(den, rel=6 / math.sqrt(n))
    spread = stats.kstest(
        np.abs(draws) + np.linspace(0, 1, n), stats.expon(scale=den).cdf
    )  # cells are tiny: continuous
    assert spread.pvalue > 1e-6


class Branch(Exception):  # noqa: N818 - a question, no error
    """The walk needs one more answer; each possible one comes with its probability."""


class Walk(Oracle):
    """The same algorithm, whose answers are prescribed."""

    def __init__(self, answers):
        self.answers = iter(answers)

    def ask(self, possible):
        answer = next(self.answers, None)
        if answer is None:
            raise Branch(possible)
        return answer

    def below(self, bound):
        return self.ask(dict.fromkeys(range(bound), 1 / bound))

    def unreduced(self, p, q):
        return self.ask({True: p / q, False: 1 - p / q})

    def bernoulli(self, p):
        return self.unreduced(p.numerator, p.denominator)


def law_of(algorithm, cut):
    """Mass of every outcome of an algorithm on walks likelier than `cut`, and the mass of all others."""
    law, undecided, walks = {}, 0.0, [((), 1.0)]
    while walks:
        answers, mass = walks.pop()
        if mass < cut:
            undecided += mass
            continue
        try:
            outcome = algorithm(Walk(answers))
        except Branch as branch:
            walks += [((*answers, answer), mass * chance) for answer, chance in branch.args[0].items()]
        else:
            law[outcome] = law.get(outcome, 0.0) + mass
    return law, undecided


@pytest.mark.parametrize(("p", "q"), [(0, 1), (1, 1), (1, 2), (1, 3), (2, 3), (6, 7)])
def test_the_coin_is_exact_by_enumeration(p, q):
    law, undecided = law_of(lambda walk: walk.exp_minus(p, q), 1e-15)
    assert law[True] == pytest.approx(math.exp(-p / q), abs=1e-12)
    assert undecided < 1e-13


@pytest.mark.parametrize("rate", [Fraction(1), Fraction(1, 2), Fraction(3, 2), Fraction(1, 3), Fraction(5, 7)])
def test_the_algorithm_has_the_law_by_enumeration(rate):
    class WithCoins(Walk):  # the coin above, as one step
        def exp_minus(self, p, q):
            return self.ask({True: math.exp(-p / q), False: 1 - math.exp(-p / q)})

    law, undecided = law_of(lambda walk: WithCoins(walk.answers).attempt(rate), 1e-12)
    again = law.pop(None)
    assert undecided < 1e-9
    assert sum(law.values()) + again == pytest.approx(1, abs=1e-9)
    for k in range(-6, 7):
        assert law.get(k, 0) / (1 - again) == pytest.approx(exact(rate, k), abs=1e-8)


@pytest.mark.parametrize(("num", "den"), [(0, 1), (1, 0), (2**48 + 1, 1), (1, 2**48 + 1)])
def test_a_rate_out_of_reach_is_refused(num, den):
    with pytest.raises(PolicyError, match="rate"):
        _kernel.discrete_laplace(RECORD, LENGTH, 0, num, den)
