"""Find the word nearest to any point exactly, with the same answer in every batch, BLAS and device.

Points lie on a grid 2**bits times as fine as the words' own. For a word y and a point z, both in units of that finer
grid, |2**bits y - z|^2 orders words in the same way as the integer 2**bits |y|^2 - 2 y·z. `bits` is chosen so that this
integer and every partial sum of its products stay below 2**53: |sum of some y_i z_i| <= |y| |z| (Cauchy and Schwarz).
So float64 holds all of them exactly, in any order of addition. Of equally near words, the earlier one wins.

On the processor, a product in float32 finds the few words that can be nearest. Its error is at most gamma_n (|y| |z| +
|a|), where n is the number of its terms and a is the term of the length of y (Higham 2002, section 3.1, any order of
summation). Words within twice that bound of the best are compared exactly.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl.device import Device, device, drops_with_gpu, place
from dptext_etl.embeddings.vectors import Integers, WordVectors
from dptext_etl.errors import PolicyError

Points = npt.NDArray[np.float64]
Nearest = npt.NDArray[np.uint32]

MOST_BITS = 16
"""Largest number of bits: a grid finer than 2**-16 steps of the words' grid changes no answer that matters."""

EXACT = 2**53
ROWS, CELLS = 256, 2**24  # largest numbers of points and of estimates held at once
_CELLS_CUDA = 2**26  # exact products held at once on a GPU
_UNIT = 2.0**-24  # rounding of float32
_WIDER = 1 + 2.0**-40  # above the rounding error of the few steps of a bound


def finest_bits(vectors: WordVectors, reach: float) -> int:
    """Return by how many bits the grid of points may be finer than the words' grid, so that everything stays exact."""
    return int((reach <= longest_reaches(vectors)).sum()) - 1


