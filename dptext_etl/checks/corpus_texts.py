"""Find the texts of a corpus in released texts: one each, or as many as a text has draws, joined by single spaces."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import polars as pl

from dptext_etl.families.choice import ChoiceMechanism


class Found(NamedTuple):
    """What released texts were made of."""

    # how often each text of the corpus was drawn, by number; released texts with two readings count for none
    drawn: Counter[int]
    outside: int  # texts that no draws could have made


class CorpusTexts:
    """Reads released texts of one column."""

    def __init__(self, mechanism: ChoiceMechanism) -> None:
        self._draws = mechanism.most_positions
        self._nulls = mechanism.null_as_empty
        texts = pl.Series("cell", mechanism.opened.texts, dtype=pl.String)
        self._numbers = texts.to_frame().with_row_index("number")
        self._known = {text: number for number, text in enumerate(texts)} if self._draws > 1 else {}
        self._longest = max(map(len, self._known), default=0)

    def find(self, texts: pl.Series) -> Found:
        """Find what texts were made of; in a column that holds no strings every cell is outside."""
        outside = texts.null_count() if self._nulls else 0
        texts = texts.drop_nulls()
        if texts.dtype != pl.String:
            return Found(Counter(), outside + len(texts))
        if self._draws == 1:
            numbers = texts.to_frame("cell").join(self._numbers, on="cell", how="left")["number"]
            drawn = Counter({row["number"]: row["count"] for row in numbers.drop_nulls().value_counts().to_dicts()})
            return Found(drawn, outside + numbers.null_count())
        drawn = Counter()
        for text in texts:
            ways = self._ways(text)
            outside += not ways
            if len(ways) == 1:
                drawn.update(ways[0])
        return Found(drawn, outside)

    def _ways(self, text: str) -> list[tuple[int, ...]]:
        """Return up to two ways in which a text is made of as many texts of the corpus as it has draws."""
        ends: dict[int, list[tuple[int, ...]]] = {0: [()]}
        for _ in range(self._draws):
            longer: dict[int, list[tuple[int, ...]]] = {}
            for start, ways in ends.items():
                for end, number in self._from(text, start):
                    kept = longer.setdefault(end, [])
                    kept += [(*way, number) for way in ways][: 2 - len(kept)]
            ends = longer
        return ends.get(len(text) + 1, [])

    def _from(self, text: str, start: int) -> list[tuple[int, int]]:
        """Return where texts of the corpus that begin at a place end, one place behind the space, and their numbers."""
        found, end = list[tuple[int, int]](), start
        while end < len(text) and end - start <= self._longest:
            end = text.find(" ", end + 1)
            end = len(text) if end < 0 else end
            number = self._known.get(text[start:end])
            if number is not None:
                found.append((end + 1, number))
        return found
