"""Noise of latents: its size, its draws from the stream's words, its laws and its tails.

Specification: docs/spec/privacy.md#e14, docs/spec/privacy.md#e15, docs/spec/privacy.md#s2,
docs/spec/privacy.md#known-gaussian, docs/spec/privacy.md#known-adept.

`oracle_normal` maps two words to a normal as the specification says (docs/spec/stream.md#normal), in whole numbers and
scipy.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dptext_etl import _kernel
from dptext_etl.accounting.conversion import analytic_gaussian_sigma, log_delta, smallest_epsilon
from dptext_etl.errors import PolicyError
from dptext_etl_models.families.latent_noise import LATENT, STEPS, clipped_steps, laplace_rate, noisy_latents
from models.tests.exact.latent_noise import INFLATION, in_steps, key_column, oracle_normal

# The size of the noise


@pytest.mark.parametrize(
    ("epsilon", "sensitivity", "sigma"),
    [
        (500, 0.2 * math.sqrt(20 * 768), 0.8957039),
        (500, 0.2 * math.sqrt(20 * 182), 0.4360332),
        (500, 125.413875, 4.531943),
        (250, 10.0, 0.539422),
        (500, 10.0, 0.361359),
    ],
)
def test_known_answers_at_delta_1e_5(epsilon, sensitivity, sigma):
    digits = len(str(sigma).split(".")[1])
    assert analytic_gaussian_sigma(epsilon, 1e-5, sensitivity) == pytest.approx(sigma, abs=6 * 10.0 ** -(digits + 1))


def test_laplace_scales_of_the_specification():
    """B = 2 C n / epsilon, in units; C taken down to the grid makes it smaller, never larger."""
    for n, clip, epsilon, b in [(15_360, "0.1", 500, 6.144), (3640, "0.1", 500, 1.456)]:
        rate = laplace_rate(epsilon, 2 * n * Fraction(clip) * STEPS)
        assert float(1 / rate) / STEPS == pytest.approx(b, abs=1e-12)
        on_grid = laplace_rate(epsilon, 2 * n * clipped_steps(float(clip)))
        assert b * (1 - 2e-4) < float(1 / on_grid) / STEPS < b
    assert float(1 / laplace_rate(250, 320 * STEPS)) / STEPS == pytest.approx(1.28, abs=1e-12)
    assert float(1 / laplace_rate(500, 320 * STEPS)) / STEPS == pytest.approx(0.64, abs=1e-12)


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


def test_the_golden_words_are_those_of_coordinate_seven():
    words = int("476c99379e215d40", 16), int("1dbc576963fb618f", 16)
    assert oracle_normal(*words) < 0
    steps = in_steps(noisy_latents(np.zeros((1, 8)), key_column(1), clip=1.0, sigma=1.0))
    assert steps[0, 7] == round(oracle_normal(*words) * INFLATION * STEPS)


def test_golden_noise_stays_frozen_on_every_machine():
    latents = np.linspace(-0.2, 0.2, 8)[None]
    gaussian = in_steps(noisy_latents(latents, key_column(1), clip=0.1, sigma=0.8957039))
    laplace = in_steps(noisy_latents(latents, key_column(1), clip=0.1, rate=Fraction(25, 10_065_408)))
    assert gaussian[0].tolist() == GAUSSIAN
    assert laplace[0].tolist() == LAPLACE


GAUSSIAN = [141560, -41220, -51778, 35105, 39686, 87233, 68942, -56995]

LAPLACE = [77652, 800722, 197264, 86601, 500012, 85603, 198854, -105335]


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


def gaussian_noise(rows, n, sigma=0.9):
    return noisy_latents(np.zeros((rows, n), np.float32), key_column(rows), clip=0.1, sigma=sigma)


def test_s2_a_million_draws_are_normal_of_the_declared_size():
    sigma = 0.9
    drawn = gaussian_noise(64, 2**14, sigma).astype(np.float64).ravel()
    assert len(drawn) >= 10**6
    assert stats.kstest(drawn / (sigma * INFLATION), "norm").pvalue > 1e-6
    assert drawn.std() == pytest.approx(sigma, rel=0.01)
    assert abs(drawn.mean()) < 6 * sigma / math.sqrt(len(drawn))
    for far in (2.0, 3.0, 4.0):
        expected = len(drawn) * float(stats.norm.sf(far))
        for side in (drawn, -drawn):
            assert abs((side > far * sigma).sum() - expected) < 6 * math.sqrt(expected) + 2


def test_rows_and_neighbors_are_independent_and_padding_is_noised():
    """Nothing is broadcast: rows, positions and their sizes are uncorrelated; equal latents get unequal noise."""
    n = 15_360
    drawn = gaussian_noise(6, n).astype(np.float64)
    together = np.abs(np.corrcoef(drawn) - np.eye(6))
    assert together.max() < 5 / math.sqrt(n)
    assert np.abs(np.corrcoef(np.abs(drawn)) - np.eye(6)).max() < 5 / math.sqrt(n)
    tokens = drawn[0].reshape(20, 768)
    assert np.abs(np.corrcoef(tokens) - np.eye(20)).max() < 5 / math.sqrt(768)
    assert abs(np.corrcoef(drawn[0, :-1], drawn[0, 1:])[0, 1]) < 5 / math.sqrt(n)
    assert len({row.tobytes() for row in tokens}) == 20
    latents = np.zeros((1, 20, 768))
    latents[0, :3] = 0.05  # three real tokens, seventeen of padding
    padded = noisy_latents(latents.reshape(1, -1), key_column(1), clip=0.1, sigma=0.9).reshape(20, 768)
    assert (padded[3:].std(axis=1) > 0.8).all()


@pytest.mark.parametrize("rate", [Fraction(1, 3), Fraction(2, 3), Fraction(3)])
def test_discrete_noise_has_its_law(rate):
    rows, n = 25, 8000
    drawn = in_steps(noisy_latents(np.zeros((rows, n)), key_column(rows), clip=0.1, rate=rate)).ravel()
    a = math.exp(-rate)
    reach = next(k for k in itertools.count(1) if drawn.size * a**k * (1 - a) / (1 + a) < 20)
    cells = [(1 - a) / (1 + a) * a ** abs(k) for k in range(-reach + 1, reach)]
    counts = [(drawn <= -reach).sum(), *((drawn == k).sum() for k in range(-reach + 1, reach)), (drawn >= reach).sum()]
    expected = np.array([a**reach / (1 + a), *cells, a**reach / (1 + a)])
    assert expected.sum() == pytest.approx(1, abs=1e-12)
    assert stats.chisquare(counts, expected * drawn.size).pvalue > 1e-6


def test_discrete_noise_of_a_real_size_has_its_scale_and_shape():
    rate = laplace_rate(500, 2 * 15_360 * clipped_steps(0.1))
    drawn = in_steps(noisy_latents(np.zeros((12, 15_360)), key_column(12), clip=0.1, rate=rate)).ravel()
    assert stats.kstest(drawn * float(rate), "laplace").pvalue > 1e-6
    assert np.abs(drawn).mean() * float(rate) == pytest.approx(1, rel=6 / math.sqrt(drawn.size))


# Tails (docs/spec/privacy.md#grid-gaussian)


def reachable(step, uniform_of, sigma):
    """Whether some uniform gives this step of the grid: the one at its place is mapped back."""
    size = 2 * special.ndtr(-step / (sigma * STEPS))
    return any(
        round(-float(special.ndtri(u / 2)) * sigma * STEPS) == step for u in uniform_of(float(size)) if 0 < u <= 1
    )


def of_two_words(size):
    """Uniforms near a size as docs/spec/stream.md#uniform-real makes them, from the best two words."""
    whole = round(Fraction(size) * 2**128) | 1
    return [whole / 2**128]


