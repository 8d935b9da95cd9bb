"""The noise of a synthetic table: its key and draws, its variance, its charge, and the configuration."""

import hashlib
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl import _kernel
from dptext_etl.accounting.conversion import zcdp_epsilon
from dptext_etl.errors import PolicyError
from dptext_etl.families.aggregate import describe, noisy
from dptext_etl.families.aggregate.contributions import joined, published_facts, read_statistic
from dptext_etl.families.aggregate.statistic import epsilon_of, rho_of, variance_of
from dptext_etl.guarantee import Guarantee, GuaranteeClass, float_above

from .column_sums import LABELS, key, summed, toy_statistic
from .stream_oracle import oracle_canon


@pytest.fixture(scope="module")
def statistic():
    return toy_statistic()


def test_noise_is_drawn_under_a_key_of_the_release_all_rows_and_their_sums(statistic):
    """The digest of the rows is the specification's (`test_aggregate`), the draws are (`test_discrete_gaussian`)."""
    found = summed(statistic, [("r1", "the room was cold", "billing"), ("r2", None, None)])
    numbers, width, squared = joined(found.sums, found.moments), statistic.projection.width, statistic.grid**2
    sizes = [1] * found.sums.size + [2 * squared] * width + [squared] * (width * (width - 1) // 2)
    for release in ("2025-01", "2025-02"):
        made = _kernel.noise_key(key(statistic, release), found.digest, pa.array(numbers))
        drawn = [
            _kernel.discrete_gaussians(made, 9, place, 1, size * statistic.variance, 1)[0]
            for place, size in enumerate(sizes)
        ]
        released = noisy(statistic, key(statistic, release), found)
        assert (joined(released.sums, released.moments) - numbers).tolist() == drawn


def test_noise_is_independent_where_only_second_moments_differ(statistic):
    """Sums that agree must not get equal noise, or its difference would show how the second moments differ."""
    found = summed(statistic, [("r1", "the room was cold", "billing")])
    other = replace(found, moments=found.moments + (np.arange(len(found.moments)) == 7))
    noise = [noisy(statistic, key(statistic), partial).sums - partial.sums for partial in (found, other)]
    assert (noise[0] != noise[1]).mean() > 0.9
    released = noisy(statistic, key(statistic), found)
    moved = replace(released, moments=released.moments + (np.arange(len(found.moments)) == 7))
    assert released.digest != moved.digest, "rows of the table are drawn from noisy second moments, too"


def test_topics_hold_the_true_count_as_often_as_they_say(statistic):
    rows = [(f"r{i}", "a", "billing") for i in range(30)]
    hits = [
        topic.low <= true <= topic.high
        for release in range(150)
        for topic, true in zip(
            noisy(statistic, key(statistic, str(release)), summed(statistic, rows, str(release))).topics(0.9),
            (30, 0, 0),
            strict=True,
        )
        if true
    ]
    assert 0.8 < np.mean(hits) < 0.98


CLAIM = Guarantee(GuaranteeClass.NONE, frozenset(), "tables that differ in one record", "table")


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-9])
def test_the_variance_is_the_least_that_holds(epsilon, delta):
    variance = variance_of(1024, epsilon, delta)
    assert epsilon_of(1024, variance, delta) <= epsilon < epsilon_of(1024, variance - 1, delta)
    zcdp = zcdp_epsilon(float_above(rho_of(2048, variance)), delta)
    assert epsilon < zcdp, "the conversion of rho alone would need more noise"


def test_a_statistic_whose_variance_was_computed_elsewhere_is_read(statistic):
    """Last bits of another machine's logarithms may move the least variance by one."""
    other = replace(statistic, variance=statistic.variance + 1)
    released = noisy(other, key(other), summed(other, [("r1", "the room was cold", "billing")]))
    manifest = {"columns": [{"statistic": published_facts(released), "cfg": other.cfg()}]}
    found = read_statistic(manifest, statistic.corpus)
    assert (found.statistic.variance, found.digest) == (other.variance, released.digest)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_charges_of_a_persons_records_add_up_to_the_persons_loss(k):
    statistic = describe("example", epsilon=1.0, delta=1e-6, per_subject=k)
    spend = statistic.charge(CLAIM)
    person = k * k * statistic.rho
    assert Fraction(int(spend.rho), 10**6) * k >= person
    assert k * spend.eps_approx / 1e6 >= epsilon_of(statistic.grid, statistic.variance, 1e-6, k)
    assert spend.rho <= float(k * statistic.rho) * 1e6 + 1
    assert {spend.eps_pure, spend.eps_tight, spend.mu2, spend.eps_metric} == {math.inf}
    if k == 1:
        assert spend.eps_approx <= 10**6


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": 1e-5},
        {"epsilon": 0.001},
        {"epsilon": math.inf},
        {"delta": 0.0},
        {"delta": 1e-5},
        {"labels": ("a", "a")},
        {"labels": ("a", "")},
        {"per_subject": 0},
        {"width": 0},
        {"n_max": 0},
    ],
)
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(PolicyError):
        describe("example", **{"epsilon": 1.0, "delta": 1e-6, **wrong})


def test_the_configuration_names_everything_that_sums_and_noise_depend_on(statistic):
    names = {"epsilon": 2.0, "delta": 1e-7, "labels": ("billing",), "per_subject": 2, "width": 5, "n_max": 9}
    base = {"epsilon": 1.0, "delta": 1e-6, "labels": LABELS}
    hashes = [describe("example", **{**base, name: value}).cfg() for name, value in names.items()]
    assert len({statistic.cfg(), *hashes}) == len(names) + 1
    written = hashlib.sha256(b"dptext/cfg/v1\0" + oracle_canon(statistic.configuration())).hexdigest()
    assert statistic.cfg() == written


def test_neither_sums_nor_keys_are_printed(statistic):
    found = summed(statistic, [("r1", "the room was cold", "billing")])
    assert "sums" not in repr(found)
    assert "digest" not in repr(found)
