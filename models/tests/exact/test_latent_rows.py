"""Clipped rows of latents keep their bounds; noise that cannot be is refused."""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.errors import InputError, PolicyError
from dptext_etl_models.families.latent_noise import STEPS, clipped_steps, laplace_rate, noisy_latents
from models.tests.exact.latent_noise import NO_NOISE, RECORD, ROWS, in_steps, kept, key_column
from tests.examples import examples


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


@given(ROWS, ROWS, st.sampled_from([1.0, 10.0, 500.0]))
@examples(100)
def test_the_discrete_loss_of_any_two_rows_is_within_epsilon(one, other, epsilon):
    """The loss of an outcome is the rate times the difference of l1 distances: at most rate times the rows' own."""
    n = min(len(one), len(other))
    rate = laplace_rate(epsilon, 2 * n * clipped_steps(0.1))
    apart = np.abs(kept(one[:n], 0.1, "value") - kept(other[:n], 0.1, "value")).sum()
    assert rate * int(apart) <= Fraction(epsilon)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "one of them"),
        ({"sigma": 1.0, "rate": Fraction(1)}, "one of them"),
        ({"sigma": 0.0}, "sigma"),
        ({"sigma": math.nan}, "sigma"),
        ({"rate": Fraction(2**49)}, "2\\^48"),
        ({"sigma": 1.0, "clip": 1e-6}, "clip"),
        ({"sigma": 1.0, "clip": math.nan}, "clip"),
        ({"sigma": 1.0, "norm": "l3"}, "norm|clip bounds"),
    ],
)
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
