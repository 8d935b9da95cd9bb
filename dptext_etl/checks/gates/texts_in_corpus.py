"""Gate `texts_in_corpus` requires that a released text consists of public texts of its mechanism's corpus."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import polars as pl

from dptext_etl.checks.candidate import Stage, choice_columns
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
            self._corpora = {name: CorpusTexts(mechanism) for name, mechanism in choice_columns(policy).items()}
        self._texts = self._outside = self._rows = 0

    @classmethod
    def applies(cls, policy: Policy) -> bool:
        return bool(choice_columns(policy))

    def feed(self, batch: pl.DataFrame) -> None:
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
                self._outside += corpus.find(batch[name])[1]

    def verdict(self) -> Verdict:
        columns = len(self._corpora) or 1
        counts = {"rows": self._rows, "texts": self._texts, "outside": self._outside, "columns": columns}
        message = f"all {self._texts} texts are made of public texts"
        if self._outside:
            message = f"{self._outside} of {self._texts} texts are not made of public texts of the corpus"
        return self.outcome(counts, message, passed=not self._outside)


class CorpusTexts:
    """Finds the texts of a corpus in released texts: one each, or several draws joined by single spaces."""

    def __init__(self, mechanism: ChoiceMechanism) -> None:
        self._draws = mechanism.most_positions
        self._nulls = mechanism.null_as_empty
        texts = pl.Series("cell", mechanism.opened.texts, dtype=pl.String)
        self._numbers = texts.to_frame().with_row_index("number")
        self._known = {text: number for number, text in enumerate(texts)} if self._draws > 1 else {}
        self._longest = max(map(len, self._known), default=0)

    def find(self, texts: pl.Series) -> tuple[Counter[int], int]:
        """Return how often each text of the corpus was drawn, by number, and how many texts no draws could have made.

        Released texts with two readings count for no draw. In a column that holds no strings every cell is outside.
        """
        outside = texts.null_count() if self._nulls else 0
        texts = texts.drop_nulls()
        if texts.dtype != pl.String:
            return Counter(), outside + len(texts)
        if self._draws == 1:
            numbers = texts.to_frame("cell").join(self._numbers, on="cell", how="left")["number"]
            drawn = Counter({row["number"]: row["count"] for row in numbers.drop_nulls().value_counts().to_dicts()})
            return drawn, outside + numbers.null_count()
        drawn = Counter()
        for text in texts:
            ways = self._ways(text)
            outside += not ways
            if len(ways) == 1:
                drawn.update(ways[0])
        return drawn, outside

    def counted(self, texts: pl.Series, counts: pl.Series) -> Counter[int]:
        """Return how often each text of the corpus was drawn, by number, where a count stands next to each text."""
        found = pl.DataFrame({"cell": texts, "often": counts}).join(self._numbers, on="cell")
        return Counter(dict(found.group_by("number").agg(pl.col("often").sum()).iter_rows()))

    def _ways(self, text: str) -> list[tuple[int, ...]]:
        """Return up to two ways in which a text is made of as many texts of the corpus as it has draws."""
        ends: dict[int, list[tuple[int, ...]]] = {0: [()]}
        for _ in range(self._draws):
            longer: dict[int, list[tuple[int, ...]]] = {}
            for start, ways in ends.items():
                for end, number in self._from(text, start):
                    longer_ways = longer.setdefault(end, [])
                    longer_ways += [(*way, number) for way in ways][: 2 - len(longer_ways)]
            ends = longer
        return ends.get(len(text) + 1, [])

    def _from(self, text: str, start: int) -> list[tuple[int, int]]:
        """Return where texts of the corpus that begin at a place end, one place behind the space, and their numbers."""
        matches, end = list[tuple[int, int]](), start
        while end < len(text) and end - start <= self._longest:
            end = text.find(" ", end + 1)
            end = len(text) if end < 0 else end
            number = self._known.get(text[start:end])
            if number is not None:
                matches.append((end + 1, number))
        return matches
