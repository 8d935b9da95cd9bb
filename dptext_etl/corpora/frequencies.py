"""Estimate from released texts how often topics occur among the near texts: the near share of each topic.

A release is drawn from the near texts N(x) of a private text x with probability λ, and uniformly from the whole corpus
otherwise. If a share p of the corpus has a topic and a share f of the releases, then (f - (1 - λ) p) / λ estimates the
near share of the topic: the mean, over the private texts, of the share of N(x) that has it
(docs/spec/surrogate.md#learners). The near share is not the share of private texts with the topic. Texts near x may
have other topics than x, so that near shares of all groups are drawn toward the corpus, by other amounts for each topic
and each group. The standard error covers the draw alone.

How far near shares shrink can be measured on public texts with known topics, without cost.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dptext_etl.corpora.corpus import Corpus
from dptext_etl.corpora.encoder import nearest, products
from dptext_etl.corpora.weights import near_weight
from dptext_etl.errors import InputError

_BLOCK = 256


@dataclass(frozen=True)
class Shrinkage:
    """How the near share of a topic follows its true share, measured on public texts.

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
        """Return by how much the near share moves if the true share moves by 1: 1 without shrinkage, 0 if it is lost.

        In a mix of texts like the public ones, near share = without_topic + slope * true share. The other topics of the
        private texts change `without_topic`, so that inverting this does not give their true share either.
        """
        return self.with_topic - self.without_topic


@dataclass(frozen=True)
class Frequency:
    """The estimate of one topic; `print` shows it in a sentence.

    Attributes:
        topic: The topic.
        near_share: Estimated mean share of the topic among the near texts of the private texts. It is not the share of
            private texts with the topic. By chance it may lie below 0 or above 1.
        standard_error: Standard error of `near_share` by the draw, computed from the releases.
        released: Share of the releases with the topic.
        corpus: Share of the corpus with the topic.
        shrinkage: How near shares of this topic follow true shares on public texts; None if it was not measured, or if
            the topic has no public text or all of them.
    """

    topic: str
    near_share: float
    standard_error: float
    released: float
    corpus: float
    shrinkage: Shrinkage | None = None

    def __str__(self) -> str:
        sentence = f"{self.topic}: near share {self.near_share:.1%} ± {1.96 * self.standard_error:.1%}"
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
        released: The releases, of one part if texts have parts; or how often each text was released, as an unlinked
            release in the form "counts" says.
        topics: Topic of every text of the corpus.
        epsilon: Epsilon of one draw.
        near: Number of near texts of the mechanism.
        corpus: The corpus; with `public` alone.
        public: Topics of public texts like the private ones, to measure the shrinkage. Texts of the corpus are left
            out, since each is near itself. Never give private texts or their topics.

    Returns:
        One estimate per topic of the corpus, in alphabetical order.

    Raises:
        InputError: A number is out of range, releases are no texts of the corpus, `corpus` and `public` do not come
            together, `topics` does not name the texts of the corpus, or `public` holds no other text.
    """
    counts = Counter(released)
    total = counts.total()
    if not total or not 1 <= near < len(topics) or not 0.0 < epsilon < math.inf:
        raise InputError(
            f"{total:,} releases, a corpus of {len(topics)} texts, near {near}, epsilon {epsilon}; "
            "allowed: one release or more, 1 <= near < texts, epsilon > 0"
        )
    foreign = sum(count for text, count in counts.items() if text not in topics)
    if foreign:
        raise InputError(
            f"{foreign:,} of {total:,} releases are no texts of the corpus",
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
    from dptext_etl.corpora.building import encoded

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
    queries, shares = encoded(corpus, texts), np.zeros((len(texts), len(names)))
    for first in range(0, len(texts), _BLOCK):
        rows = nearest(products(queries[first : first + _BLOCK], corpus.vectors), near)
        for place in range(len(names)):
            shares[first : first + _BLOCK, place] = (codes[rows] == place).mean(axis=1)
    own = np.array([public[text] for text in texts])
    shrinkages = {}
    for place, name in enumerate(names.tolist()):
        has = own == name
        if has.any() and not has.all():
            means = (float(shares[rows, place].mean()) for rows in (has, ~has))
            shrinkages[name] = Shrinkage(int(has.sum()), *means)
    return shrinkages
