"""Learn the encoder `words` from a corpus, and add directions that a task needs.

Source: Arora, Liang, Ma 2017, "A simple but tough-to-beat baseline for sentence embeddings". Half whitening divides the
components by the square root of their standard deviation (docs/spec/surrogate.md#encoder-and-corpus). All of it is
linear in the word vectors, so that it is folded into them and they become integers once.

What must survive (sentiment, an intent) may be a weak direction of word vectors. A ridge regression from text vectors
to public labels finds it; every word gets its inner product with it as further coordinates, so that the sum of a text
stays a sum over its words and everything stays an integer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dptext_etl.corpora.encoder import MOST_DIMENSIONS, Int8s, WordEncoder, quantised
from dptext_etl.embeddings import WordVectors
from dptext_etl.errors import ArtifactError, InputError

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

SMOOTHING = 0.03
"""A word of this share of all words gets half the weight of a rare one."""
LARGEST = 32_000
"""Size of the largest coordinate of a word vector, of 32,767 that int16 holds."""
_NEGLIGIBLE = 1e-9
_CELLS = 2**24  # numbers held at once, about
_WORDS = 20  # of a text, about
_UNKNOWN = 2**32 - 1


def learn(
    texts: Sequence[str],
    vectors: WordVectors,
    *,
    smoothing: float = SMOOTHING,
    components: int = 1,
    half_whitening: bool = True,
) -> WordEncoder:
    """Learn an encoder from public texts."""
    finder = WordEncoder(vectors.words, np.zeros((len(vectors), 1), np.int16))
    rows, numbers = word_numbers(finder, texts)
    if not len(numbers):
        raise ArtifactError("no word of the corpus has a vector", "name vectors of the corpus's language")
    shares = np.bincount(numbers, minlength=len(vectors)) / len(numbers)
    table = vectors.vectors.astype(np.float64)
    table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), _NEGLIGIBLE)
    table *= (smoothing / (smoothing + shares))[:, None]
    table = table @ _folded(_unit(sums(table, rows, numbers, len(texts))), components, half_whitening=half_whitening)
    return WordEncoder(vectors.words, to_integers(table))


def word_numbers(encoder: WordEncoder, texts: Sequence[str]) -> tuple[Integers, Integers]:
    """Return the known words of all texts, one after the other: the row of each word's text, and its number."""
    found = encoder.numbers(texts)
    rows = np.repeat(np.arange(len(found)), [len(numbers) for numbers in found])
    joined = np.concatenate([np.zeros(0, np.uint32), *found]).astype(np.int64)
    known = joined != _UNKNOWN
    return rows[known], joined[known]


def sums(table: Reals, rows: Integers, numbers: Integers, texts: int) -> Reals:
    """Return the sum of the vectors of each text's words, shape (texts, k)."""
    total = np.zeros((texts, table.shape[1]))
    filled, starts = np.unique(rows, return_index=True)
    ends = np.append(starts[1:], len(rows))
    step = max(1, _CELLS // max(1, table.shape[1] * _WORDS))
    for first in range(0, len(filled), step):
        own, last = filled[first : first + step], min(first + step, len(filled))
        words = numbers[starts[first] : ends[last - 1]]
        total[own] = np.add.reduceat(table[words], starts[first:last] - starts[first], axis=0)
    return total


def to_integers(table: Reals) -> npt.NDArray[np.int16]:
    """Scale a table of word vectors so that its largest coordinate is `LARGEST`, and round it."""
    largest = float(np.abs(table).max(initial=0.0))
    integers: npt.NDArray[np.int16] = np.rint(table * (LARGEST / (largest or 1.0))).astype(np.int16)
    return integers


def vectors_of(encoder: WordEncoder, texts: Sequence[str]) -> Int8s:
    """Return the vectors of texts, as `WordEncoder.encode` does, many texts at once."""
    rows, numbers = word_numbers(encoder, texts)
    exact = sums(encoder.vectors.astype(np.float64), rows, numbers, len(texts))  # integers below 2^53
    return quantised(exact.astype(np.int64))


def _unit(table: Reals) -> Reals:
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    unit: Reals = table / np.where(lengths > 0, lengths, 1.0)
    return unit


def _folded(points: Reals, components: int, *, half_whitening: bool) -> Reals:
    """Return the matrix that removes the first components and weakens strong ones, shape (k, kept)."""
    moments = points.T @ points / max(1, len(points))
    strengths, directions = np.linalg.eigh(moments)
    strengths, directions = strengths[::-1][components:], directions[:, ::-1][:, components:]
    kept = strengths > _NEGLIGIBLE * max(float(strengths.max(initial=0.0)), _NEGLIGIBLE)
    folded: Reals = directions[:, kept]
    return folded / strengths[kept] ** 0.25 if half_whitening else folded


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
    weighed = encoder.vectors.astype(np.float64) @ weights / max(float(lengths.mean()), 1.0)
    scaled: npt.NDArray[np.float64] = weighed / max(float(weighed.std()), 1e-12)
    return scaled
