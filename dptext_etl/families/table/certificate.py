"""Compute the certificate of a stored table by comparing all rows of integers of each output set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dptext_etl.families.certificate import Arrays, Certificate, read_table, word_list
from dptext_etl.mechanism import PAD
from dptext_etl.sampling import worst_log_ratio


def of_table(path: Path, *, sets_are_disclosed: bool) -> Certificate:
    """Compute the certificate of a table (`families.table.table`)."""
    stored, _ = read_table(path)
    inputs, kept = word_list(stored["inputs"]), set(word_list(stored["kept"]))
    apart = not sets_are_disclosed and len(stored["set_offsets"]) > 2
    realised, words = (math.inf if apart else 0.0), (inputs[0], inputs[-1])
    drawn = np.array([word not in kept and word != PAD for word in inputs])
    for rows, weights in _sets(stored):
        with np.errstate(divide="ignore", invalid="ignore"):
            worst = worst_log_ratio(weights)
        worst = math.inf if not weights.all() else worst
        shown = rows[drawn[rows]]
        if worst > realised or (words == (inputs[0], inputs[-1]) and len(shown) > 1):
            realised = max(worst, realised)
            if len(shown) > 1:
                words = _far_apart(weights[drawn[rows]], shown, inputs)
    return Certificate(f"every row of the table, {len(inputs):,} words", realised, exact=True, words=words)


def _sets(stored: Arrays) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]]:
    """Yield the inputs of each output set, and their integer weights, shape (inputs, members)."""
    offsets, running = stored["row_offsets"].astype(np.int64), stored["cumulative"]
    order = np.argsort(stored["input_set"], kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(stored["input_set"][order])) + 1):
        ends = np.stack([running[offsets[row] : offsets[row + 1]] for row in rows])
        yield rows, np.diff(ends, axis=1, prepend=np.uint64(0))


def _far_apart(weights: npt.NDArray[np.uint64], rows: npt.NDArray[np.int64], inputs: list[str]) -> tuple[str, str]:
    """Return the two words of a set whose probabilities of one output differ most."""
    chances = weights / weights.sum(axis=1, keepdims=True)
    least = np.maximum(chances.min(axis=0), 1e-300)
    output = int(np.argmax(chances.max(axis=0) / least))
    return inputs[rows[int(np.argmax(chances[:, output]))]], inputs[rows[int(np.argmin(chances[:, output]))]]
