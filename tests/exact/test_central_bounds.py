"""The pairs that runs charge for central releases, enumerated: persons and several releases included."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from dptext_etl.accounting.shuffling import Shuffled, ShuffledLabels, central_epsilon
from dptext_etl.families.aggregate.statistic import GRIDS, LEAST_VARIANCE, MOST_WIDTH, describe, rho_of, variance_of
from dptext_etl.guarantee import float_above
from dptext_etl.policy.synthetic import CLAIM
from tests.quick import quick

from .choice_toys import mechanism, toy

Law = dict[tuple[int, ...], Fraction]
UNKNOWN = "nothing known"


# --- shuffled releases --------------------------------------------------------------------------------------------


@pytest.fixture
def large_deltas(monkeypatch):
    """Allow deltas at which tables of three records have a central epsilon below the epsilon of a draw."""
    for module in ("guarantee", "accounting.shuffling"):
        monkeypatch.setattr(f"dptext_etl.{module}.LARGEST_DELTA", 1.0)


def laws_of(drawn) -> list[list[Fraction]]:
    """Return the distinct laws of a draw of the releasing code, over texts of the corpus and one that says nothing."""
    found = [drawn.transition(text)[1] for text in (*drawn.opened.texts, UNKNOWN)]
    return [list(law) for law in dict.fromkeys(map(tuple, found))]


def multiset(laws: Sequence[Sequence[Fraction]]) -> Law:
    """Return the law of the sorted draws of records."""
    out: Law = {(): Fraction(1)}
    for law in laws:
        longer: Law = {}
        for texts, mass in out.items():
            for text, chance in enumerate(law):
                key = tuple(sorted((*texts, text)))
                longer[key] = longer.get(key, Fraction(0)) + mass * chance
        out = longer
    return out


def both(one: Law, other: Law) -> Law:
    return {(*a, -1, *b): p * q for a, p in one.items() for b, q in other.items()}


def excess(p: Law, q: Law, epsilon: Fraction) -> Fraction:
    """Return the hockey-stick divergence; e^epsilon is rounded down, so the divergence is rounded up."""
    odds = Fraction(math.exp(epsilon) * (1 - 1e-12))
    return sum((max(Fraction(0), mass - odds * q[key]) for key, mass in p.items()), Fraction(0))


@pytest.mark.usefixtures("large_deltas")
@pytest.mark.parametrize(("m", "hit"), quick([(4, 0.7), (4, 1e-9), (4, 1 - 1e-12), (5, 0.6)], first=2))
@pytest.mark.parametrize("delta", [0.01, 0.1])
def test_the_charged_pair_of_a_record_holds(tmp_path, m, hit, delta):
    shuffled = Shuffled.model_construct(rows=3, delta=delta, per_subject=1, form="rows")
    drawn = mechanism(toy(tmp_path, m), 1.5, hit=hit, shuffled=shuffled)
    spend, laws = drawn.spend(1), laws_of(drawn)
    epsilon, charged = Fraction(int(spend.eps_approx), 10**6), Fraction(int(spend.delta), 10**15)
    assert epsilon < Fraction(3, 2)
    found = Fraction(0)
    for others in itertools.combinations_with_replacement(laws, 2):
        views = [multiset([law, *others]) for law in laws]
        found = max(found, *(excess(a, b, epsilon) for a, b in itertools.permutations(views, 2)))
    assert found <= charged


@pytest.mark.usefixtures("large_deltas")
@pytest.mark.parametrize("hit", [1e-9, 0.7])
def test_the_charges_of_a_persons_records_cover_the_person(tmp_path, hit):
    """Both records of a person change; the charges of both are added."""
    shuffled = Shuffled.model_construct(rows=3, delta=0.05, per_subject=2, form="counts")
    drawn = mechanism(toy(tmp_path, 4), 1.5, hit=hit, shuffled=shuffled)
    spend, laws = drawn.spend(1), laws_of(drawn)
    epsilon, charged = 2 * Fraction(int(spend.eps_approx), 10**6), 2 * Fraction(int(spend.delta), 10**15)
    assert epsilon < 3
    pairs = list(itertools.combinations_with_replacement(laws, 2))
    found = Fraction(0)
    for other in laws:
        views = [multiset([*pair, other]) for pair in pairs]
        found = max(found, *(excess(a, b, epsilon) for a, b in itertools.permutations(views, 2)))
    assert 0 < found <= charged


def in_two_labels(hit: float, most: int, folder) -> tuple[Fraction, Fraction, list[Law], Fraction]:
    """Enumerate releases of three texts under each of two labels, where a person's texts under both change.

    Return a person's charged epsilon and delta, the laws of the table by the person's texts, and the epsilon that six
    texts without labels would cost.
    """
    labels = ShuffledLabels(column="topic", values=("a", "b"))
    shuffled = Shuffled.model_construct(rows=3, delta=0.05, per_subject=most, labels=labels)
    drawn = mechanism(toy(folder, 4), 1.5, hit=hit, shuffled=shuffled)
    spend, laws = drawn.spend(1), laws_of(drawn)
    held = [multiset([law, laws[0], laws[-1]]) for law in laws]
    own = itertools.product(held, held) if most == 2 else ((one, held[0]) for one in held)
    views = [both(a, b) for a, b in own]
    merged = most * central_epsilon(6, drawn.law, 0.05)
    epsilon, delta = Fraction(int(spend.eps_approx), 10**6), Fraction(int(spend.delta), 10**15)
    return most * epsilon, most * delta, views, merged


@pytest.mark.usefixtures("large_deltas")
@pytest.mark.parametrize(("hit", "most"), quick([(1e-9, 1), (0.7, 2), (0.7, 1)]))
def test_the_charges_of_a_person_cover_texts_under_several_labels(tmp_path, hit, most):
    """A reader sees the multiset of each label, whose texts hide each other only."""
    epsilon, charged, views, merged = in_two_labels(hit, most, tmp_path)
    assert epsilon < most * Fraction(3, 2)
    pairs = list(itertools.permutations(views, 2))
    assert 0 < max(excess(a, b, epsilon) for a, b in pairs) <= charged
    if most == 1:
        assert max(excess(a, b, merged) for a, b in pairs) > charged, "texts of another label hide nothing"


@pytest.mark.parametrize("second", ["shuffled", "linked"])
def test_releases_of_a_record_add_up(tmp_path, second):
    """Two batches that hold a record, or a batch and the draw of a row: epsilons and deltas are added."""
    delta = 0.02
    drawn = mechanism(toy(tmp_path, 4), 1.5, hit=1e-9)
    epsilon, laws = central_epsilon(3, drawn.law, delta), laws_of(drawn)
    local = Fraction(math.ceil(float(drawn.weights.loss) * 10**6), 10**6)
    others = [laws[0], laws[-1]]
    views = [multiset([law, *others]) for law in laws]
    more = views if second == "shuffled" else [multiset([law]) for law in laws]
    joint = [both(a, b) for a, b in zip(views, more, strict=True)]
    total, deltas = (2 * epsilon, 2 * delta) if second == "shuffled" else (epsilon + local, delta)
    found = max(excess(a, b, total) for a, b in itertools.permutations(joint, 2))
    assert 0 < found <= deltas


# --- synthetic tables ---------------------------------------------------------------------------------------------


def losses(shift: Sequence[int], variance: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the privacy losses of discrete Gaussian noise against the same noise moved by a shift, and their chances.

    The loss follows only from sum(shift * noise), whose law is a convolution on multiples of a whole number.
    """
    law, first, unit = np.ones(1), 0, math.gcd(*shift)
    reach = math.ceil(9 * math.sqrt(variance))
    x = np.arange(-reach, reach + 1)
    gauss = np.exp(-(x.astype(float) ** 2) / (2 * variance))
    gauss /= gauss.sum()
    for by in shift:
        step = by // unit
        spread = np.zeros(2 * reach * step + 1)
        spread[::step] = gauss
        law, first = (spread if len(law) == 1 else np.convolve(law, spread)), first - reach * step
    moved = unit * np.arange(first, first + len(law), dtype=float)
    return (2 * moved + sum(by * by for by in shift)) / (2 * variance), law


