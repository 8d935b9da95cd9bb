"""Measure how varied the language of a release is, next to the raw texts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice, pairwise
from typing import ClassVar

from dptext_etl_eval.measure import Metric, Score
from dptext_etl_eval.pairs import RAW, RELEASED, Pairs

READ = 20_000
"""Words that are read of each, because long texts repeat more."""


class Diversity(Metric):
    """Distinct words and distinct pairs of words among the first 20,000 (distinct-1 and -2, Li et al. 2016)."""

    title: ClassVar[str] = "Variety of words"
    says: ClassVar[str] = (
        f"Share of different words, and of different pairs of words, among the first {READ:,} words. It says nothing "
        "of sense: random words are varied."
    )
    order: ClassVar[int] = 60
    weight: ClassVar[float] = 0.1

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return both shares for the release, next to the raw texts."""
        least = min(READ, *(sum(map(len, pairs.words(which))) for which in (RAW, RELEASED)))
        if not least:
            return [Score("different words", None, note="one side holds no words")]
        raw, released = (_distinct(pairs.words(which), least) for which in (RAW, RELEASED))
        names = ("different words", "different pairs of words")
        return [Score(name, now, raw=was) for name, now, was in zip(names, released, raw, strict=True)]


def _distinct(texts: list[list[str]], count: int) -> tuple[float, float]:
    words = list(islice(chain.from_iterable(texts), count))
    couples = list(islice(chain.from_iterable(pairwise(text) for text in texts), count))
    return len(set(words)) / len(words), len(set(couples)) / max(1, len(couples))
