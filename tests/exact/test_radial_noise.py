"""Noise of density exp(-|eta|): from the stream's words by its definition, and by its laws.

Specification: docs/spec/privacy.md#s2.
"""

import math

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl import _kernel
from dptext_etl.errors import PolicyError
from dptext_etl.mechanisms.madlib import least_tail, longest_noise
from tests.later import later

integrate = later("scipy.integrate")
special = later("scipy.special")
stats = later("scipy.stats")

VECTOR = 5
RECORD = bytes.fromhex("e353bcaa494e7cd3361f12b7817fe00ddc0ba5328def9e8517aee79144a557b8")
KEYS = [RECORD, bytes([7]) * 32]


def noise(n, k, records=None, threads=1, first=0):
    records = np.zeros(n, np.uint32) if records is None else np.asarray(records, np.uint32)
    positions = np.arange(first, first + n, dtype=np.uint64)
    draws = pa.array(KEYS, pa.binary(32)), pa.array(records), pa.array(positions)
    return pa.array(_kernel.radial_noise(*draws, VECTOR, k, threads)).to_numpy().reshape(n, k)


@pytest.mark.parametrize("k", [1, 2, 3, 50, 300])
def test_every_coordinate_follows_from_its_words(k):
    n = 40
    got = noise(n, k, np.arange(n) % 2)
    for row in range(n):
        words = _kernel.stream_words(KEYS[row % 2], VECTOR, 0, 4 * k * row, 4 * k)
        sizes = [(high * 2**64 + (low | 1)) / 2**128 for high, low in zip(words[::2], words[1::2], strict=True)]
        minus = np.array([low & 1 for low in words[1 : 2 * k : 2]])
        normals = np.where(minus, -1, 1) * -special.ndtri(np.array(sizes[:k]) / 2)
        radius = math.fsum(-math.log(u) for u in sizes[k:])
        expected = normals / math.sqrt(math.fsum(normals**2)) * radius
        np.testing.assert_allclose(got[row], expected, rtol=1e-14)


def test_golden_bits_stay_frozen_on_every_machine():
    assert [value.hex() for value in noise(2, 3).ravel().tolist()] == GOLDEN


GOLDEN = [
    "0x1.51f832fc6862fp+1",
    "0x1.ff0de53b47503p+0",
    "-0x1.d1b1c9560d7d9p-4",
    "-0x1.fbb0a135892e0p-1",
    "0x1.0cb1c28f828f7p+1",
    "-0x1.e015ff73b6610p+0",
]


def test_threads_and_batches_change_no_bit():
    whole = noise(3000, 20, np.arange(3000) % 2, threads=2)
    np.testing.assert_array_equal(whole, noise(3000, 20, np.arange(3000) % 2))
    np.testing.assert_array_equal(whole[1234:1240], noise(6, 20, np.arange(1234, 1240) % 2, first=1234))


@pytest.mark.parametrize("k", [1, 2, 3, 25])
def test_length_is_gamma_and_direction_is_uniform(k):
    n = 10_000
    drawn = noise(n, k)
    lengths = np.linalg.norm(drawn, axis=1)
    assert stats.kstest(lengths, stats.gamma(k).cdf).pvalue > 1e-6
    directions = drawn / lengths[:, None]
    if k > 1:
        for coordinate in {0, 1, k - 1}:
            squares = directions[:, coordinate] ** 2
            assert stats.kstest(squares, stats.beta(0.5, (k - 1) / 2).cdf).pvalue > 1e-6
    assert (np.abs((drawn > 0).mean(axis=0) - 0.5) < 3 / math.sqrt(n)).all()
    assert abs(np.corrcoef(lengths, np.abs(directions[:, 0]))[0, 1] if k > 1 else 0) < 5 / math.sqrt(n)
    together = np.corrcoef(directions.T) - np.eye(k) if k > 1 else np.zeros(1)
    assert (np.abs(together) < 6 / math.sqrt(n)).all()


def test_tails_are_there():
    """One dimension is the Laplace distribution: far values occur as often as they should, on both sides."""
    n = 2**17
    drawn = noise(n, 1, threads=2).ravel()
    for far in (5.0, 8.0, 10.0, 12.0):
        expected = n * math.exp(-far) / 2
        for side in (drawn, -drawn):
            assert abs((side > far).sum() - expected) < 6 * math.sqrt(expected) + 2
    tail = np.sort(drawn[drawn > 8.0]) - 8.0
    assert stats.kstest(tail, stats.expon.cdf).pvalue > 1e-6
    assert len(np.unique(drawn)) == n
    assert np.abs(drawn).max() <= longest_noise(1)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 25, 190])
@pytest.mark.parametrize("distance", [0.0, 0.3, 2.0, 9.0])
def test_the_tail_along_a_line_is_bounded_from_below_and_closely(k, distance):
    bound = least_tail(k, distance)
    exact = _tail_by_quadrature(k, distance)
    assert bound <= exact * (1 + 1e-9)
    assert bound >= 0.97 * exact


def _tail_by_quadrature(k, distance):
    if k == 1:
        return math.exp(-distance) / 2
    constant = math.exp(math.lgamma(k / 2) - math.lgamma((k - 1) / 2)) / math.sqrt(math.pi)

    def integrand(angle):  # t = cos(angle): the density becomes smooth
        return math.sin(angle) ** (k - 2) * special.gammaincc(k, distance / math.cos(angle))

    return constant * integrate.quad(integrand, 0, math.pi / 2, epsabs=1e-13, epsrel=1e-10, limit=500)[0]


@pytest.mark.parametrize("k", [0, 2**20 + 1])
def test_dimensions_out_of_range_are_refused(k):
    with pytest.raises(PolicyError, match="dimensions"):
        _kernel.radial_noise(
            pa.array(KEYS, pa.binary(32)), pa.array([0], pa.uint32()), pa.array([0], pa.uint64()), 5, k
        )
