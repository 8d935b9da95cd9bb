"""Measure how near a release lies to its raw text, by averaged word vectors and by a sentence encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dptext_etl.embeddings import WordVectors
from dptext_etl_eval.evaluators import Vectors, sentence_vectors
from dptext_etl_eval.measure import Metric, Score
from dptext_etl_eval.pairs import RAW, RELEASED, Pairs

ENCODER = "english-20k"


class Cosine(Metric):
    """Mean cosine between a release and its raw text under averaged public word vectors, and under an encoder."""

    title: ClassVar[str] = "Nearness of meaning"
    says: ClassVar[str] = (
        f"Mean cosine between a raw text and its release: the averages of their words' vectors ({ENCODER}). The "
        "baseline is the same with the release of another row: texts of one column are alike to begin with. With "
        "--encoder, the same by a sentence encoder, as in Meisenbacher et al. 2024 and 2025."
    )
    order: ClassVar[int] = 50
    weight: ClassVar[float] = 0.3

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the mean over all rows; a text without a known word has cosine 0 to every other."""
        figures = [_score("mean cosine", *(encoded(pairs, which) for which in (RAW, RELEASED)))]
        if pairs.evaluators.encoder is not None:
            vectors = (by_encoder(pairs, which) for which in (RAW, RELEASED))
            figures.append(_score("mean cosine by the sentence encoder", *vectors))
        return figures


def _score(what: str, before: Vectors, after: Vectors) -> Score:
    cosines = np.einsum("ij,ij->i", before, after)
    spread, mean = 1.96 * float(cosines.std()) / len(cosines) ** 0.5, float(cosines.mean())
    blind = float(np.einsum("ij,ij->i", before, np.roll(after, -1, axis=0)).mean())
    return Score(what, mean, (mean - spread, mean + spread), blind=blind)


def by_encoder(pairs: Pairs, which: str) -> Vectors:
    """Return the vectors of texts by the sentence encoder that was given, shape (rows, dimensions); computed once."""
    name = pairs.evaluators.encoder
    assert name is not None  # noqa: S101  (the caller looked)
    if ("encoded", which, name) not in pairs.memory:
        pairs.memory["encoded", which, name] = sentence_vectors(name, pairs.texts(which))
    vectors: Vectors = pairs.memory["encoded", which, name]
    return vectors


def encoded(pairs: Pairs, which: str) -> Vectors:
    """Return the averaged vectors of texts, of length 1 or 0, shape (rows, dimensions); computed once."""
    if ("cosine", which) not in pairs.memory:
        word_vectors = WordVectors.load(ENCODER)
        place = {word: number for number, word in enumerate(word_vectors.words)}
        vectors = np.asarray(word_vectors.vectors, np.float32)
        vectors = vectors - vectors.mean(axis=0)
        sums = np.zeros((len(pairs), vectors.shape[1]), np.float32)
        for row, words in enumerate(pairs.words(which)):
            rows = [place[word] for word in words if word in place]
            if rows:
                sums[row] = vectors[rows].mean(axis=0)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        pairs.memory["cosine", which] = np.divide(sums, lengths, out=sums, where=lengths > 0)
    encodings: Vectors = pairs.memory["cosine", which]
    return encodings
