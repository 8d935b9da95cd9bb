"""Measure how usual the language of a release is, by perplexity under a public language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dptext_etl_eval.measure import Metric, Score
from dptext_etl_eval.ngrams import NAME, Ngrams
from dptext_etl_eval.pairs import RAW, RELEASED, Pairs
from dptext_etl_eval.statistics import RESAMPLES

Reals = npt.NDArray[np.float64]


class Perplexity(Metric):
    """Perplexity of words under our small trigram model, which no mechanism uses (paper 001 takes GPT-2)."""

    title: ClassVar[str] = "Perplexity"
    says: ClassVar[str] = (
        f"How much a language model is surprised by a word, on average ({NAME}: three words, public text, case and "
        "marks ignored); smaller is more usual. Blind is the same words of the raw texts, shuffled over all rows. It "
        "says nothing of sense: frequent words are usual. Compare it within a column only."
    )
    order: ClassVar[int] = 70

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the perplexity of the released words, with raw and shuffled ones, and the share of unknown words."""
        model = Ngrams.load()
        raw, released = (_surprise(model, pairs.words(which)) for which in (RAW, RELEASED))
        if not raw[:, 1].sum() or not released[:, 1].sum():
            return [Score("perplexity per word", None, note="one side holds no words")]
        mixed = np.random.default_rng(0).permutation([word for words in pairs.words(RAW) for word in words])
        resampled = np.random.default_rng(0).integers(0, len(pairs), (RESAMPLES, len(pairs)))
        low, high = np.quantile([_perplexity(released[rows]) for rows in resampled], [0.025, 0.975])
        unknown = [float(found[:, 2].sum() / found[:, 1].sum()) for found in (released, raw)]
        return [
            Score(
                "perplexity per word",
                _perplexity(released),
                (float(low), float(high)),
                blind=float(np.exp(model.surprise(mixed.tolist()).mean())),
                raw=_perplexity(raw),
                unit="number",
            ),
            Score("words that the model does not know", unknown[0], raw=unknown[1]),
        ]


def _surprise(model: Ngrams, texts: Sequence[Sequence[str]]) -> Reals:
    """Return the surprise, the number of words and of unknown words of every text, shape (rows, 3)."""
    return np.array(
        [(model.surprise(words).sum(), len(words), sum(word not in model.place for word in words)) for words in texts]
    )


def _perplexity(found: Reals) -> float:
    return float(np.exp(found[:, 0].sum() / max(1.0, found[:, 1].sum())))
