"""Gate `words_in_output_set` requires that a released text consists only of words that its mechanism can draw."""

from __future__ import annotations

import polars as pl

from dptext_etl import _kernel
from dptext_etl.checks.candidate import Stage
from dptext_etl.checks.gate import Gate, Verdict
from dptext_etl.policy import Policy


class WordsInOutputSet(Gate):
    """Compares every word of every released text with the mechanism's public output words.

    A mechanism that draws words but has no fixed output words passes only if it is faithful; a faithful one is never
    published. A mechanism that spells or decodes texts can write any word, so nothing is compared.
    """

    catches = (
        "Words that no draw could have made: unknown words and numbers in clear, copied case or punctuation, an "
        "original after a failure, markers such as a mask or padding, a second column's text appended."
    )
    stages = frozenset(Stage)
    seen = ("_words", "_outside", "_rows")
    order = 70

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._sets: dict[str, _kernel.WordSet] = {}  # the output words of columns that have fixed ones
        self._unknown: list[str] = []  # publishable columns of drawn words that have none
        self._open: list[str] = []  # the other columns, to which the gate does not apply
        for item in policy.column_policies():
            words, name = item.mechanism.output_words(), item.column or ""
            if words is not None:
                self._sets[name] = _kernel.WordSet(list(words))
            elif item.mechanism.mode == "strict" and item.mechanism.guarantee.unit == "word":
                self._unknown.append(name)
            else:
                self._open.append(name)
        self._words = self._outside = self._rows = 0

    def feed(self, batch: pl.DataFrame) -> None:
        self._rows += batch.height
        for name, allowed in self._sets.items():
            if name in batch.columns:
                words, outside = outside_words(batch[name], allowed)
                self._words += words
                self._outside += outside

    def verdict(self) -> Verdict:
        counts = {"rows": self._rows, "words": self._words, "outside": self._outside, "columns": len(self._sets)}
        counts["without_set"] = len(self._unknown)
        message = f"all {self._words} words are output words"
        if self._outside:
            message = f"{self._outside} of {self._words} words are outside the output set"
        if self._unknown:
            message += f"; not known to be fixed for the publishable columns {', '.join(map(repr, self._unknown))}"
        if self._open:
            message += f"; not applicable, as no words are fixed: {', '.join(map(repr, self._open))}"
        return self.outcome(counts, message, passed=not (self._outside or self._unknown))


def outside_words(texts: pl.Series, allowed: _kernel.WordSet) -> tuple[int, int]:
    """Count the words of texts, and those outside `allowed`.

    A single U+0020 separates words. An empty text has none. A doubled or leading blank makes an empty word, which is
    outside. In a column that holds no strings every cell counts as one word outside.
    """
    if texts.dtype != pl.String:
        cells = len(texts) - texts.null_count()
        return cells, cells
    return allowed.outside(texts)


def inside_output_set(texts: pl.Series, allowed: pl.Series) -> pl.Series:
    """Say of every text whether all its words are in `allowed`; an empty text and a null are inside."""
    cell = pl.col("cell")
    words = cell.str.split(" ").list.eval(pl.element().is_in(allowed.implode())).list.all()
    return texts.cast(pl.String).to_frame("cell").select((words | (cell == "")).fill_null(value=True)).to_series()
