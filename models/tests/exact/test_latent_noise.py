"""Noise of latents: its size, its draws from the stream's words, its laws and its tails.

Specification: docs/spec/privacy.md#e14, docs/spec/privacy.md#e15, docs/spec/privacy.md#s2,
docs/spec/privacy.md#known-gaussian, docs/spec/privacy.md#known-adept.

`oracle_normal` maps two words to a normal as the specification says (docs/spec/stream.md#normal), in whole numbers and
scipy.
"""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.accounting.conversion import log_delta, smallest_epsilon
from dptext_etl.errors import InputError, PolicyError
from dptext_etl_models.families.latent_noise import (
    LATENT,
    STEPS,
    analytic_gaussian_sigma,
    clipped_steps,
    laplace_rate,
    noisy_latents,
)
from tests.examples import examples
from tests.later import later

special = later("scipy.special")
stats = later("scipy.stats")

RECORD = bytes.fromhex("e353bcaa494e7cd3361f12b7817fe00ddc0ba5328def9e8517aee79144a557b8")

INFLATION = 1 + 2.0**-20


def key_column(rows, first=RECORD):
    return pa.array([first, *(i.to_bytes(32, "little") for i in range(1, rows))][:rows], pa.binary(32))


def in_steps(noisy):
    steps = noisy.astype(np.float64) * STEPS
    assert (steps == np.rint(steps)).all()
    return steps


def oracle_normal(high, low):
    size = (high * 2**64 + (low | 1)) / 2**128  # rounded correctly: a quotient of two integers
    return -math.copysign(float(special.ndtri(size / 2)), 1 if low & 1 else -1)


# The size of the noise


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0, 100.0, 500.0, 2500.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-6, 1e-12])
def test_e15_sigma_is_safe_sharp_and_that_of_dp_accounting(epsilon, delta):
    sigma = analytic_gaussian_sigma(epsilon, delta, 1.0)
    assert log_delta(epsilon, 1 / sigma) <= math.log(delta) < log_delta(epsilon, 1 / (sigma * (1 - 1e-6)))
    accounting = pytest.importorskip("dp_accounting")
    assert sigma == pytest.approx(accounting.get_sigma_gaussian(epsilon, delta), rel=1e-9)


@given(st.floats(0.01, 3000), st.sampled_from([1e-9, 1e-6, 1e-3]), st.floats(1e-6, 1e6))
def test_sigma_grows_with_the_sensitivity_and_nothing_of_it_is_lost(epsilon, delta, sensitivity):
    sigma = analytic_gaussian_sigma(epsilon, delta, sensitivity)
    assert smallest_epsilon(sensitivity / sigma, delta) <= epsilon * (1 + 1e-9)
    assert sigma == pytest.approx(sensitivity * analytic_gaussian_sigma(epsilon, delta, 1.0), rel=1e-11)
    assert float(f"{sigma:.11e}") == sigma


@pytest.mark.parametrize(
    "bad", [(0, 1e-5, 1), (math.inf, 1e-5, 1), (1, 0, 1), (1, 1, 1), (1, 1e-5, 0), (1, 1e-5, math.nan)]
)
def test_sizes_out_of_range_are_refused(bad):
    with pytest.raises(PolicyError, match="epsilon and sensitivity"):
        analytic_gaussian_sigma(*bad)


@given(
    st.floats(1e-3, 1e4),
    st.integers(1, 2**44) | st.fractions(min_value=Fraction(1, 1000), max_value=2**40, max_denominator=10**12),
)
def test_rates_never_promise_more_than_epsilon(epsilon, sensitivity):
    try:
        rate = laplace_rate(epsilon, sensitivity)
    except PolicyError:
        assert not 2**-47 < Fraction(epsilon) / sensitivity < 2**47
        return
    assert max(rate.numerator, rate.denominator) <= 2**48
    exact = Fraction(repr(epsilon)) / sensitivity
    assert rate <= exact
    if exact > 2**-20:
        assert rate >= exact * (1 - Fraction(1, 2**27))


# Draws from words


@pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 700])
def test_every_coordinate_has_the_noise_of_its_own_two_words(n):
    rows, clip, sigma = 3, 0.1, 0.7
    latents = np.random.default_rng(n).normal(scale=0.1, size=(rows, n))
    keys = key_column(rows)
    steps = in_steps(noisy_latents(latents, keys, clip=clip, sigma=sigma))
    for row, key in enumerate(keys.to_pylist()):
        words = _kernel.stream_words(key, LATENT, 0, 0, 2 * n)
        for i in range(n):
            kept = math.trunc(max(-clipped_steps(clip), min(clipped_steps(clip), latents[row, i] * STEPS)))
            exact = kept + oracle_normal(words[2 * i], words[2 * i + 1]) * sigma * INFLATION * STEPS
            assert steps[row, i] == round(exact)


def test_golden_noise_stays_frozen_on_every_machine():
    latents = np.linspace(-0.2, 0.2, 8)[None]
    gaussian = in_steps(noisy_latents(latents, key_column(1), clip=0.1, sigma=0.8957039))
    laplace = in_steps(noisy_latents(latents, key_column(1), clip=0.1, rate=Fraction(25, 10_065_408)))
    assert gaussian[0].tolist() == [141560, -41220, -51778, 35105, 39686, 87233, 68942, -56995]
    assert laplace[0].tolist() == [77652, 800722, 197264, 86601, 500012, 85603, 198854, -105335]


@pytest.mark.parametrize("rate", [Fraction(1), Fraction(1, 5000), Fraction(25, 10_065_408)])
def test_discrete_noise_is_the_discrete_laplace_of_every_position(rate):
    rows, n = 2, 300
    latents = np.random.default_rng(1).normal(scale=0.05, size=(rows, n)).astype(np.float32)
    keys = key_column(rows)
    steps = in_steps(noisy_latents(latents, keys, clip=0.1, rate=rate))
    limit = clipped_steps(0.1)
    kept = np.trunc(np.clip(latents.astype(np.float64) * STEPS, -limit, limit))
    for row, key in enumerate(keys.to_pylist()):
        noise = _kernel.discrete_laplaces(key, LATENT, 0, n, rate.numerator, rate.denominator)
        assert (steps[row] - kept[row]).tolist() == noise


@pytest.mark.parametrize("noise", [{"sigma": 0.5}, {"rate": Fraction(1, 9999)}])
def test_threads_batches_and_width_change_no_bit(noise, monkeypatch):
    latents = np.random.default_rng(2).normal(size=(90, 1500)).astype(np.float32)
    keys = key_column(90)
    monkeypatch.setenv("DPTEXT_THREADS", "2")
    whole = noisy_latents(latents, keys, clip=0.5, norm="l2", **noise)
    monkeypatch.setenv("DPTEXT_THREADS", "1")
    np.testing.assert_array_equal(whole, noisy_latents(latents, keys, clip=0.5, norm="l2", **noise))
    np.testing.assert_array_equal(whole[7:9], noisy_latents(latents[7:9], keys[7:9], clip=0.5, norm="l2", **noise))
    np.testing.assert_array_equal(whole, noisy_latents(latents.astype(np.float64), keys, clip=0.5, norm="l2", **noise))


# Laws


def test_s2_a_million_draws_are_normal_of_the_declared_size():
    sigma = 0.9
    zeros = np.zeros((64, 2**14), np.float32)
    drawn = noisy_latents(zeros, key_column(64), clip=0.1, sigma=sigma).astype(np.float64).ravel()
    assert len(drawn) >= 10**6
    assert stats.kstest(drawn / (sigma * INFLATION), "norm").pvalue > 1e-6
    assert drawn.std() == pytest.approx(sigma, rel=0.01)
    assert abs(drawn.mean()) < 6 * sigma / math.sqrt(len(drawn))
    for far in (2.0, 3.0, 4.0):
        expected = len(drawn) * float(stats.norm.sf(far))
        for side in (drawn, -drawn):
            assert abs((side > far * sigma).sum() - expected) < 6 * math.sqrt(expected) + 2


# Tails (docs/spec/privacy.md#grid-gaussian)


# Clip and grid (docs/spec/privacy.md#grid-rounding, docs/spec/privacy.md#e14)

NO_NOISE = Fraction(2**48, 1)  # exp(-2**48) never happens: only clip and grid are left

ROWS = st.lists(
    st.floats(-3, 3) | st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.1, -0.1, 1 / 3]),
    min_size=1,
    max_size=12,
)


