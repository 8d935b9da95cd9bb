"""Compute the integer weights of near texts, and estimate from released texts how often topics occur.

Weights are computed in decimals of 60 digits. Floats would give weights above e^epsilon for four epsilons in ten.
Specification: docs/spec/stream.md#mixture-weights.

A release keeps much where near texts are drawn often, and where near texts are really near: more near texts raise the
first and lower the second (docs/spec/surrogate.md#calibrate). For a given epsilon the expected likeness of a public
text and its release is computed exactly for every number of near texts, and the best number is used. Without labels,
likeness is a power of the cosine of the two vectors, so that a little likeness counts for little: with 1.5, the best
hit rates were those that kept most of the public domain labels of Schema-Guided Dialogue. With public labels, likeness
is the agreement of the label of the text with what neighbors say of the text of the corpus.

A release is drawn from the near texts N(x) of a private text x with probability λ, and uniformly from the whole corpus
otherwise. If a share p of the corpus has a topic and a share f of the releases, then (f - (1 - λ) p) / λ estimates the
neighborhood share of the topic: the mean, over the private texts, of the share of N(x) that has it
(docs/spec/surrogate.md#learners). The neighborhood share is not the share of private texts with the topic. Texts near x
may have other topics than x, so that neighborhood shares of all groups are drawn toward the corpus, by other amounts
for each topic and each group. The standard error covers only the draw.

How far neighborhood shares shrink can be measured on public texts with known topics, without cost.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.corpora.corpus import Corpus, Int8s, Reals, nearest, products
from dptext_etl.errors import InputError

MOST = 2**62  # largest sum of all weights
UNCALIBRATED: Mapping[Decimal, Decimal] = {
    Decimal(epsilon): Decimal(hit)
    for epsilon, hit in (("0", ".3"), ("1", ".4"), ("2", ".5"), ("4", ".7"), ("8", ".9"), ("12", ".97"), ("16", ".99"))
}
"""Hit rates by epsilon, for corpora that no one calibrated; between them lie straight lines."""

_MOST_EPSILON = 700.0  # weights do not change from far below it on
_DIGITS = Context(prec=60, Emax=10**9, Emin=-(10**9))
_ABOVE = Decimal("1e-40")  # above the rounding error of a logarithm


class Weights(NamedTuple):
    """Integer weights: of each near text, and of each other one."""

    inside: int
    outside: int

    @property
    def loss(self) -> Fraction:
        """Return an upper bound of ln(inside / outside), less than 1e-39 above it."""
        ratio = _DIGITS.ln(_DIGITS.divide(Decimal(self.inside), Decimal(self.outside)))
        return Fraction(_DIGITS.add(ratio, _ABOVE))


@lru_cache(maxsize=256)
def weights(m: int, d: int, epsilon: Decimal) -> Weights:
    """Return the weights of d near texts among m, of ratio at most e^epsilon."""
    odds = _DIGITS.exp(epsilon)
    for power in range(46, -1, -1):
        outside = 1 << power
        scaled = _DIGITS.multiply(Decimal(outside), odds)
        if scaled > MOST:
            continue
        inside = int(scaled.to_integral_value(ROUND_FLOOR))
        if m * outside + d * (inside - outside) <= MOST:
            return Weights(inside, outside)
    return Weights((MOST - (m - d)) // d, 1)


def near_texts(m: int, epsilon: Decimal, hit: Decimal) -> int:
    """Return how many of m texts are near, so that a draw hits one of them with a given probability."""
    odds = _DIGITS.exp(epsilon)
    least = _DIGITS.add(_DIGITS.multiply(odds, _DIGITS.subtract(Decimal(1), hit)), hit)
    d = _DIGITS.divide(_DIGITS.multiply(Decimal(m), hit), least)
    return min(m - 1, max(1, int(d.to_integral_value(ROUND_HALF_EVEN))))


def usual_hit(epsilon: Decimal, calibrated: Mapping[Decimal, Decimal]) -> Decimal:
    """Return the hit rate of an epsilon, on the line between its neighbors among the calibrated ones."""
    hits = sorted((calibrated or UNCALIBRATED).items())
    below = [point for point in hits if point[0] <= epsilon]
    above = [point for point in hits if point[0] > epsilon]
    if not below or not above:
        return below[-1][1] if below else above[0][1]
    (left, low), (right, high) = below[-1], above[0]
    share = _DIGITS.divide(_DIGITS.subtract(epsilon, left), _DIGITS.subtract(right, left))
    return _DIGITS.add(low, _DIGITS.multiply(share, _DIGITS.subtract(high, low)))


def hit_rate(m: int, d: int, epsilon: float) -> float:
    """Return the probability that a draw hits one of the d near texts, by the weights that decide it.

    >>> round(hit_rate(20_000, 820, 4.0), 3)
    0.7
    """
    inside, outside = weights(m, d, Decimal(repr(min(epsilon, _MOST_EPSILON))))
    return d * inside / (m * outside + d * (inside - outside))


def near_weight(m: int, d: int, epsilon: float) -> float:
    """Return the probability that a draw comes from the near part of the mixture, and not from all texts evenly.

    It is the hit rate less the hits of the even part: (h - d/m) / (1 - d/m).
    """
    inside, outside = weights(m, d, Decimal(repr(min(epsilon, _MOST_EPSILON))))
    return d * (inside - outside) / (m * outside + d * (inside - outside))


EPSILONS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 14.0, 16.0)
MOST_TEXTS = 1_000  # public texts that are looked at
POWER = 1.5
_WEIGHTS_BLOCK = 128
_VOTERS = 15


class Hit(NamedTuple):
    """The best hit rate for one epsilon, found by calibration."""

    epsilon: float  # of one draw
    near: int  # best number d of near texts
    hit: float  # the hit rate that belongs to it
    kept: float  # expected likeness in excess of uniform texts, as a share of the nearest text's


def calibrate(
    vectors: Int8s, queries: Int8s, epsilons: Sequence[float] = EPSILONS, *, labels: Sequence[str] | None = None
) -> tuple[Hit, ...]:
    """Find the best hit rate for every epsilon: maximize (e^eps - 1) * gains[d-1] / (m + d * (e^eps - 1)) over d."""
    gains = _gains(vectors, queries, None if labels is None else np.unique(np.array(labels), return_inverse=True)[1])
    texts = len(gains)
    near = np.arange(1, texts)
    hits = []
    for epsilon in epsilons:
        more = math.expm1(min(epsilon, _MOST_EPSILON))
        kept = more * gains[:-1] / (texts + near * more)
        d = int(near[int(kept.argmax())])
        share = float(kept.max() / gains[0]) if gains[0] > 0 else 0.0
        hits.append(Hit(epsilon, d, hit_rate(texts, d, epsilon), share))
    return tuple(hits)


def _gains(vectors: Int8s, queries: Int8s, labels: npt.NDArray[np.int64] | None) -> Reals:
    """Return, for every d, the mean summed likeness of the d nearest texts in excess of uniform texts, shape (m,)."""
    total = np.zeros(len(vectors))
    label_shares = None if labels is None else _label_shares(vectors, queries, labels)
    for first in range(0, len(queries), _WEIGHTS_BLOCK):
        block = slice(first, first + _WEIGHTS_BLOCK)
        scores = products(queries[block], vectors)
        order = np.argsort(-scores, axis=1, kind="stable")
        likeness = np.maximum(scores, 0.0).astype(np.float64) ** POWER
        if label_shares is not None and labels is not None:
            likeness = label_shares[:, labels[block]].T
        likeness = likeness - likeness.mean(axis=1, keepdims=True)
        total += np.take_along_axis(likeness, order, axis=1).sum(axis=0)
    return np.cumsum(total) / max(1, len(queries))


def _label_shares(vectors: Int8s, queries: Int8s, labels: npt.NDArray[np.int64]) -> Reals:
    """Return for every text of the corpus the shares of labels among the nearest public texts, shape (m, labels)."""
    shares = np.zeros((len(vectors), int(labels.max()) + 1))
    voters = min(_VOTERS, len(queries))
    for first in range(0, len(vectors), _WEIGHTS_BLOCK):
        scores = products(vectors[first : first + _WEIGHTS_BLOCK], queries)
        nearest = np.argsort(-scores, axis=1, kind="stable")[:, :voters]
        for column in nearest.T:
            shares[np.arange(first, first + len(nearest)), labels[column]] += 1.0 / voters
    return shares


_BLOCK = 256


@dataclass(frozen=True)
class Shrinkage:
    """How the neighborhood share of a topic follows its true share, measured on public texts.

    Attributes:
        texts: Public texts with the topic.
        with_topic: Mean share of the topic among the near texts of public texts that have the topic.
        without_topic: The same for public texts of other topics.
    """

    texts: int
    with_topic: float
    without_topic: float

    @property
    def slope(self) -> float:
        """Return by how much the neighborhood share moves if the true share moves by 1: 1 without shrinkage, 0 if lost.

        In a mix of texts like the public ones, neighborhood share = without_topic + slope * true share. The other
        topics of the private texts change `without_topic`, so inverting this does not give their true share either.
        """
        return self.with_topic - self.without_topic


@dataclass(frozen=True)
class Frequency:
    """The estimate of one topic; `print` shows it in a sentence.

    Attributes:
        topic: The topic.
        neighborhood_share: Estimated mean share of the topic among the near texts of the private texts. It is not the
            share of private texts with the topic. By chance it may lie below 0 or above 1.
        standard_error: Standard error of `neighborhood_share` by the draw, computed from the releases.
        released: Share of the releases with the topic.
        corpus: Share of the corpus with the topic.
        shrinkage: How neighborhood shares of this topic follow true shares on public texts; None if it was not
            measured, or if the topic has no public text or all of them.
    """

    topic: str
    neighborhood_share: float
    standard_error: float
    released: float
    corpus: float
    shrinkage: Shrinkage | None = None

    def __str__(self) -> str:
        sentence = f"{self.topic}: neighborhood share {self.neighborhood_share:.1%} ± {1.96 * self.standard_error:.1%}"
        sentence += f" (releases {self.released:.1%}, corpus {self.corpus:.1%})"
        shrinkage = self.shrinkage
        if shrinkage is None:
            return f"{sentence}; shrinkage not measured"
        return (
            f"{sentence}; shrinkage: {shrinkage.with_topic:.1%} of the near texts of {shrinkage.texts:,} public texts "
            f"with the topic have it, and {shrinkage.without_topic:.1%} of those without (slope {shrinkage.slope:.2f})"
        )


def estimate_frequencies(
    released: Sequence[str] | Mapping[str, int],
    topics: Mapping[str, str],
    *,
    epsilon: float,
    near: int,
    corpus: Corpus | None = None,
    public: Mapping[str, str] | None = None,
) -> tuple[Frequency, ...]:
    """Estimate the share of every topic among the near texts of the private texts.

    Args:
        released: The releases, of one part if texts have parts; or how often each text was released, as a shuffled
            release in the form "counts" says.
        topics: Topic of every text of the corpus.
        epsilon: Epsilon of one draw.
        near: Number of near texts of the mechanism.
        corpus: The corpus; only with `public`.
        public: Topics of public texts like the private ones, to measure the shrinkage. Texts of the corpus are left
            out, since each is near itself. Never give private texts or their topics.

    Returns:
        One estimate per topic of the corpus, in alphabetical order.

    Raises:
        InputError: A number is out of range, releases are not texts of the corpus, `corpus` and `public` do not come
            together, `topics` does not name the texts of the corpus, or `public` holds no other text.
    """
    counts = Counter(released)
    total = counts.total()
    if not total or not 1 <= near < len(topics) or not 0.0 < epsilon < math.inf:
        raise InputError(
            f"{total:,} releases, a corpus of {len(topics)} texts, near {near}, epsilon {epsilon}; "
            "allowed: one release or more, 1 <= near < texts, epsilon > 0",
            "pass the corpus and the mechanism of the releases",
        )
    foreign = sum(count for text, count in counts.items() if text not in topics)
    if foreign:
        raise InputError(
            f"{foreign:,} of {total:,} releases are not texts of the corpus",
            "give the topics of the corpus that the release was made with; with parts, give the parts one by one",
        )
    shrinkage = _shrinkage(topics, near, corpus, public)
    weight = near_weight(len(topics), near, epsilon)
    there, seen = Counter(topics.values()), Counter[str]()
    for text, count in counts.items():
        seen[topics[text]] += count
    estimates = []
    for topic in sorted(there):
        even, share = there[topic] / len(topics), seen[topic] / total
        error = math.sqrt(share * (1.0 - share) / total) / weight
        estimate = (share - (1.0 - weight) * even) / weight
        estimates.append(Frequency(topic, estimate, error, share, even, shrinkage.get(topic)))
    return tuple(estimates)


def _shrinkage(
    topics: Mapping[str, str], near: int, corpus: Corpus | None, public: Mapping[str, str] | None
) -> dict[str, Shrinkage]:
    if corpus is None and public is None:
        return {}
    if corpus is None or public is None:
        raise InputError("one of `corpus` and `public` is missing", "give both to measure the shrinkage, or neither")
    if len(corpus) != len(topics) or any(text not in topics for text in corpus.texts):
        raise InputError("`topics` does not name the texts of `corpus`", "give the topic of every text of the corpus")
    texts = [text for text in public if text not in topics]
    if not texts:
        raise InputError("no public text is left that is not in the corpus", "give other public texts with topics")
    names, codes = np.unique([topics[text] for text in corpus.texts], return_inverse=True)
    queries, shares = corpus.encoder.encode(texts), np.zeros((len(texts), len(names)))
    for first in range(0, len(texts), _BLOCK):
        rows = nearest(products(queries[first : first + _BLOCK], corpus.vectors), near)
        for place in range(len(names)):
            shares[first : first + _BLOCK, place] = (codes[rows] == place).mean(axis=1)
    topics_of_texts = np.array([public[text] for text in texts])
    shrinkages = {}
    for place, name in enumerate(names.tolist()):
        has = topics_of_texts == name
        if has.any() and not has.all():
            means = (float(shares[rows, place].mean()) for rows in (has, ~has))
            shrinkages[name] = Shrinkage(int(has.sum()), *means)
    return shrinkages
