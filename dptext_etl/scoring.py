"""Exact draws from a model's scores: the exponential mechanism over all ids of an output set (privacy.md section 2.2).

Scores become integer weights in `[wmin, S]`, whatever a model computes, and integers of the record's stream decide
(`stream.md`). The clip comes last and here: no caller can forget it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.sampling import Weights, integer_weights

TOKEN = 1
"""The purpose of draws of words (`stream.md`)."""

Choices = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Slots:
    """Where each draw of a batch takes its words from.

    Attributes:
        keys: Record keys of the batch, fixed-size binary of 32 bytes.
        records: Index into `keys` of each draw's record, uint32, shape (n,).
        positions: Serial number of each draw in its record and pass, uint64, shape (n,); never used twice.
    """

    keys: pa.Array
    records: npt.NDArray[np.uint32]
    positions: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.records)

    def take(self, some: npt.NDArray[Any] | slice) -> Slots:
        """Return some of the slots, by a mask, by numbers or by a slice."""
        return Slots(self.keys, self.records[some], self.positions[some])

    def arrays(self) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Return keys, records and positions as the kernel takes them."""
        return self.keys, pa.array(self.records, pa.uint32()), pa.array(self.positions, pa.uint64())


def slot_width(m: int) -> int:
    """Return how many words a slot has where the largest output set has `m` members."""
    return 2 if m > 4096 else 1


def choose(scores: Any, slots: Slots, *, epsilon: float, low: float, high: float, purpose: int = TOKEN) -> Choices:
    """Draw one id per row from the exponential mechanism over all columns.

    Args:
        scores: Shape (n, m), a numpy array or a torch tensor on any device, any floats; NaN counts as `low`, the rest
            is clipped to `[low, high]`.
        slots: n slots.
        epsilon: Per draw.
        low: Public lower bound of the scores.
        high: Public upper bound of the scores.
        purpose: Number of the stream (plus 256 per pass).

    Returns:
        Column numbers, uint32, shape (n,).
    """
    rows = weights(scores, epsilon, low, high)
    width, keys = slot_width(rows.shape[-1]), slots.keys
    drawn = [
        _kernel.draw(keys[int(record)].as_py(), purpose, int(position), row.tolist(), width)
        for row, record, position in zip(rows, slots.records, slots.positions, strict=True)
    ]
    return np.array(drawn, np.uint32)


def choose_uniform(slots: Slots, m: int, *, purpose: int = TOKEN) -> Choices:
    """Draw one id below `m` per slot uniformly: for positions that fail, at the same spend (amendment A2)."""
    drawn = _kernel.uniform_choices(*slots.arrays(), purpose, slot_width(m), m)
    return pa.array(drawn).to_numpy().astype(np.uint32)


def weights(scores: Any, epsilon: float, low: float, high: float) -> Weights:
    """Return the integer weights that `choose` draws from, uint64, shape (n, m)."""
    return integer_weights(_on_host(scores), epsilon, low, high)


def _on_host(scores: Any) -> npt.NDArray[Any]:
    if isinstance(scores, np.ndarray):
        return scores
    wide = scores.detach().double() if scores.dtype.itemsize > 4 else scores.detach().float()
    return np.asarray(wide.cpu().numpy())
