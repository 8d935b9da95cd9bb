"""Gate `texts_in_corpus` requires that a released text consists of public texts of its mechanism's corpus."""

from __future__ import annotations

from typing import ClassVar

import polars as pl

from dptext_etl.checks.candidate import Stage
from dptext_etl.checks.corpus_texts import CorpusTexts
from dptext_etl.checks.gate import Gate, Verdict
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.policy import Policy


class TextsInCorpus(Gate):
    """Compares every released text with the texts of the corpus, of as many draws as the mechanism makes.

    For mechanisms that draw whole texts it stands in the place of `words_in_output_set`: a list of words would let
    pass any text that is made of the corpus' words.
    """

    catches = (
        "Texts that no draw could have made: an original after a failure, a text of another corpus, a part that was "
        "left out or cut, anything appended to a public text."
    )
    stages = frozenset(Stage)
    problems: ClassVar[tuple[str, ...]] = ("outside",)
    seen: ClassVar[tuple[str, ...]] = ("_texts", "_outside", "_rows")
    order = 71
    synthetic = True

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._public, self._corpora = pl.Series(dtype=pl.String), dict[str, CorpusTexts]()
        if policy.synthetic is not None:
            self._public = pl.Series(policy.statistic.corpus.texts)
        else:
            self._corpora = {
                item.column or "": CorpusTexts(item.mechanism)
                for item in policy.column_policies()
                if isinstance(item.mechanism, ChoiceMechanism)
            }
        self._texts = self._outside = self._rows = 0

    @classmethod
    def applies(cls, policy: Policy) -> bool:
        """Judge releases with a column of whole public texts."""
        return any(isinstance(item.mechanism, ChoiceMechanism) for item in policy.column_policies())

    def feed(self, batch: pl.DataFrame) -> None:
        """Count the texts of a batch that are outside."""
        self._rows += batch.height
        if self.policy.synthetic is not None:
            self._texts += batch.height
            name = self.policy.synthetic.column
            texts = batch[name] if name in batch.columns else pl.Series(dtype=pl.Null)
            public = int(texts.is_in(self._public.implode()).sum()) if texts.dtype == pl.String else 0
            self._outside += batch.height - public
        for name, corpus in self._corpora.items():
            if name in batch.columns:
                self._texts += batch.height
                self._outside += corpus.find(batch[name]).outside

    def verdict(self) -> Verdict:
        """Pass if no text is outside."""
        counts = {
            "rows": self._rows,
            "texts": self._texts,
            "outside": self._outside,
            "columns": len(self._corpora) or 1,
        }
        said = f"all {self._texts} texts are made of public texts"
        if self._outside:
            said = f"{self._outside} of {self._texts} texts are not made of public texts of the corpus"
        return self.outcome(counts, said, passed=not self._outside)
