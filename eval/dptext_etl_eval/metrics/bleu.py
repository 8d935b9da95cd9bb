"""Measure how much of the wording is left, by BLEU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dptext_etl_eval.measure import Metric, Score, library
from dptext_etl_eval.pairs import Pairs


class Bleu(Metric):
    """BLEU of the releases against their raw texts (sacrebleu, Post 2018), divided by 100."""

    title: ClassVar[str] = "BLEU"
    says: ClassVar[str] = (
        "Runs of one to four words that a release shares with its own raw text (sacrebleu). Blind is the same with the "
        "release of another row."
    )
    order: ClassVar[int] = 40

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the figure over all rows."""
        made = library("sacrebleu").BLEU(lowercase=True)
        raw, released = list(pairs.raw), list(pairs.released)
        own, other = (made.corpus_score(texts, [raw]).score / 100 for texts in (released, released[1:] + released[:1]))
        return [Score("BLEU, case ignored", own, blind=other)]
