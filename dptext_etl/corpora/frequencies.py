"""Estimate how often topics occur, from released texts: the mixture is known, so what it adds can be taken away.

A release is drawn from the near texts N(x) with probability λ, and uniformly from the whole corpus otherwise. If a
share p of the corpus has a topic and a share f of the releases, then (f - (1 - λ) p) / λ estimates without bias the
mean share of the topic among the near texts of the private texts (docs/spec/surrogate.md#learners). That is not the
share of private texts with the topic: what the encoder takes for near may have other topics, and rare topics of the
corpus are outnumbered in every N(x). The standard error knows of the draw alone and of nothing that the encoder does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dptext_etl.corpora.weights import near_share
from dptext_etl.errors import InputError


@dataclass(frozen=True)
class Frequency:
    """The estimate of one topic.

    Attributes:
        topic: The topic.
        share: Mean share of the topic among near texts, without bias; by chance it may lie below 0 or above 1.
        standard_error: Of the draws, an upper bound; the bias of the encoder is not in it.
        released: Share of the releases with the topic, as it is.
        corpus: Share of the corpus with the topic.
    """

    topic: str
    share: float
    standard_error: float
    released: float
    corpus: float


def estimate_frequencies(
    released: Sequence[str], topics: Mapping[str, str], *, epsilon: float, near: int
) -> tuple[Frequency, ...]:
    """Estimate the share of every topic among the near texts of the private texts."""
    if not released or not 1 <= near < len(topics) or not 0.0 < epsilon < math.inf:
        raise InputError(
            f"{len(released)} releases, a corpus of {len(topics)} texts, near {near}, epsilon {epsilon}; "
            "allowed: one release or more, 1 <= near < texts, epsilon > 0"
        )
    foreign = sum(text not in topics for text in released)
    if foreign:
        raise InputError(
            f"{foreign} of {len(released)} releases are no texts of the corpus",
            "give the topics of the corpus that the release was made with; with parts, give the parts one by one",
        )
    mixed = near_share(len(topics), near, epsilon)
    there, seen = Counter(topics.values()), Counter(topics[text] for text in released)
    found = []
    for topic in sorted(there):
        even, share = there[topic] / len(topics), seen[topic] / len(released)
        error = math.sqrt(share * (1.0 - share) / len(released)) / mixed
        found.append(Frequency(topic, (share - (1.0 - mixed) * even) / mixed, error, share, even))
    return tuple(found)
