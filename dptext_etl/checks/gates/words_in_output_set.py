"""Gate `words_in_output_set` requires that a released text consists only of words that its mechanism can draw."""

from __future__ import annotations

import polars as pl

from dptext_etl import _kernel
from dptext_etl.checks.candidate import Candidate, Stage
from dptext_etl.checks.gate import Gate, Verdict


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
    order = 70

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self._sets: dict[str, _kernel.WordSet] = {}  # the output words of columns that have fixed ones
        self._unknown: list[str] = []  # publishable columns of drawn words that have none
        self._open: list[str] = []  # the other columns, to which the gate does not apply
        for item in self.policy.column_policies():
            words, name = item.mechanism.output_words(), item.column or ""
            if words is not None:
                self._sets[name] = _kernel.WordSet(list(words))
            elif item.mechanism.mode == "strict" and item.mechanism.guarantee.unit == "word":
                self._unknown.append(name)
            else:
                self._open.append(name)
        self.state = {"rows": 0, "words": 0, "outside": 0}

    def rows(self, batch: pl.DataFrame) -> None:
        self.state["rows"] += batch.height
        for name, allowed in self._sets.items():
            if name in batch.columns:
                words, outside = outside_words(batch[name], allowed)
                self.state["words"] += words
                self.state["outside"] += outside

    def verdict(self) -> Verdict:
        counts = {**self.state, "columns": len(self._sets), "without_set": len(self._unknown)}
        words, outside = self.state["words"], self.state["outside"]
        message = f"all {words:,} words are output words"
        if outside:
            message = f"{outside:,} of {words:,} words are outside the output set"
        if self._unknown:
            message += f"; not known to be fixed for the publishable columns {', '.join(map(repr, self._unknown))}"
        if self._open:
            message += f"; not applicable, as no words are fixed: {', '.join(map(repr, self._open))}"
        return self.outcome(counts, message, passed=not (outside or self._unknown))


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
