"""Twins: canary rows of equal text under different ids, whose releases agree no oftener than two draws of a word do.

Draws are functions of the record id and the text (docs/spec/stream.md#record-key), so equal texts of two records are
drawn independently: word i of both releases is the same with probability c_i = sum over y of P(y | word i)^2. Whatever
joins the draws of records shows itself as agreement: one seed for all workers, a generator that every shard starts
anew, samples that are kept for equal texts or words, a key without the record id. No real text takes part.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dptext_etl.checks.canaries.chances import upper_bound
from dptext_etl.checks.poisson_binomial import grouped_threshold
from dptext_etl.errors import PolicyError
from dptext_etl.families.by_word import WordByWord

PAIRS = 1_024
"""Of a simulation of one text's agreements."""

Words = tuple[str, ...]
Coins = Counter[float]


class Comparison(NamedTuple):
    """One way of comparing twins: how much was compared, how much of it agrees, and the least count that is too much.

    Attributes:
        name: What was compared.
        compared: Pairs of words, or of rows.
        equal: Those that agree.
        limit: The least number that a correct run reaches with probability at most its share of the false alarms.
    """

    name: str
    compared: int
    equal: int
    limit: int

    @property
    def beyond_chance(self) -> bool:
        """Whether too many agree."""
        return self.equal >= self.limit


class _Row(NamedTuple):
    shard: int
    half: int
    outputs: Words


class Twins:
    """The twins of one column; a column that hides the length of its texts is not compared word by word.

    Args:
        name: The column.
        mechanism: Its mechanism.
    """

    def __init__(self, name: str, mechanism: WordByWord) -> None:
        self.name = name
        self._mechanism = mechanism
        self._known = frozenset(mechanism.input_words()) if mechanism.unknown == "drop" else None
        self._texts: dict[int, Words] = {}
        self._rows: dict[int, list[_Row]] = defaultdict(list)

    def feed(self, place: tuple[int, int, int], words: Words, text: Any) -> None:
        """Take the release of a canary row.

        Args:
            place: Number of its text, of its shard, and which of the two rows of that text in the shard it is.
            words: Its words.
            text: What was released; one of another length than the words is no twin (`canaries_native` says so).
        """
        if self._mechanism.hides_length:
            return
        twin, shard, half = place
        words = tuple(word for word in words[: self._mechanism.n_max] if self._known is None or word in self._known)
        outputs = tuple(text.split(" ")) if isinstance(text, str) and text else ()
        if words and len(outputs) == len(words):
            self._texts[twin] = words
            self._rows[twin].append(_Row(shard, half, outputs))

    def comparisons(self, alarm: float) -> list[Comparison]:
        """Compare, each way with a quarter of what is left of `alarm` after estimating chances.

        Raises:
            PolicyError: A word has no chance that could be computed.
        """
        if not self._texts:
            return []
        chances, repeated, left = self._chances(alarm)
        share = left / 4
        return [
            self._aligned("twins of a shard", self._within(), chances, share),
            self._aligned("twins of two shards", self._across(), chances, share),
            self._repeated(repeated, share),
            self._identical(chances, share),
        ]

    def _within(self) -> Iterator[tuple[int, Words, Words]]:
        """Pair the two rows of a text in a shard."""
        for twin, rows in self._rows.items():
            by_shard: dict[int, dict[int, Words]] = defaultdict(dict)
            for row in rows:
                by_shard[row.shard][row.half] = row.outputs
            yield from ((twin, found[0], found[1]) for found in by_shard.values() if len(found) == 2)

    def _across(self) -> Iterator[tuple[int, Words, Words]]:
        """Pair the first row of a text in a shard with that in the next one; every row stands in one pair at most."""
        for twin, rows in self._rows.items():
            front = [row.outputs for row in sorted(rows) if row.half == 0]
            yield from ((twin, one, other) for one, other in zip(front[::2], front[1::2], strict=False))

    def _aligned(
        self, name: str, pairs: Iterable[tuple[int, Words, Words]], chances: dict[int, tuple[float, ...]], alarm: float
    ) -> Comparison:
        coins: Coins = Counter()
        equal = 0
        for twin, one, other in pairs:
            coins.update(chances[twin])
            equal += sum(a == b for a, b in zip(one, other, strict=True))
        return Comparison(name, coins.total(), equal, _limit(coins, alarm))

    def _repeated(self, chances: dict[int, tuple[float, ...]], alarm: float) -> Comparison:
        """Pair the occurrences of a word in a row: "same word, same replacement" inside a record."""
        coins: Coins = Counter()
        equal = 0
        for twin, rows in self._rows.items():
            for (one, other), chance in zip(_repeats(self._texts[twin]), chances[twin], strict=True):
                coins[chance] += len(rows)
                equal += sum(row.outputs[one] == row.outputs[other] for row in rows)
        return Comparison("a word twice in a row", coins.total(), equal, _limit(coins, alarm))

    def _identical(self, chances: dict[int, tuple[float, ...]], alarm: float) -> Comparison:
        """Count pairs of rows that agree in every word, wherever they are; Markov: P[X >= t] <= E[X] / t."""
        compared = equal = 0
        expected = 0.0
        for twin, rows in self._rows.items():
            pairs = math.comb(len(rows), 2)
            compared += pairs
            expected += pairs * math.prod(chances[twin]) * (1 + 1e-9)
            equal += sum(math.comb(times, 2) for times in Counter(row.outputs for row in rows).values())
        return Comparison("rows of one text", compared, equal, max(1, math.ceil(expected / alarm)))

    def _chances(self, alarm: float) -> tuple[dict[int, tuple[float, ...]], dict[int, tuple[float, ...]], float]:
        """Return the chance of agreement of every word of every text, that of its repeats, and what is left of `alarm`.

        Where no fractions express the law, half of `alarm` goes to simulations: of every text as a whole, and of the
        words that stand in it twice, which may agree oftener than the others. The mean of what was simulated together
        stands for each: of coins of one mean, equal ones have the heaviest tail (Hoeffding 1956) and the largest
        product.
        """
        repeats = {twin: tuple(text[one] for one, _ in _repeats(text)) for twin, text in self._texts.items()}
        try:
            words = {word for text in self._texts.values() for word in text}
            exact = {word: self._mechanism.collision(word) for word in words}
        except PolicyError:
            share = alarm / 4 / len(self._texts)
            whole, twice = (
                {twin: self._simulated(text, share) for twin, text in of.items()} for of in (self._texts, repeats)
            )
            return whole, twice, alarm / 2
        whole, twice = (
            {twin: tuple(exact[w] for w in text) for twin, text in of.items()} for of in (self._texts, repeats)
        )
        return whole, twice, alarm

    def _simulated(self, text: Words, alarm: float) -> tuple[float, ...]:
        if not text:
            return ()
        pairs = -(-PAIRS // len(text)) * len(text)
        found = self._mechanism.simulated_collisions(text, pairs)
        mean = 1.0 if found is None else upper_bound(found, pairs, alarm)
        return (mean,) * len(text)


def _repeats(words: Words) -> list[tuple[int, int]]:
    """Places of equal words, in pairs; every place stands in one pair at most."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(words):
        places[word].append(place)
    return [pair for found in places.values() for pair in zip(found[::2], found[1::2], strict=False)]


def _limit(coins: Coins, alarm: float) -> int:
    mean = sum(chance * times for chance, times in coins.items())
    return max(grouped_threshold(list(coins), list(coins.values()), alarm), math.ceil(mean) + 1)
