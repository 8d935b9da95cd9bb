"""Count the queries of a public word that reveal it: the query attack of paper 004 on the mechanism of a policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dptext_etl.errors import PolicyError
from dptext_etl.families.words import WordMechanism
from dptext_etl.mechanism import PAD
from dptext_etl_eval.measure import Attack, Score
from dptext_etl_eval.pairs import WORD_MECHANISM, Pairs
from dptext_etl_eval.query_attack import QueryAttack, queries_needed
from dptext_etl_eval.statistics import wilson

WORDS, FEW = 20, 5
FREQUENT = 4_000
"""Words are taken evenly from so many first words of the vocabulary."""
COUNTS = (1, 10, 100, 1_000)
_REPEATS, _LARGE = 400, 1_000


class Query(Attack):
    """Queries of one word, independently drawn, until its most frequent answer is the word in 95 of 100 attacks."""

    title: ClassVar[str] = "Asking for a word again and again"
    says: ClassVar[str] = (
        "The attacker gets N independent answers for a word and takes the most frequent one. The figure depends "
        f"only on the mechanism and at most {WORDS} public words, not on the texts. A release answers equal queries "
        "equally; but anyone who may submit one text under many ids gets independent answers. Blind is a guess among "
        "the words that are asked."
    )
    knows: ClassVar[str] = "only answers, and a way to have one text released under many ids"
    needs: ClassVar[frozenset[str]] = frozenset({WORD_MECHANISM})
    order: ClassVar[int] = 60
    weight: ClassVar[float] = 3.0

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the shares of words that 1, 10, 100 and 1,000 queries reveal, and the median number of queries."""
        assert isinstance(pairs.mechanism, WordMechanism)  # noqa: S101  (`needs` says so)
        found = [item for word in asked(pairs.mechanism) if (item := _attacked(pairs.mechanism, word)) is not None]
        if not found:
            return [Score("words revealed", None, note="the mechanism answers for no single word")]
        needed = sorted(item.queries or float("inf") for item in found)
        hits = {count: sum(queries <= count for queries in needed) for count in COUNTS}
        middle = needed[(len(needed) - 1) // 2]
        finite = middle != float("inf")
        return [
            *(
                Score(
                    f"words that {count:,} {'query reveals' if count == 1 else 'queries reveal'}",
                    hits[count] / len(found),
                    wilson(hits[count], len(found)),
                    blind=1 / len(found),
                )
                for count in COUNTS
            ),
            Score(
                "median number of queries",
                middle if finite else None,
                unit="number",
                note="" if finite else f"more than {COUNTS[-1]:,}, or the word is not its own likeliest answer",
            ),
        ]


def asked(mechanism: WordMechanism) -> list[str]:
    """Return public words, evenly from the most frequent ones of the vocabulary; few where answers must be drawn."""
    known = [word for word in mechanism.input_words()[:FREQUENT] if word != PAD]
    words = WORDS if _answers(mechanism, known[0]) else FEW
    return known[:: max(1, len(known) // words)][:words]


def _attacked(mechanism: WordMechanism, word: str) -> QueryAttack | None:
    """Attack one word, with fewer repeats where many answers make them dear; None if it cannot be asked for."""
    repeats = _REPEATS if 0 < _answers(mechanism, word) <= _LARGE else _REPEATS // 4
    try:
        return queries_needed(mechanism, word, repeats=repeats, limit=COUNTS[-1])
    except PolicyError:
        return None


def _answers(mechanism: WordMechanism, word: str) -> int:
    """Return the number of a word's answers; 0 where there are no exact fractions."""
    try:
        return len(mechanism.transition(word)[0])
    except PolicyError:
        return 0
