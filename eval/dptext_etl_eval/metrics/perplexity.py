"""Measure how usual the language of a release is, by perplexity under public language models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dptext_etl_eval.evaluators import surprise
from dptext_etl_eval.measure import Metric, Score
from dptext_etl_eval.ngrams import NAME, Ngrams
from dptext_etl_eval.pairs import RAW, RELEASED, Pairs
from dptext_etl_eval.statistics import RESAMPLES

Reals = npt.NDArray[np.float64]


class Perplexity(Metric):
    """Perplexity under our trigram model, which no mechanism uses, and under a causal model (GPT-2 in the papers)."""

    title: ClassVar[str] = "Perplexity"
    says: ClassVar[str] = (
        f"How much a language model is surprised by a word, on average ({NAME}: three words, public text, case and "
        "marks ignored); smaller is more usual. The baseline is the same words of the raw texts, shuffled over all "
        "rows. It says nothing of sense: frequent words are usual. Compare it within a column only. With "
        "--perplexity-model, perplexity per token of that model, which reads whole texts: of all texts together, and"
        " as the mean over texts, as in papers."
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
        causal = pairs.evaluators.perplexity_model
        unknown = [float(sums[:, 2].sum() / sums[:, 1].sum()) for sums in (released, raw)]
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
            *([] if causal is None else _by_model(causal, pairs)),
        ]


def _by_model(name: str, pairs: Pairs) -> list[Score]:
    """Return the perplexity per token of a causal model; texts without a token to predict are excluded."""
    if ("surprise", RAW, name) not in pairs.memory:
        pairs.memory["surprise", RAW, name] = surprise(name, pairs.raw)
    parts = [part[part[:, 1] > 0] for part in (surprise(name, pairs.released), pairs.memory["surprise", RAW, name])]
    what = ("perplexity per token of the causal model", "mean perplexity over texts of the causal model")
    if not all(map(len, parts)):
        return [Score(title, None, note="one side holds no tokens") for title in what]
    whole = [_perplexity(part) for part in parts]
    means = [float(np.exp(part[:, 0] / part[:, 1]).mean()) for part in parts]
    return [
        Score(title, released, raw=raw, unit="number")
        for title, (released, raw) in zip(what, (whole, means), strict=True)
    ]


def _surprise(model: Ngrams, texts: Sequence[Sequence[str]]) -> Reals:
    """Return the surprise, the number of words and of unknown words of every text, shape (rows, 3)."""
    return np.array(
        [(model.surprise(words).sum(), len(words), sum(word not in model.place for word in words)) for words in texts]
    )


def _perplexity(sums: Reals) -> float:
    return float(np.exp(sums[:, 0].sum() / max(1.0, sums[:, 1].sum())))
