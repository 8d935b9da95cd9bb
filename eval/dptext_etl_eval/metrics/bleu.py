"""Measure how much of the wording is left, by BLEU."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dptext_etl_eval.measure import Metric, Score, library
from dptext_etl_eval.pairs import RAW, RELEASED, Pairs


class Bleu(Metric):
    """BLEU of the releases against their raw texts: of all texts together, and as the mean over texts, as papers do."""

    title: ClassVar[str] = "BLEU"
    says: ClassVar[str] = (
        "Runs of one to four words that a release shares with its own raw text. Of all texts together: sacrebleu "
        "(Post 2018), divided by 100. Mean over texts: NLTK without smoothing (Meisenbacher et al. 2025), so that a "
        "text without a shared run of four words counts as 0. The baseline is the same with the release of another "
        "row."
    )
    order: ClassVar[int] = 40

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return both figures over all rows."""
        bleu = library("sacrebleu").BLEU(lowercase=True)
        raw, released = list(pairs.raw), list(pairs.released)
        score, other = (
            bleu.corpus_score(texts, [raw]).score / 100 for texts in (released, released[1:] + released[:1])
        )
        before, after = pairs.words(RAW), pairs.words(RELEASED)
        mean, blind = (mean_bleu(before, texts) for texts in (after, after[1:] + after[:1]))
        return [
            Score("BLEU, case ignored", score, blind=other),
            Score("mean BLEU over texts, as in Meisenbacher et al. 2025", mean, blind=blind),
        ]


def mean_bleu(raw: Sequence[Sequence[str]], released: Sequence[Sequence[str]]) -> float:
    """Return the mean BLEU of texts, as words, against their raw texts (NLTK, up to four words, no smoothing)."""
    score = library("nltk.translate.bleu_score").sentence_bleu
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NLTK warns of every text without shared runs of a length
        return float(np.mean([score([list(text)], list(other)) for text, other in zip(raw, released, strict=True)]))
