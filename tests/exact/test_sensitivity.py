"""The loss of S and T over all neighbors, by the code that sums in a run (docs/spec/synthetic.md#sensitivity)."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from dptext_etl.errors import PolicyError
from dptext_etl.families.aggregate.contributions import Partial, add, joined
from dptext_etl.families.aggregate.statistic import Projection, Statistic, describe, epsilon_of, projection
from dptext_etl.guarantee import Guarantee, GuaranteeClass

TABLES = Guarantee(GuaranteeClass.NONE, frozenset(), "tables that differ in one record", "table")


def statistic_of(shape, grid):
    """A statistic with two blocks that sums as a run does, without a corpus."""
    made = object.__new__(Statistic)
    for name, value in {"projection": shape, "grid": grid, "labels": ("a", "other")}.items():
        object.__setattr__(made, name, value)
    return made


def change(statistic, point, block):
    """The change of S and T by a record."""
    total = Partial.zero(statistic)
    add(statistic, total, point[None], np.array([block]))
    return joined(total.sums, total.moments)


def changes(statistic, points):
    """The changes by any record of these points, in each block, and by a null text."""
    nothing = np.zeros(math.prod(statistic.shape) + statistic.moments, np.int64)
    return np.array([*(change(statistic, point, block) for point in points for block in (0, 1)), nothing])


def losses(statistic, before, after):
    """The most that any row before loses to each row after: D times 2 G^4, as test_aggregate.py weighs S and T."""
    width = statistic.projection.width
    weights = [2 * statistic.grid**2] * math.prod(statistic.shape) + [1] * width + [2] * (width * (width - 1) // 2)
    return np.array([int((((before - row) ** 2) * weights).sum(1).max()) for row in after])


def ball(width, grid):
    """All integer points of at most the length G."""
    axes = np.meshgrid(*[np.arange(-grid, grid + 1)] * width)
    points = np.stack(axes, -1).reshape(-1, width)
    return points[(points**2).sum(1) <= grid**2]


def test_a_changed_record_loses_four_at_most_in_three_dimensions():
    width, grid = 3, 4
    statistic = statistic_of(SimpleNamespace(width=width), grid)
    every = changes(statistic, ball(width, grid))
    assert losses(statistic, every, every).max() == 4 * 2 * grid**4
    added = losses(statistic, every, every[-1:]).max()
    assert 4 * added == 7 * 2 * grid**4, "1 + 1/4 + 1/2: a count grows by 2 of 4 steps"


def test_two_records_of_a_person_lose_four_times_as_much_at_most():
    statistic = statistic_of(SimpleNamespace(width=2), 4)
    single = changes(statistic, ball(2, 4))
    both = np.unique([a + b for a, b in itertools.combinations_with_replacement(single, 2)], axis=0)
    assert losses(statistic, both, both).max() == 4 * 4 * 2 * 4**4


@pytest.mark.parametrize("balanced", [False, True])
def test_all_vectors_of_bytes_stay_in_the_ball_after_clip_and_grid(balanced):
    draw = np.random.default_rng(67)
    base = draw.normal(size=(300, 2)) + draw.normal(size=2)
    corpus = np.clip(np.rint(base / np.linalg.norm(base, axis=1, keepdims=True) * 90), -127, 127).astype(np.int8)
    found = projection(corpus, 2, balanced=balanced)
    axes = np.meshgrid(np.arange(-128, 128), np.arange(-128, 128))
    vectors = np.stack(axes, -1).reshape(-1, 2).astype(np.int8)
    for clip in (8, found.clip):
        shape = Projection(found.directions, found.center, clip, found.longest)
        statistic = statistic_of(shape, 64)
        points = np.unique(statistic.contributions(vectors), axis=0)
        assert ((points**2).sum(1) <= 64**2).all()
        if clip == 8:
            every = changes(statistic, points)
            assert losses(statistic, every, every).max() <= 4 * 2 * 64**4


def test_balanced_directions_of_vectors_with_a_few_large_directions_fit():
    """Variances fall as 1 over their rank, as in vectors of sentence encoders, so balanced coordinates are long."""
    draw, k = np.random.default_rng(5), 384
    rows = draw.normal(size=(800, k)) / np.sqrt(np.arange(1, k + 1))
    corpus = np.rint(rows / np.linalg.norm(rows, axis=1, keepdims=True) * 127).astype(np.int8)
    found = projection(corpus, 192, balanced=True)
    contributions = found.contributions(corpus)
    assert int((contributions**2).sum(axis=1).max()) <= found.clip**2
    coordinates = found.coordinates(corpus)
    far = int((coordinates**2).sum(axis=1).argmax())
    squares, clip = sum(int(c) ** 2 for c in coordinates[far]), found.clip
    wanted = [math.isqrt(int(c) ** 2 * clip**2 // squares) * int(np.sign(c)) for c in coordinates[far]]
    assert contributions[far].tolist() == wanted


def test_sums_of_a_million_records_are_exact_in_batches_of_any_size():
    statistic, records = statistic_of(SimpleNamespace(width=3), 1024), 2**20
    edge = np.array([[1024, 0, 0], [-1024, 0, 0], [591, 591, 591], [0, 0, 0]])
    points, blocks = edge[np.arange(records) % 4], (np.arange(records) % 3 == 0).astype(int)
    whole, parts = Partial.zero(statistic), Partial.zero(statistic)
    add(statistic, whole, points, blocks)
    for at in range(0, records, 8192):
        add(statistic, parts, points[at : at + 8192], blocks[at : at + 8192])
    quarter = records // 4
    assert whole.moments.tolist() == [
        2 * quarter * 1024**2 + quarter * 591**2,
        *[quarter * 591**2] * 5,
    ]
    assert (joined(whole.sums, whole.moments) == joined(parts.sums, parts.moments)).all()
    assert whole.sums[:, -1].sum() == records * 704


@pytest.mark.parametrize(("epsilon", "delta"), [*itertools.product((0.05, 1.0, 20.0), (1e-6, 1e-9))])
def test_charges_of_a_person_with_fewer_records_than_count_cover_the_loss(epsilon, delta):
    for most in (1, 3):
        statistic = describe("example", epsilon=epsilon, delta=delta, per_subject=most)
        charge = statistic.charge(TABLES)
        for records in range(1, most + 1):
            loss = epsilon_of(statistic.grid, statistic.variance, delta, records)
            assert records * charge.eps_approx / 1e6 >= loss
            assert records * int(charge.rho) >= records**2 * statistic.rho * 10**6


@pytest.mark.parametrize(("epsilon", "most"), [(1e6, 300), (100.0, 10**6), (1000.0, 50_000)])
def test_charges_of_very_many_records_are_finite(epsilon, most):
    """45 k / V is far beyond the exponents of floats."""
    statistic = describe("example", epsilon=epsilon, delta=1e-9, per_subject=most)
    charge = statistic.charge(TABLES)
    assert statistic.rho * most <= int(charge.rho) / 10**6 <= charge.eps_approx / 1e6 < math.inf


@pytest.mark.parametrize("delta", [1e-27, 1e-28, 5e-324])
def test_a_delta_below_the_chance_of_far_noise_is_refused(delta):
    with pytest.raises(PolicyError, match="64 bits"):
        describe("example", epsilon=1.0, delta=delta)