def divergence(shift: Sequence[int], variance: int, epsilon: float) -> float:
    loss, law = losses(shift, variance)
    return float(law @ np.maximum(0.0, -np.expm1(epsilon - loss)))


@pytest.mark.parametrize("shift", [(20,), (12, 16), (10, 10, 10, 10), (2, 4, 4, 8, 10, 14, 2), (19,)], ids=str)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_variance_holds_for_every_direction_of_a_change(shift, epsilon):
    """Sums of sensitivity 20 move by whole numbers of at most this length; noise has the exact law of the kernel."""
    assert sum(by * by for by in shift) <= 400
    variance = variance_of(10, epsilon, 1e-6)
    found = divergence(shift, variance, epsilon)
    assert found <= 1e-6
    if sum(by * by for by in shift) == 400:
        slack = (200 + 400 / variance) / variance
        assert 0.9e-6 < divergence(shift, variance, epsilon - slack) <= 1e-6, "little but the stated slack is lost"
        assert divergence(shift, variance // 2, epsilon) > 1e-6, "half of the variance is not enough"


@pytest.mark.parametrize("variance", [LEAST_VARIANCE, 100, 3000])
def test_discrete_noise_has_nearly_the_law_of_rounded_gaussian_noise(variance):
    """The three steps of docs/spec/synthetic.md#conversion, for every number up to 12 standard deviations."""
    k = np.arange(-math.ceil(12 * math.sqrt(variance)), math.ceil(12 * math.sqrt(variance)) + 1, dtype=float)
    nodes, sizes = np.polynomial.legendre.leggauss(40)  # of integrals from -1/2 to 1/2
    within = np.cosh(k[:, None] * nodes / 2 / variance) * np.exp(-(nodes**2) / 8 / variance) @ (sizes / 2)
    gauss = np.exp(-(k**2) / (2 * variance))
    rounded = np.log(within * math.sqrt(gauss.sum() ** 2 / (2 * math.pi * variance)))  # over the discrete law
    assert -1 / (24 * variance) - 1e-13 <= rounded.min() < 0
    assert (rounded <= k**2 / (24 * variance**2) + 1e-13).all()
    assert (np.exp(k**2 / (4 * variance)) * gauss).sum() / gauss.sum() <= math.sqrt(2)


@pytest.mark.parametrize("records", [1, 2, 10, 1000])
@pytest.mark.parametrize("grid", GRIDS)
def test_the_stated_slack_covers_statistics_of_every_shape(grid, records):
    """200 k + mu^2 and 45 k over the variance hold for the widest statistic, in which every number may change."""
    sums, moments = 2 * records * (MOST_WIDTH + 1), MOST_WIDTH * (MOST_WIDTH + 1) // 2
    rounding = (sums + moments / grid**2) / 24
    far = (2 * math.log(2) * sums + 256 + (2 * math.log(2) * moments + 256) / grid**2) / 12  # and mu^2 / 12
    assert rounding <= 45 * records
    assert rounding + far + 1 <= 200 * records


@pytest.mark.parametrize("shift", [(20,), (10, 10, 10, 10)], ids=str)
def test_rho_bounds_the_divergence_of_every_order(shift):
    variance = variance_of(10, 1.0, 1e-6)
    loss, law = losses(shift, variance)
    for order in (1.001, 1.5, 2.0, 8.0, 40.0):
        found = math.log(float(law @ np.exp((order - 1) * loss))) / (order - 1)
        assert found <= order * float_above(rho_of(20, variance)) * (1 + 1e-9)


def renyi(shift: int, variance: int, order: float) -> float:
    """Return the divergence of an order of discrete Gaussian noise against the same noise moved by a shift."""
    z = np.arange(-math.ceil(12 * math.sqrt(variance)), math.ceil(12 * math.sqrt(variance)) + 1, dtype=float)
    logs = -(z**2) / (2 * variance)
    tilted = order * logs - (order - 1) * -((z + shift) ** 2) / (2 * variance)
    total = np.logaddexp.reduce(tilted) - np.logaddexp.reduce(logs)
    return float(total) / (order - 1)


@pytest.mark.parametrize(
    ("x", "y", "same"), [(16, -16, True), (16, -12, True), (16, 3, False), (-16, 0, False), (16, None, True)], ids=str
)
def test_rho_holds_for_sums_with_a_second_moment(x, y, same):
    """One coordinate in 16 steps: a record moves its sum, its square, and its count, under three sizes of noise."""
    grid, variance = 16, variance_of(16, 1.0, 1e-6)
    sums = [x - (y or 0)] if same else [x, y]
    counts = [] if same and y is not None else [11 * grid // 16] * (1 if same else 2)
    moved = [(shift, variance) for shift in (*sums, *counts)]
    moved.append((x * x - (y or 0) ** 2, 2 * grid**2 * variance))
    for order in (1.001, 2.0, 8.0, 40.0):
        found = sum(renyi(shift, size, order) for shift, size in moved)
        assert found <= order * float_above(rho_of(32, variance)) * (1 + 1e-9)


@pytest.mark.parametrize("most", quick([2, 1, 3]))
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_charges_of_a_statistic_cover_the_person(most, epsilon):
    """All records of a person change, each as far as one can; `k` charges of a real statistic are added."""
    statistic = describe("example", epsilon=epsilon, delta=1e-6, labels=("a", "b"), per_subject=most)
    spend = statistic.charge(CLAIM)
    charged, delta = most * spend.eps_approx / 1e6, most * spend.delta / 1e15
    assert divergence((most * statistic.sensitivity,), statistic.variance, charged) <= delta
    assert divergence((statistic.sensitivity,), statistic.variance, epsilon) <= 1e-6
