"""Compute the diameter of a vocabulary exactly, with estimates in float32 and pruning by the distance from a center.

The distance of two words is at most the sum of their distances from any center. The search takes the words farthest
from the center first. It ends when twice the distance of the next word is no more than the largest distance found.
Until then it estimates distances in float32, with a bounded error (Higham 2002, section 3.1), and computes those that
could be the largest in integers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dptext_etl.embeddings.vectors import Integers, WordVectors

_CELLS = 2**24  # estimates held at once
_PAIRS = 2**14  # pairs compared exactly at once
_UNIT = 2.0**-24  # rounding of float32
_WIDER = 1 + 2.0**-40  # above the rounding error of a square root


def largest_squared_distance(vectors: WordVectors) -> int:
    """Return the largest squared distance of two words, in squared grid steps: an exact integer."""
    grid = vectors.vectors
    radii = _radii(grid)
    order = np.argsort(-radii, kind="stable")
    grid, radii = grid[order], radii[order] * _WIDER
    best = _sweep(grid)
    coordinates = grid.astype(np.float32)
    norms = np.einsum("ij,ij->i", coordinates, coordinates, dtype=np.float64).astype(np.float32)
    longest, terms = float(norms.max(initial=0)), (grid.shape[1] + 8) * _UNIT
    slack = 0.0 if 4 * longest < 2**24 else 4 * terms / (1 - terms) * longest * _WIDER  # float32 is exact below 2**24
    step = max(1, _CELLS // len(grid))
    for first in range(0, len(grid), step):
        if 2 * radii[first] < np.sqrt(best):
            break
        last = int(np.searchsorted(-radii, radii[first] - np.sqrt(best), side="right"))
        rows = slice(first, min(first + step, last))
        guess = coordinates[rows] @ coordinates[first:last].T
        guess *= -2
        guess += norms[rows, None]
        guess += norms[first:last]
        best = _larger(grid[rows], grid[first:last], guess, best, slack)
    return best


def _radii(grid: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """Return the distances from the rounded mean, shape (n,), as square roots of exact integers."""
    centre = np.rint(grid.mean(axis=0, dtype=np.float64))
    away = grid - centre
    radii: npt.NDArray[np.float64] = np.sqrt(np.einsum("ij,ij->i", away, away))
    return radii


def _sweep(grid: npt.NDArray[np.integer]) -> int:
    """Find a large distance to start with: begin at the outermost word and step to the farthest word several times."""
    best, at = 0, 0
    while True:
        squared = _squared(grid, grid[at])
        if squared.max() <= best:
            return best
        at = int(squared.argmax())
        best = int(squared[at])


def _larger(
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
