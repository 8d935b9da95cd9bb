"""Measure how near a release lies to its raw text, by averaged word vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dptext_etl.embeddings import WordVectors
from dptext_etl_eval.measure import Metric, Score
from dptext_etl_eval.pairs import RAW, RELEASED, Pairs

ENCODER = "english-20k"


class Cosine(Metric):
    """Mean cosine between a release and its raw text under averaged public word vectors."""

    title: ClassVar[str] = "Nearness of meaning"
    says: ClassVar[str] = (
        f"Mean cosine between a raw text and its release: the averages of their words' vectors ({ENCODER}). Blind is "
        "the same with the release of another row: texts of one column are alike to begin with."
    )
    order: ClassVar[int] = 50
    weight: ClassVar[float] = 0.3

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the mean over all rows; a text without a known word has cosine 0 to every other."""
        before, after = (encoded(pairs, which) for which in (RAW, RELEASED))
        each = np.einsum("ij,ij->i", before, after)
        spread = 1.96 * float(each.std()) / len(each) ** 0.5
        mean = float(each.mean())
        blind = float(np.einsum("ij,ij->i", before, np.roll(after, -1, axis=0)).mean())
        return [Score("mean cosine", mean, (mean - spread, mean + spread), blind=blind)]


def encoded(pairs: Pairs, which: str) -> npt.NDArray[np.float32]:
    """Return the averaged vectors of texts, of length 1 or 0, shape (rows, dimensions); computed once."""
    if ("cosine", which) not in pairs.memory:
        known = WordVectors.load(ENCODER)
        place = {word: number for number, word in enumerate(known.words)}
        vectors = np.asarray(known.vectors, np.float32)
        vectors = vectors - vectors.mean(axis=0)
        sums = np.zeros((len(pairs), vectors.shape[1]), np.float32)
        for row, words in enumerate(pairs.words(which)):
            found = [place[word] for word in words if word in place]
            if found:
                sums[row] = vectors[found].mean(axis=0)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        pairs.memory["cosine", which] = np.divide(sums, lengths, out=sums, where=lengths > 0)
    made: npt.NDArray[np.float32] = pairs.memory["cosine", which]
    return made
