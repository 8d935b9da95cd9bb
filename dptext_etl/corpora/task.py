"""Learn directions that a task needs from public labeled texts, and add them to an encoder.

What must survive (sentiment, an intent) may be a weak direction of word vectors. A ridge regression from text vectors
to public labels finds it; every word gets its inner product with it as further coordinates, so that a text's sum stays
a sum over its words and everything stays an integer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dptext_etl.corpora.encoder import MOST_DIMENSIONS, WordEncoder
from dptext_etl.corpora.learning import LARGEST, sums, vectors_of, word_numbers
from dptext_etl.errors import InputError

SHARE = 0.5
"""Share of a vector's squared length that task directions get, over all public labeled texts."""
FEWEST = 100
_RIDGE = 10.0
_PRIOR = 2.0


def add_directions(
    encoder: WordEncoder, texts: Sequence[str], labels: Sequence[str], *, share: float = SHARE
) -> WordEncoder:
    """Return an encoder with further coordinates, one per label (one altogether for two labels)."""
    names, codes = np.unique(np.array(labels), return_inverse=True)
    width = 1 if len(names) == 2 else len(names)
    if len(texts) < FEWEST or len(names) < 2 or encoder.vectors.shape[1] + width > MOST_DIMENSIONS:
        raise InputError(
            f"{len(texts)} labeled texts with {len(names)} labels; allowed: {FEWEST} texts or more, "
            f"from 2 to {MOST_DIMENSIONS - encoder.vectors.shape[1]} labels",
            "name public labeled texts with --task and their column of labels with --label",
        )
    rows, numbers = word_numbers(encoder, texts)
    wanted = _words_of_labels(rows, numbers, codes, (len(encoder.words), len(names)))
    table = _generalised(encoder, texts, codes, len(names)) + wanted
    table = (table[:, 1] - table[:, 0])[:, None] if width == 1 else table - table.mean(axis=1, keepdims=True)
    plain = sums(encoder.vectors.astype(np.float64), rows, numbers, len(texts))
    added = sums(table, rows, numbers, len(texts))
    gain = np.sqrt(share / (1.0 - share) * (plain**2).sum() / max(float((added**2).sum()), 1e-12))
    joined = np.concatenate([encoder.vectors.astype(np.float64), gain * table], axis=1)
    most = float(np.abs(joined).max())
    return WordEncoder(encoder.words, np.rint(joined * (LARGEST / most)).astype(np.int16))


def _words_of_labels(
    rows: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], codes: npt.NDArray[np.int64], shape: tuple[int, int]
) -> npt.NDArray[np.float64]:
    """Return smoothed logarithms of how much more often a word stands in texts of a label, shape (v, labels)."""
    counts = np.zeros(shape)
    np.add.at(counts, (numbers, codes[rows]), 1.0)
    shares = counts.sum(axis=0) / counts.sum()
    expected = counts.sum(axis=1, keepdims=True) * shares
    logs: npt.NDArray[np.float64] = np.log((counts + _PRIOR * shares) / (expected + _PRIOR * shares))
    return logs


def _generalised(
    encoder: WordEncoder, texts: Sequence[str], codes: npt.NDArray[np.int64], labels: int
) -> npt.NDArray[np.float64]:
    """Return what a ridge regression over text vectors says of every word alone, known to the texts or not."""
    points = vectors_of(encoder, texts).astype(np.float64) / 127.0
    targets = np.eye(labels)[codes]
    targets -= targets.mean(axis=0)
    weights = np.linalg.solve(points.T @ points + _RIDGE * np.eye(points.shape[1]), points.T @ targets)
    lengths = np.linalg.norm(encoder.vectors.astype(np.float64), axis=1)
    told = encoder.vectors.astype(np.float64) @ weights / max(float(lengths.mean()), 1.0)
    scaled: npt.NDArray[np.float64] = told / max(float(told.std()), 1e-12)
    return scaled
