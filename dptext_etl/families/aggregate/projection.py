"""Project integer vectors to a few integer coordinates, center them, and bound their norm, the same on every machine.

The directions are principal directions of a public corpus, found by subspace iteration. Every step is a product of
integers below 2^53, whose sum is exact in any order, or one operation that IEEE 754 rounds: no machine finds others.

Specification: docs/spec/synthetic.md#projection.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dptext_etl.corpora.encoder import Int8s, Integers
from dptext_etl.errors import PolicyError

LENGTH = 128
"""Length of a direction, before its entries are rounded."""
QUANTIZED = 127
"""Length of encoded vectors, before their entries are rounded."""
MOST_WIDTH = 512
"""Largest width of a projection."""
_ROUNDS = 40
_FINE = 2.0**15  # length of a direction while it is searched
_ROOM = 2**62


@dataclass(frozen=True, eq=False)
class Projection:
    """Coordinates of vectors, v = directions . vector - center, and the clip of their norm."""

    directions: npt.NDArray[np.int16]  # int16, shape (d, k)
    center: Integers  # projected mean of the corpus, int64, shape (d,)
    clip: int  # C, a multiple of 4: the median norm of the corpus texts' coordinates
    longest: int  # squared length of an encoded vector, at most; a longer one counts as a failed encoding

    @property
    def width(self) -> int:
        """Return d, the number of coordinates."""
        return len(self.directions)

    @cached_property
    def sha256(self) -> str:
        """Return the hash of all numbers, which enters the configuration (docs/spec/synthetic.md#projection)."""
        numbers = [self.directions.shape[1], self.width, self.clip, self.longest, *self.center]
        parts = np.array(numbers, "<i8").tobytes() + self.directions.astype("<i2").tobytes()
        return hashlib.sha256(b"dptext/projection/v1\0" + parts).hexdigest()

    def coordinates(self, vectors: Int8s) -> Integers:
        """Return the coordinates of vectors before the clip, int64, shape (n, d)."""
        return _products(vectors, self.directions) - self.center

    def contributions(self, vectors: Int8s) -> Integers:
        """Return u of every vector, int64, shape (n, d): its norm is at most `clip`; zeros for a failed encoding.

        |u_i| = isqrt(v_i^2 C^2 // |v|^2) where |v| > C, so the squares add up to C^2 at most.
        """
        lengths = np.einsum("ij,ij->i", vectors, vectors, dtype=np.int64)
        found = self.coordinates(vectors)
        found[(lengths == 0) | (lengths > self.longest)] = 0
        squares = np.einsum("ij,ij->i", found, found)
        outside = squares > self.clip**2
        large = found[outside]
        found[outside] = np.sign(large) * _roots(large * large * self.clip**2 // squares[outside, None])
        return found


def _roots(squares: Integers) -> Integers:
    """Return the whole square roots of numbers below 2^62, rounded down."""
    roots = np.sqrt(squares.astype(np.float64)).astype(np.int64)
    roots -= roots * roots > squares
    roots += (roots + 1) * (roots + 1) <= squares
    return roots


def _products(vectors: Int8s, directions: npt.NDArray[np.int16]) -> Integers:
    """Return exact products: float32 holds every partial sum, which `projection` bounds below 2^24."""
    return (vectors.astype(np.float32) @ directions.T.astype(np.float32)).astype(np.int64)


def projection(vectors: Int8s, width: int) -> Projection:
    """Return the projection of a corpus to `width` principal directions."""
    width = min(width, vectors.shape[1], MOST_WIDTH)
    directions = np.rint(_principal(vectors, width) * (LENGTH / _FINE)).astype(np.int16)
    lengths = np.einsum("ij,ij->i", vectors, vectors, dtype=np.int64)
    longest = max(int(lengths.max(initial=0)), (QUANTIZED + math.isqrt(vectors.shape[1]) // 2 + 1) ** 2)
    whole = directions.astype(np.int64)
    center = _rounded(whole @ vectors.sum(axis=0, dtype=np.int64), len(vectors))
    stretch = int(np.abs(whole @ whole.T).sum(axis=1).max())  # of squared lengths, at most
    reach = math.isqrt(stretch * longest) + math.isqrt(int((center**2).sum())) + 2
    if stretch * longest >= 2**48:
        raise PolicyError("the vectors of the corpus are too long for exact sums", "scale them to length 127")
    own = _products(vectors, directions) - center
    norms = np.sort(np.einsum("ij,ij->i", own, own))
    clip = math.isqrt(int(norms[len(norms) // 2])) // 4 * 4
    if not clip or (reach * clip) ** 2 >= _ROOM:
        raise PolicyError("the vectors of the corpus do not differ, or are too long", "build the corpus again")
    return Projection(directions, center, clip, longest)


def _rounded(sums: Integers, count: int) -> Integers:
    """Divide by a count and round to the nearest whole number, up at the half."""
    return (2 * sums + count) // (2 * count)


def _principal(vectors: Int8s, width: int) -> npt.NDArray[np.float64]:
    """Return whole numbers near principal directions of length 2^15, shape (width, k)."""
    m, k = vectors.shape
    rows = vectors.astype(np.float64)
    sums = rows.sum(axis=0)
    spread = (rows.T @ rows) - np.rint(sums[:, None] * sums / m)  # below 2^46, so exact sums of whole numbers
    spread = np.rint(spread * (2.0**20 / max(1.0, float(np.abs(spread).max()))))
    start = np.argsort(-np.diagonal(spread), kind="stable")[:width]
    found = np.zeros((width, k))
    found[np.arange(width), start] = _FINE
    for _ in range(_ROUNDS):
        found = _orthogonal(found @ spread)
    return found


def _orthogonal(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Make rows nearly orthogonal, one after the other, in whole numbers of length 2^15."""
    out = np.zeros_like(rows)
    for number, row in enumerate(rows):
        left = _scaled(row)
        for _ in range(2):
            shares = np.rint((out[:number] @ left) / _FINE)
            left = _scaled(left * _FINE - shares @ out[:number])
        out[number] = left
    return out


def _scaled(row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Scale a row to length 2^15 and round it; a row of zeros stays."""
    largest = float(np.abs(row).max())
    if not largest:
        return row
    whole = np.rint(row * (_FINE / largest))
    length = float(whole @ whole)
    scaled: npt.NDArray[np.float64] = np.rint(whole * (_FINE / np.sqrt(length)))
    return scaled