def of_53_bits(size):
    """What `random()` and its likes can give near a size."""
    whole = math.floor(size * 2**53)
    return [(whole + more) * 2.0**-53 for more in range(-1, 3)]


@pytest.mark.parametrize("sigma", [0.4, 0.9, 4.5])
def test_tails_have_no_holes_and_a_uniform_of_53_bits_has(sigma):
    some = np.random.default_rng(5)
    for z in (1.0, 4.0, 6.0, 8.0, 9.5, 12.0):
        steps = (z * sigma * STEPS + some.integers(-2000, 2000, 300)).astype(int)
        assert all(reachable(step, of_two_words, sigma) for step in steps), z
    far = (8.0 * sigma * STEPS + some.integers(-2000, 2000, 300)).astype(int)
    assert np.mean([reachable(step, of_53_bits, sigma) for step in far]) < 0.5
    beyond = (9.5 * sigma * STEPS + some.integers(-2000, 2000, 300)).astype(int)
    assert not any(reachable(step, of_53_bits, sigma) for step in beyond)


def test_the_kernel_draws_uniforms_of_full_precision_and_a_planted_53_bit_stream_is_found():
    """The lowest bit of a small uniform is a coin; rounded to 2**-53 it is nearly always 0."""

    def share_of_odd(sizes):
        small = sizes[sizes < 2**-8]
        assert len(small) > 300
        return np.mean([int(math.frexp(size)[0] * 2**53) & 1 for size in small])

    n = 100_000
    draws = pa.array([0], pa.uint32()), pa.array([0], pa.uint64())
    sizes = np.abs(pa.array(_kernel.uniforms(key_column(1), *draws, LATENT, 2 * n, 0, n)).to_numpy())
    assert 0.4 < share_of_odd(sizes) < 0.6
    assert share_of_odd(np.ceil(sizes * 2**53) * 2.0**-53) < 0.1
    steps = in_steps(noisy_latents(np.zeros((1, n)), key_column(1), clip=0.1, sigma=0.9))[0]
    np.testing.assert_array_equal(np.abs(steps), np.rint(-special.ndtri(sizes / 2) * (0.9 * INFLATION * STEPS)))