def kept(row, clip, norm):
    return in_steps(noisy_latents(np.array([row], np.float64), key_column(1), clip=clip, norm=norm, rate=NO_NOISE))[0]


@given(ROWS, st.sampled_from([0.1, 1.0, 5.0, 1 / 7]), st.sampled_from(["value", "l1", "l2"]))
@examples(150)
def test_e14_clipped_rows_keep_their_bound_exactly(row, clip, norm):
    steps = [int(step) for step in kept(row, clip, norm)]
    limit = clipped_steps(clip)
    assert limit <= Fraction(clip) * STEPS
    if norm == "value":
        assert max(map(abs, steps)) <= limit
    elif norm == "l1":
        assert sum(map(abs, steps)) <= limit
    else:
        assert sum(step * step for step in steps) <= limit**2
    for step, number in zip(steps, row, strict=True):
        assert step == 0 or (math.isfinite(number) and abs(Fraction(step, STEPS)) <= abs(Fraction(number)))
        assert step * (number if math.isfinite(number) else 0.0) >= 0


def test_rounding_toward_zero_keeps_a_length_and_floor_does_not():
    """The planted rounding down enlarges nearly every clipped row with negative numbers."""
    clip, limit = 1.0, clipped_steps(1.0)
    rows = -np.abs(np.random.default_rng(3).normal(size=(200, 50)))
    clipped = rows * np.minimum(1.0, clip / np.linalg.norm(rows, axis=1, keepdims=True)) * STEPS
    ours = in_steps(noisy_latents(rows, key_column(200), clip=clip, norm="l2", rate=NO_NOISE)).astype(np.int64)
    assert ((ours**2).sum(axis=1) <= limit**2).all()
    assert ((ours**2).sum(axis=1) > (limit * 0.999) ** 2).all()
    planted = np.floor(clipped).astype(np.int64)
    assert ((planted**2).sum(axis=1) > limit**2).mean() > 0.9


def test_e14_sensitivities_are_attained_and_never_exceeded():
    n, clip = 1024, 5.0
    signs = np.where(np.random.default_rng(4).random(n) < 0.5, -1.0, 1.0)
    value = kept(signs * 9, clip, "value") - kept(-signs * 9, clip, "value")
    assert np.abs(value).sum() == 2 * n * clipped_steps(clip)
    assert math.sqrt((value**2).sum()) == 2 * clipped_steps(clip) * math.sqrt(n)
    length = kept(signs, clip, "l2") - kept(-signs, clip, "l2")
    assert np.abs(length).sum() == 2 * clipped_steps(clip) * math.sqrt(n)  # n is a square: on the grid
    assert math.sqrt((length**2).sum()) == 2 * clipped_steps(clip)
    sizes = kept(np.eye(n)[0] * 9, clip, "l1") - kept(np.eye(n)[1] * 9, clip, "l1")
    assert np.abs(sizes).sum() == 2 * clipped_steps(clip)


@pytest.mark.parametrize(("changes", "message"), [
    ({}, "one of them"), ({"sigma": 1.0, "rate": Fraction(1)}, "one of them"), ({"sigma": 0.0}, "sigma"),
    ({"sigma": math.nan}, "sigma"), ({"rate": Fraction(2**49)}, "2\\^48"), ({"sigma": 1.0, "clip": 1e-6}, "clip"),
    ({"sigma": 1.0, "clip": math.nan}, "clip"), ({"sigma": 1.0, "norm": "l3"}, "norm|clip bounds"),
])  # fmt: skip
def test_noise_that_cannot_be_is_refused(changes, message):
    with pytest.raises(PolicyError, match=message):
        noisy_latents(np.zeros((1, 3)), key_column(1), **{"clip": 0.1, **changes})


def test_rows_need_keys_of_their_own():
    with pytest.raises(InputError, match="same noise"):
        noisy_latents(np.zeros((2, 3)), pa.array([RECORD] * 2, pa.binary(32)), clip=0.1, sigma=1.0)
    with pytest.raises(InputError, match="as many numbers"):
        noisy_latents(np.zeros((2, 3)), key_column(3), clip=0.1, sigma=1.0)
    with pytest.raises(PolicyError, match="clip"):
        clipped_steps(1e-6)
