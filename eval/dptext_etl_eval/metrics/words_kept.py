"""Measure which words of a raw text are in its own release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from dptext_etl_eval.measure import Metric, Score
from dptext_etl_eval.pairs import RAW, RELEASED, Pairs
from dptext_etl_eval.statistics import wilson

RARE = 2
"""A word is rare if at most this number of raw texts hold it."""


class WordsKept(Metric):
    """Shares of words that stay in place, that stay somewhere in the text, and of rare words that stay."""

    title: ClassVar[str] = "Words that stay"
    says: ClassVar[str] = (
        "Shares of the words of raw texts that are in their own release. The baseline is the same with the release of "
        "another row, so that common words by themselves do not count as kept."
    )
    order: ClassVar[int] = 30
    weight: ClassVar[float] = 0.3

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the shares."""
        before, after = pairs.words(RAW), pairs.words(RELEASED)
        other = after[1:] + after[:1]
        counts = Counter(word for text in before for word in set(text))
        rare = frozenset(word for word, count in counts.items() if count <= RARE)
        return [
            _score("words that stand where they stood", _in_place(before, after), _in_place(before, other)),
            _score("words that stand anywhere in the release", _anywhere(before, after), _anywhere(before, other)),
            _score("different words that stand anywhere", _types(before, after), _types(before, other)),
            _score(
                f"words of at most {RARE} raw texts that stand anywhere",
                _types(before, after, rare),
                _types(before, other, rare),
            ),
        ]


def _score(what: str, counts: tuple[int, int], blind: tuple[int, int]) -> Score:
    if not counts[1]:
        return Score(what, None, note="there are no such words")
    return Score(what, counts[0] / counts[1], wilson(*counts), blind=blind[0] / blind[1])


def _in_place(before: list[list[str]], after: list[list[str]]) -> tuple[int, int]:
    same = sum(sum(a == b for a, b in zip(*pair, strict=False)) for pair in zip(before, after, strict=True))
    return same, sum(map(len, before))


def _anywhere(before: list[list[str]], after: list[list[str]]) -> tuple[int, int]:
    shared = sum((Counter(raw) & Counter(out)).total() for raw, out in zip(before, after, strict=True))
    return shared, sum(map(len, before))


def _types(before: list[list[str]], after: list[list[str]], among: frozenset[str] | None = None) -> tuple[int, int]:
    shared = total = 0
    for raw, out in zip(before, after, strict=True):
        words = set(raw) if among is None else set(raw) & among
        shared, total = shared + len(words & set(out)), total + len(words)
    return shared, total
