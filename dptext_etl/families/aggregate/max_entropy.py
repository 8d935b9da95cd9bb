"""Fit distributions of maximum entropy to a noisy statistic, and draw public texts from them, at no cost."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.corpora import Corpus
from dptext_etl.corpora.corpus import Integers
from dptext_etl.corpora.learning import minimum
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.families.aggregate.classifier import floored, linear_discriminant, name_vectors
from dptext_etl.families.aggregate.contributions import Noisy, encoded
from dptext_etl.families.aggregate.statistic import Statistic

Floats = npt.NDArray[np.float64]
_GROUP = 64  # labels that are fitted together


def fitted(points: Floats, sums: Floats, counts: Floats, variance: float) -> Floats:
    """Return the slopes theta of each label's distribution over points, p(t) in proportion to exp(theta . point_t).

    theta maximizes theta . S - n log mean_t exp(theta . point_t) - (variance / 2) |theta|^2, a concave function.
    The search ends after 60 steps, or when the gradient is 10,000 times shorter than at 0.
    """
    spread, axes = np.linalg.eigh(np.cov(points.T, bias=True).reshape(points.shape[1], -1))
    rotated = points @ axes
    parts = [
        _group(rotated, np.maximum(spread, 0.0), sums[at : at + _GROUP] @ axes, counts[at : at + _GROUP], variance)
        for at in range(0, len(sums), _GROUP)
    ]
    slopes: Floats = np.concatenate(parts) @ axes.T
    return slopes


def _group(points: Floats, spread: Floats, sums: Floats, counts: Floats, variance: float) -> Floats:
    """Fit some labels, in variables whose second derivatives at 0 are 1."""
    scale = 1.0 / np.sqrt(counts[:, None] * spread + variance)

    def loss(x: Floats) -> tuple[float, Floats]:
        slopes = x.reshape(sums.shape) * scale
        logs = points @ slopes.T
        most = logs.max(axis=0)
        weights = np.exp(logs - most)
        total = weights.sum(axis=0)
        means = (weights / total).T @ points
        value = float(counts @ (most + np.log(total / len(points))))
        value += float((variance / 2 * slopes - sums).ravel() @ slopes.ravel())
        return value, ((counts[:, None] * means - sums + variance * slopes) * scale).ravel()

    solution: Floats = minimum(loss, np.zeros(sums.size)).reshape(sums.shape) * scale
    return solution


TABLE = 10  # purpose of the draws (docs/spec/stream.md#purposes)
FEWEST = 40  # candidates of a label, at least, though the classifier gives them to other labels
SPREAD, FEWEST_WITHOUT = 0.8, 500
"""Texts among which rows are spread, at least, as the exponential of the entropy: a share of a label's candidates, so
that learners see them; without labels a number, because the table shows the column."""
NAME_WEIGHT = 6.0  # weight of a label's name in records, as a multiple of sigma
_HALVINGS = 30
_WEIGHT = 2.0**40  # of the most probable text


def slopes_of(noisy: Noisy, points: Floats, names: Mapping[str, str] | None = None) -> Floats:
    """Return the slope of every label: of the distribution of maximum entropy over points that fits its sums.

    A label's name counts as 6 sigma records.
    """
    statistic = noisy.statistic
    count = len(statistic.labels) or 1
    counts, sums = floored(noisy.counts[:count]), noisy.vectors[:count]
    if statistic.labels:
        named = name_vectors(statistic, {} if names is None else names)
        weight = NAME_WEIGHT * statistic.sigma
        sums, counts = sums + weight * named, counts + weight * named.any(axis=1)
    return fitted(points, sums, counts, statistic.sigma**2)


def table(
    noisy: Noisy,
    rows: int,
    names: Mapping[str, str] | None = None,
    written: pa.Table | None = None,
    pool: Corpus | None = None,
) -> pa.Table:
    """Return a table of public texts with labels, whose texts are near the noisy mean of their label.

    Args:
        noisy: The released statistic.
        rows: Number of drawn texts, from 1 to 2^31.
        names: Public words that describe a label, by label.
        written: Public texts, each for a label: columns `text` and `label`. Those to which the classifier of the
            statistic gives this label follow the other rows, each once. This costs nothing: it reads no private row.
        pool: Another public corpus, whose texts are drawn in the place of texts of the statistic's corpus. Its own
            vectors are not read.

    A label's candidates are the texts of the pool to which the classifier gives it. If these are fewer than 40, or than
    a quarter of an even share of the pool, other texts with the highest score fill the list. Candidates are drawn with
    replacement, in proportion to exp(c slope . coordinates). c is the largest number up to 1 at which the entropy is at
    least the logarithm of four fifths of the candidates; without labels, of 500 texts, or of a quarter if fewer. Labels
    share rows as their noisy counts do, but none has less than a fifth of an even share.
    Draws depend only on the noisy sums.
    """
    if not 1 <= rows <= 2**31:
        raise PolicyError(f"rows is {rows}; allowed: from 1 to 2^31", "10_000 is usual")
    statistic, labels = noisy.statistic, noisy.statistic.labels or noisy.statistic.blocks
    texts_drawn = statistic.corpus.texts if pool is None else pool.texts
    points = corpus_points(statistic, pool)
    slopes = slopes_of(noisy, points, names)
    scores = linear_discriminant(noisy, names).scores_at(points) if statistic.labels else points @ slopes.T
    owners, fewest = scores.argmax(axis=1), max(FEWEST, len(points) // (4 * len(labels)))
    drawn, at = [], 0
    for number, share in enumerate(shares_of_rows(floored(noisy.counts[: len(labels)]), rows)):
        candidates = np.flatnonzero(owners == number)
        if len(candidates) < fewest:
            others = np.where(owners == number, -np.inf, -scores[:, number])
            candidates = np.argsort(others, kind="stable")[:fewest]
        spread = SPREAD * len(candidates) if statistic.labels else min(FEWEST_WITHOUT, len(candidates) / 4)
        logs = flattened(points[candidates] @ slopes[number], spread)
        drawn.append(candidates[drawn_rows(noisy.digest, logs, at, share)])
        at += share
    owned = np.repeat(np.array(labels, object), [*map(len, drawn)])
    texts = [texts_drawn[row] for row in np.concatenate(drawn)]
    pairs = sorted(zip(owned.tolist(), texts, strict=True))
    columns = {"text": pa.array([text for _, text in pairs], pa.large_string())}
    if statistic.labels:
        columns["label"] = pa.array([label for label, _ in pairs], pa.large_string())
    table = pa.table(columns)
    return table if written is None else pa.concat_tables([table, _fitting(noisy, names, written)])


def _fitting(noisy: Noisy, names: Mapping[str, str] | None, written: pa.Table) -> pa.Table:
    """Return the written texts to which the classifier gives the intended label."""
    if not {"text", "label"} <= {*written.column_names} or not noisy.statistic.labels:
        raise InputError(
            "written texts have the columns text and label, and the statistic has labels",
            "read the table that this release published",
        )
    texts, intended = (written[name].cast(pa.large_string()).combine_chunks() for name in ("text", "label"))
    found = linear_discriminant(noisy, names).predict(encoded(noisy.statistic, texts))
    labels = pa.array(found, pa.large_string())
    return pa.table({"text": texts, "label": intended}).filter(pc.equal(labels, intended))


def scored(noisy: Noisy, names: Mapping[str, str] | None = None, pool: Corpus | None = None) -> pa.Table:
    """Return every text of the pool once, with the label and the scores that the classifier of the statistic gives it.

    The table has columns `text`, `label`, and `scores`: lists of float32 in the order of the labels, in tenths.

    Args:
        noisy: The released statistic, with labels.
        names: Public words that describe a label, by label.
        pool: Another public corpus in the place of the statistic's corpus; its own vectors are not read.
    """
    corpus = noisy.statistic.corpus if pool is None else pool
    classifier = linear_discriminant(noisy, names)
    scores = classifier.scores_at(corpus_points(noisy.statistic, pool))
    tenths = (np.rint(10 * scores) / 10 + 0.0).astype(np.float32)
    labels = [classifier.labels[number] for number in scores.argmax(axis=1)]
    order = sorted(range(len(labels)), key=lambda row: (labels[row], corpus.texts[row]))
    ends = np.arange(0, tenths.size + 1, tenths.shape[1], dtype=np.int64)
    lists = pa.LargeListArray.from_arrays(ends, tenths[order].ravel())
    columns = {"text": [corpus.texts[row] for row in order], "label": [labels[row] for row in order]}
    return pa.table({**{name: pa.array(cells, pa.large_string()) for name, cells in columns.items()}, "scores": lists})


def corpus_points(statistic: Statistic, pool: Corpus | None = None) -> Floats:
    """Return the contributions of the texts of the corpus, or of the pool, in clips, shape (m, d)."""
    vectors = statistic.corpus.vectors if pool is None else encoded(statistic, pa.array(pool.texts, pa.large_string()))
    points: Floats = statistic.projection.contributions(vectors) / statistic.projection.clip
    return points


def shares_of_rows(counts: Floats, rows: int) -> list[int]:
    """Divide rows in proportion to counts, by largest remainders."""
    exact = counts * (rows / counts.sum())
    shares = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - shares), kind="stable")
    shares[order[: rows - int(shares.sum())]] += 1
    row_counts: list[int] = shares.tolist()
    return row_counts


def flattened(logs: Floats, spread: float) -> Floats:
    """Return the logs of weights times the largest factor up to 1 that leaves the entropy of `spread` texts."""
    least = math.log(max(1.0, spread))
    low, high = 0.0, 1.0
    if _entropy(logs) >= least:
        return logs
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _entropy(middle * logs) >= least else (low, middle)
    return low * logs


def _entropy(logs: Floats) -> float:
    """Return the entropy, in nats, of a distribution in proportion to exp(logs)."""
    shifted = logs - logs.max()
    weights = np.exp(shifted)
    total = float(weights.sum())
    return math.log(total) - float(weights @ shifted) / total


def drawn_rows(key: bytes, logs: Floats, first: int, count: int) -> Integers:
    """Draw indices in proportion to exp(logs), in whole weights, at positions from `first` on."""
    weights = np.maximum(1, np.rint(_WEIGHT * np.exp(logs - logs.max()))).astype(np.uint64)
    ends = np.cumsum(weights)
    keys = pa.array([key], pa.binary(32))
    records = to_arrow(np.zeros(count, np.uint32))
    positions = to_arrow(np.arange(first, first + count, dtype=np.uint64))
    totals = to_arrow(np.full(count, ends[-1], np.uint64))
    numbers = to_numpy(pa.array(_kernel.bounded(keys, records, positions, TABLE, 1, totals)))
    rows: Integers = np.searchsorted(ends, numbers, side="right").astype(np.int64)
    return rows
