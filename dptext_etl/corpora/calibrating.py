"""Choose the hit rate of every epsilon on public texts (docs/spec/surrogate.md#calibrate).

A release keeps much where near texts are drawn often, and where near texts are really near: more near texts raise the
first and lower the second. For a given epsilon the expected likeness of a public text and its release is computed
exactly for every number of near texts, and the best one is taken. Without labels, likeness is a power of the cosine of
the two vectors, so that a little likeness counts for little: with 1.5, the best hit rates were those that kept most of
the public domain labels of Schema-Guided Dialogue. With public labels, likeness is the agreement of the text's label
with what neighbors say of the corpus's text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dptext_etl.corpora.encoder import Int8s, products
from dptext_etl.corpora.weights import hit_rate

Reals = npt.NDArray[np.float64]

EPSILONS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 14.0, 16.0)
MOST_TEXTS = 1_000
"""Public texts that are looked at."""
POWER = 1.5
_BLOCK = 128
_VOTERS = 15


@dataclass(frozen=True)
class Hit:
    """What calibration found for one epsilon.

    Attributes:
        epsilon: Of one draw.
        near: Best number d of near texts.
        hit: The hit rate that belongs to it.
        kept: Expected likeness above that of uniform texts, as a share of what the nearest text alone would keep.
    """

    epsilon: float
    near: int
    hit: float
    kept: float


def calibrate(
    vectors: Int8s,
    queries: Int8s,
    epsilons: Sequence[float] = EPSILONS,
    *,
    labels: Sequence[str] | None = None,
) -> tuple[Hit, ...]:
    """Find the best hit rate for every epsilon."""
    gains = _gains(vectors, queries, None if labels is None else np.unique(np.array(labels), return_inverse=True)[1])
    return tuple(_best(gains, epsilon) for epsilon in epsilons)


def _best(gains: Reals, epsilon: float) -> Hit:
    """Maximize e^epsilon-weighted gain: (e^eps - 1) * gains[d-1] / (m + d * (e^eps - 1)) over d."""
    texts = len(gains)
    near = np.arange(1, texts)
    more = math.expm1(min(epsilon, 700.0))
    kept = more * gains[:-1] / (texts + near * more)
    d = int(near[int(kept.argmax())])
    return Hit(epsilon, d, hit_rate(texts, d, epsilon), float(kept.max() / gains[0]) if gains[0] > 0 else 0.0)


def _gains(vectors: Int8s, queries: Int8s, labels: npt.NDArray[np.int64] | None) -> Reals:
    """Return, for every d, the mean summed likeness of the d nearest texts above that of uniform texts, shape (m,)."""
    total = np.zeros(len(vectors))
    told = None if labels is None else _told(vectors, queries, labels)
    for first in range(0, len(queries), _BLOCK):
        own = slice(first, first + _BLOCK)
        scores = products(queries[own], vectors)
        order = np.argsort(-scores, axis=1, kind="stable")
        likeness = np.maximum(scores, 0.0).astype(np.float64) ** POWER
        if told is not None and labels is not None:
            likeness = told[:, labels[own]].T
        likeness = likeness - likeness.mean(axis=1, keepdims=True)
        total += np.take_along_axis(likeness, order, axis=1).sum(axis=0)
    return np.cumsum(total) / max(1, len(queries))


def _told(vectors: Int8s, queries: Int8s, labels: npt.NDArray[np.int64]) -> Reals:
    """Return for every text of the corpus the shares of labels among the nearest public texts, shape (m, labels)."""
    shares = np.zeros((len(vectors), int(labels.max()) + 1))
    voters = min(_VOTERS, len(queries))
    for first in range(0, len(vectors), _BLOCK):
        scores = products(vectors[first : first + _BLOCK], queries)
        nearest = np.argsort(-scores, axis=1, kind="stable")[:, :voters]
        for column in nearest.T:
            shares[np.arange(first, first + len(nearest)), labels[column]] += 1.0 / voters
    return shares