def longest_reaches(vectors: WordVectors) -> Points:
    """Return the largest length of points on each grid, in steps of the words' grid, from 0 bits to `MOST_BITS`."""
    longest = math.isqrt(int(vectors.norms.max(initial=0))) + 1
    diagonal = math.isqrt(vectors.vectors.shape[1]) + 1  # rounding moves a point by at most half a diagonal of the grid
    most = [((EXACT - 1 - 2**bits * longest**2) // (2 * longest) - diagonal, bits) for bits in range(MOST_BITS + 1)]
    return np.array([point / 2**bits for point, bits in most])


class NearestWords:
    """Search the words of a vocabulary exactly."""

    def __init__(self, vectors: WordVectors, reach: float) -> None:
        self.bits = finest_bits(vectors, reach)  # fineness of the points: they are integers in units of 2**-bits steps
        if self.bits < 0:
            raise PolicyError(
                "the noise is so large that distances are no longer exact numbers",
                "use a larger epsilon; at this one the output hardly depends on the word",
            )
        self._vectors = vectors
        self._step = 2.0**self.bits

    def rounded(self, points: Points) -> Points:
        """Round points, given in steps of the words' grid, to integers on the finer grid."""
        return np.rint(points * self._step)

    def nearest(self, points: Points, where: Device | None = None) -> Nearest:
        """Return the index of the word nearest to each point; of equally near words, the earlier one."""
        where = device() if where is None else where
        if where != "cpu":
            return self.by_torch(points, where)
        matrix, longest = _guessing(self._vectors)
        nearest = np.empty(len(points), np.uint32)
        rows = self.at_once()
        for start in range(0, len(points), rows):
            block = points[start : start + rows]
            extended = np.empty((len(block), matrix.shape[1]), np.float32)
            extended[:, :-1], extended[:, -1] = block, self._step
            scores = extended @ matrix.T
            nearest[start : start + rows] = self._decided(block, scores, longest)
        return nearest

    def exact_keys(self, point: Points, words: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float64]:
        """Return integers that order words by their distance from one point; smaller is nearer."""
        products = self._vectors.vectors[words].astype(np.float64) * point
        keys: npt.NDArray[np.float64] = self._step * self._vectors.norms[words] - 2 * products.sum(axis=1)
        return keys

    def at_once(self, workers: int = 1) -> int:
        """Return how many points are searched at a time on the processor, where that many threads search."""
        _guessing(self._vectors)  # made once, before threads ask for it side by side
        return max(1, min(ROWS, CELLS // (workers * len(self._vectors))))

    def _decided(self, points: Points, scores: npt.NDArray[np.float32], longest: float) -> Nearest:
        """Decide each row of estimates exactly; the estimates are overwritten."""
        terms = (points.shape[1] + 8) * _UNIT
        lengths = np.sqrt(np.einsum("ij,ij->i", points, points))
        wrong = terms / (1 - terms) * (longest * lengths + self._step * longest**2 / 2) * _WIDER
        rows = np.arange(len(points))
        best = scores.argmax(axis=1)
        limits = scores[rows, best] - 2 * wrong
        nearest: Nearest = best.astype(np.uint32)
        scores[rows, best] = -np.inf
        doubtful = np.flatnonzero(scores.max(axis=1) >= limits)
        for row in doubtful.tolist():
            scores[row, best[row]] = np.inf
            words = np.flatnonzero(scores[row] >= limits[row])
            nearest[row] = words[self.exact_keys(points[row], words).argmin()]
        return nearest

    def by_torch(self, points: Points, where: str) -> Nearest:
        """Return the nearest words by exact products in float64 on a device of torch."""
        import torch

        where = place(where)
        matrix, norms = _on_device(self._vectors, where)
        nearest = np.empty(len(points), np.uint32)
        rows = max(1, _CELLS_CUDA // len(self._vectors))
        for start in range(0, len(points), rows):
            block = torch.from_numpy(np.ascontiguousarray(points[start : start + rows])).to(where)
            keys = (block @ matrix).mul_(-2).add_(norms, alpha=self._step)
            # use the first of equal ones: argmin does not promise that on every device
            ties = keys == keys.min(dim=1, keepdim=True).values
            numbers = torch.arange(len(norms), device=where)
            first = torch.where(ties, numbers, len(norms)).min(dim=1).values
            nearest[start : start + rows] = first.cpu().numpy().astype(np.uint32)
        return nearest


@lru_cache(maxsize=4)
def _guessing(vectors: WordVectors) -> tuple[npt.NDArray[np.float32], float]:
    """Return every word's vector and minus half its squared length, float32, (n, d + 1), and the largest length."""
    matrix = np.empty((len(vectors), vectors.vectors.shape[1] + 1), np.float32)
    matrix[:, :-1], matrix[:, -1] = vectors.vectors, -vectors.norms / 2
    return matrix, math.isqrt(int(vectors.norms.max(initial=0))) + 1.0


@drops_with_gpu
@lru_cache(maxsize=2)
def _on_device(vectors: WordVectors, where: str) -> tuple[Any, Any]:
    """Return all vectors as columns, and their squared lengths, in float64."""
    import torch

    matrix = torch.from_numpy(vectors.vectors.astype(np.float64)).to(where).T
    return matrix, torch.from_numpy(vectors.norms.astype(np.float64)).to(where)


_PAIRS = 2**14  # pairs compared exactly at once


def largest_squared_distance(vectors: WordVectors) -> int:
    """Return the largest squared distance of two words, in squared grid steps: an exact integer."""
    grid = vectors.vectors
    away = grid - np.rint(grid.mean(axis=0, dtype=np.float64))
    radii: npt.NDArray[np.float64] = np.sqrt(np.einsum("ij,ij->i", away, away))
    order = np.argsort(-radii, kind="stable")
    grid, radii = grid[order], radii[order] * _WIDER
    best, farthest = 0, 0  # begin with a large distance: step from the outermost word to the farthest several times
    while (squared := _squared(grid, grid[farthest])).max() > best:
        farthest = int(squared.argmax())
        best = int(squared[farthest])
    coordinates = grid.astype(np.float32)
    norms = np.einsum("ij,ij->i", coordinates, coordinates, dtype=np.float64).astype(np.float32)
    longest, terms = float(norms.max(initial=0)), (grid.shape[1] + 8) * _UNIT
    slack = 0.0 if 4 * longest < 2**24 else 4 * terms / (1 - terms) * longest * _WIDER  # float32 is exact below 2**24
    step = max(1, CELLS // len(grid))
    for first in range(0, len(grid), step):
        if 2 * radii[first] < np.sqrt(best):
            break
        last = int(np.searchsorted(-radii, radii[first] - np.sqrt(best), side="right"))
        rows = slice(first, min(first + step, last))
        guess = coordinates[rows] @ coordinates[first:last].T
        guess *= -2
        guess += norms[rows, None]
        guess += norms[first:last]
        best = larger_of_block(grid[rows], grid[first:last], guess, best, slack)
    return best


def larger_of_block(
    rows: npt.NDArray[np.integer],
    columns: npt.NDArray[np.integer],
    guess: npt.NDArray[np.float32],
    best: int,
    slack: float,
) -> int:
    """Return the maximum of `best` and the largest squared distance between rows and columns."""
    at = np.unravel_index(int(guess.argmax()), guess.shape)
    best = max(best, int(_squared(rows[at[0]], columns[at[1]])))
    pairs = np.flatnonzero(guess.ravel() > best - slack) if guess.max() > best - slack else np.empty(0, np.int64)
    for start in range(0, len(pairs), _PAIRS):
        row, column = np.unravel_index(pairs[start : start + _PAIRS], guess.shape)
        best = max(best, int(_squared(rows[row], columns[column]).max()))
    return best


def _squared(a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Integers:
    away = a.astype(np.int64) - b.astype(np.int64)
    squared: Integers = (away * away).sum(axis=-1)
    return squared
