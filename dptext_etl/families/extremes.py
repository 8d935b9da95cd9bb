"""Bound the largest probability of any output, and thereby the probability that a whole text comes back."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import numpy as np
from safetensors import safe_open

from dptext_etl.errors import seam
from dptext_etl.families.parts import parts

_CELLS = 1 << 20
_ROUNDING = 1 + 1e-12
"""Margin above the at most four roundings of each result."""


def range_bounded(epsilon: float, outputs: int) -> float:
    """Bound the probabilities of a range-bounded exponential mechanism over `outputs` words.

    Specification: docs/spec/privacy.md#exponential-mechanism.

    >>> round(range_bounded(3.0, 20), 4), range_bounded(0.0, 1)
    (0.1909, 1.0)
    """
    return min(1.0, _ROUNDING / (1 + (outputs - 1) * math.exp(-epsilon / 2)))


@lru_cache(maxsize=16)
def of_table(path: Path, sha256: str) -> float:  # noqa: ARG001  (the hash is the table's identity)
    """Bound the probabilities of a stored table from its integers, block of rows by block of rows."""
    with seam("reading the table"), safe_open(str(path), framework="numpy") as table:
        offsets = table.get_tensor("row_offsets").astype(np.int64)
        running = table.get_slice("cumulative")
        best = 0.0
        for first, last in parts(offsets, _CELLS):
            ends = running[int(offsets[first]) : int(offsets[last])]
            starts = offsets[first:last] - offsets[first]
            weights = np.diff(ends, prepend=np.uint64(0))
            weights[starts] = ends[starts]
            totals = ends[offsets[first + 1 : last + 1] - offsets[first] - 1]
            tops = np.maximum.reduceat(weights, starts)
            best = max(best, float((tops / totals).max()))
        return min(1.0, best * _ROUNDING)
