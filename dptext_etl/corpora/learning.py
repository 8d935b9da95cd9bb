"""Learn an encoder that sums vectors of words, from public texts and public labels (docs/spec/surrogate.md#task)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dptext_etl.corpora.corpus import MOST_DIMENSIONS, UNKNOWN, Integers, Reals, WordEncoder, to_integers
from dptext_etl.errors import ArtifactError, InputError

if TYPE_CHECKING:
    from dptext_etl.embeddings import WordVectors

SMOOTHING = 0.03  # a word of this share of all words gets half the weight of a rare one
_NEGLIGIBLE = 1e-9


def learn(
    texts: Sequence[str], vectors: WordVectors, *, components: int = 1, half_whitening: bool = True
) -> WordEncoder:
    """Learn an encoder from public texts.

    Source: Arora, Liang, Ma 2017, "A simple but tough-to-beat baseline for sentence embeddings". Half whitening divides
    components by the square root of their standard deviation (docs/spec/surrogate.md#encoder-and-corpus). All of it is
    linear in the word vectors, so that it is folded into them and they become integers once.
    """
    finder = WordEncoder(vectors.words, np.zeros((len(vectors), 1), np.int16))
    rows, numbers = word_numbers(finder, texts)
    if not len(numbers):
        raise ArtifactError("no word of the corpus has a vector", "name vectors of the corpus's language")
    shares = np.bincount(numbers, minlength=len(vectors)) / len(numbers)
    table = vectors.vectors.astype(np.float64)
    table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), _NEGLIGIBLE)
    table *= (SMOOTHING / (SMOOTHING + shares))[:, None]
    points = _sums(table, rows, numbers, len(texts))
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    table = table @ _folded(points / np.where(lengths > 0, lengths, 1.0), components, half_whitening=half_whitening)
    return WordEncoder(vectors.words, to_integers(table))


def word_numbers(encoder: WordEncoder, texts: Sequence[str]) -> tuple[Integers, Integers]:
    """Return the known words of all texts, one after the other: the row of each word's text, and its number."""
    by_text = encoder.numbers(texts)
    rows = np.repeat(np.arange(len(by_text)), [len(numbers) for numbers in by_text])
    joined = np.concatenate([np.zeros(0, np.uint32), *by_text]).astype(np.int64)
    in_vocabulary = joined != UNKNOWN
    return rows[in_vocabulary], joined[in_vocabulary]


def _sums(table: Reals, rows: Integers, numbers: Integers, texts: int) -> Reals:
    """Return the sum of the vectors of each text's words, shape (texts, k)."""
    total = np.zeros((texts, table.shape[1]))
    filled, starts = np.unique(rows, return_index=True)
    ends = np.append(starts[1:], len(rows))
    step = max(1, 2**24 // max(1, table.shape[1] * 20))  # texts of about 20 words, 128 MiB of numbers at once
    for first in range(0, len(filled), step):
        block, last = filled[first : first + step], min(first + step, len(filled))
        words = numbers[starts[first] : ends[last - 1]]
        total[block] = np.add.reduceat(table[words], starts[first:last] - starts[first], axis=0)
    return total


def _folded(points: Reals, components: int, *, half_whitening: bool) -> Reals:
    """Return the matrix that removes the first components and weakens strong ones, shape (k, kept)."""
    moments = points.T @ points / max(1, len(points))
    strengths, directions = np.linalg.eigh(moments)
    strengths, directions = strengths[::-1][components:], directions[:, ::-1][:, components:]
    kept = strengths > _NEGLIGIBLE * max(float(strengths.max(initial=0.0)), _NEGLIGIBLE)
    folded: Reals = directions[:, kept]
    return folded / strengths[kept] ** 0.25 if half_whitening else folded


SHARE = 0.5  # share of a vector's squared length that task directions get, over all public labeled texts
LEARNERS = 3
_FEWEST = 100
_RIDGE = 10.0
_PRIOR = 2.0


def add_directions(
    encoder: WordEncoder, texts: Sequence[str], labels: Sequence[str], *, share: float = SHARE
) -> WordEncoder:
    """Return an encoder with further coordinates, three per label (three altogether for two labels).

    The meaning to keep (sentiment, an intent) may be a weak direction of word vectors. Three learners find it from
    public labels: naive Bayes, logistic regression over its ratios (Wang and Manning 2012, "Baselines and bigrams"),
    and ridge regression over the vectors of texts, which also knows words that no labeled text has. Each gives every
    word a weight per label, so that the vector of a text stays a sum of integers over its words.
    """
    names, codes = np.unique(np.array(labels), return_inverse=True)
    width, directions = encoder.vectors.shape[1], 1 if len(names) == 2 else len(names)
    if len(texts) < _FEWEST or len(names) < 2 or width + LEARNERS * directions > MOST_DIMENSIONS:
        raise InputError(
            f"{len(texts)} labeled texts with {len(names)} labels; allowed: {_FEWEST} texts or more, "
            f"from 2 to {(MOST_DIMENSIONS - width) // LEARNERS} labels",
            "name public labeled texts with --task and their column of labels with --label",
        )
    rows, numbers = word_numbers(encoder, texts)
    if not np.bincount(codes[rows], minlength=len(names)).all():
        raise InputError("a label has no text with a known word", "name labeled texts in the language of the vectors")
    present = np.divmod(np.unique(rows * len(encoder.vectors) + numbers), len(encoder.vectors))
    members = codes[:, None] == (np.arange(directions) if directions > 1 else 1)
    ratios = _naive_bayes(*present, codes, len(encoder.vectors))
    logistic = [
        _logistic(*present, member, np.abs(weights)) for member, weights in zip(members.T, ratios.T, strict=True)
    ]
    ridge = _contrasts(_ridge(encoder, texts, np.eye(len(names))[codes]))
    plain = float((_sums(encoder.vectors.astype(np.float64), rows, numbers, len(texts)) ** 2).sum())
    tables: list[Reals] = [encoder.vectors.astype(np.float64)]
    for table in (ratios, np.stack(logistic, axis=1), ridge):
        added = float((_sums(table, rows, numbers, len(texts)) ** 2).sum())
        tables.append(table * np.sqrt(share / (1.0 - share) / LEARNERS * plain / max(added, 1e-12)))
    return replace(encoder, vectors=to_integers(np.concatenate(tables, axis=1)))


def _contrasts(weights: Reals) -> Reals:
    """Return the weight of the second of two labels above the first, or of each label above their mean."""
    return weights[:, 1:] - weights[:, :1] if weights.shape[1] == 2 else weights - weights.mean(axis=1, keepdims=True)


def _naive_bayes(rows: Integers, numbers: Integers, codes: Integers, words: int) -> Reals:
    """Return smoothed logarithms of how much more texts of a label have a word than expected, as contrasts."""
    counts = np.zeros((words, codes.max() + 1))
    np.add.at(counts, (numbers, codes[rows]), 1.0)
    shares = counts.sum(axis=0) / counts.sum()
    expected = counts.sum(axis=1, keepdims=True) * shares
    return _contrasts(np.log((counts + _PRIOR * shares) / (expected + _PRIOR * shares)))


def _logistic(rows: Integers, numbers: Integers, member: npt.NDArray[np.bool_], scale: Reals) -> Reals:
    """Return the weight of every word for membership, by balanced logistic regression over scaled words of a text."""
    values = scale[numbers] / np.sqrt(np.bincount(rows, minlength=len(member)))[rows]
    signs = np.where(member, 1.0, -1.0)
    weights = len(member) / (2.0 * np.where(member, member.sum(), (~member).sum()))

    def loss(x: Reals) -> tuple[float, Reals]:
        margins = signs * np.bincount(rows, values * x[numbers], len(member))
        pulls = weights * signs * np.exp(-np.logaddexp(0.0, margins))
        value = float(weights @ np.logaddexp(0.0, -margins) + x @ x / 2.0)
        return value, x - np.bincount(numbers, values * pulls[rows], len(scale))

    return scale * minimum(loss, np.zeros(len(scale)))


def _ridge(encoder: WordEncoder, texts: Sequence[str], targets: Reals) -> Reals:
    """Return the scores of a ridge regression over text vectors for every single word."""
    points = encoder.encode(texts).astype(np.float64) / 127.0
    moments = points.T @ points + _RIDGE * np.eye(points.shape[1])
    slopes: Reals = np.linalg.solve(moments, points.T @ (targets - targets.mean(axis=0)))
    return encoder.vectors.astype(np.float64) @ slopes


_STEPS = 60
_MEMORY = 8
_ENOUGH = 1e-4  # of the first gradient's length


def minimum(loss: Callable[[Reals], tuple[float, Reals]], x: Reals) -> Reals:
    """Minimize a smooth convex function by L-BFGS with backtracking (Nocedal and Wright 2006, algorithm 7.5)."""
    value, slope = loss(x)
    enough = _ENOUGH * float(np.linalg.norm(slope))
    curvature_pairs: list[tuple[Reals, Reals]] = []
    for _ in range(_STEPS):
        if np.linalg.norm(slope) <= enough:
            break
        direction = -_newton_direction(slope, curvature_pairs)
        decrease, step = float(slope @ direction), 1.0
        while True:
            candidate = x + step * direction
            there, other = loss(candidate)
            if there <= value + 1e-4 * step * decrease or step < 1e-6:
                break
            step /= 2
        if there >= value:
            break
        step_taken, change = candidate - x, other - slope
        if step_taken @ change > 0:
            curvature_pairs = [*curvature_pairs[-_MEMORY + 1 :], (step_taken, change)]
        x, value, slope = candidate, there, other
    return x


def _newton_direction(slope: Reals, curvature_pairs: list[tuple[Reals, Reals]]) -> Reals:
    """Multiply a gradient by the inverse second derivatives that the last steps suggest."""
    direction, shares = slope.copy(), []
    for step_taken, change in reversed(curvature_pairs):
        shares.append(float(step_taken @ direction) / float(step_taken @ change))
        direction -= shares[-1] * change
    if curvature_pairs:
        step_taken, change = curvature_pairs[-1]
        direction *= float(step_taken @ change) / float(change @ change)
    for (step_taken, change), share in zip(curvature_pairs, reversed(shares), strict=True):
        direction += (share - float(change @ direction) / float(step_taken @ change)) * step_taken
    return direction
