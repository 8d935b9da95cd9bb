"""Compare paired canaries: rows of equal text under different ids.

Draws are functions of the record id and the text (docs/spec/stream.md#record-key), so equal texts of two records are
drawn independently: word i of both releases is the same with probability c_i = sum over y of P(y | word i)^2. A defect
that joins the draws of records shows as more agreement: one seed for all workers, a generator that every shard starts
anew, samples that are kept for equal texts or words, a key without the record id. No real text takes part.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dptext_etl.checks.canaries.chances import upper_bound
from dptext_etl.checks.poisson_binomial import Trials, least_suspicious
from dptext_etl.errors import PolicyError
from dptext_etl.families.by_word import Simulated, WordByWord

PAIRS = 1_024
"""Pairs of draws behind the simulated agreement of one text."""

Words = tuple[str, ...]
Chances = dict[int, tuple[float, ...]]


class Comparison(NamedTuple):
    """Holds the outcome of one way to compare paired canaries.

    Attributes:
        name: What was compared.
        compared: Pairs of words, or of rows.
        equal: How many of them agree.
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


class PairedCanaries:
    """Compares the paired canaries of one column; a column that hides the length of its texts has none."""

    def __init__(self, name: str, mechanism: WordByWord) -> None:
        self.name = name
        self._mechanism = mechanism
        self._known = frozenset(mechanism.input_words()) if mechanism.input_policy()["oov"] == "drop" else None
        self._texts: dict[int, Words] = {}
        self._rows: dict[int, list[_Row]] = defaultdict(list)

    def feed(self, place: tuple[int, int, int], words: Words, text: Any) -> None:
        """Take the release of a canary row."""
        if self._mechanism.hides_length:
            return
        pair, shard, half = place
        words = tuple(word for word in words[: self._mechanism.n_max] if self._known is None or word in self._known)
        outputs = tuple(text.split(" ")) if isinstance(text, str) and text else ()
        if words and len(outputs) == len(words):
            self._texts[pair] = words
            self._rows[pair].append(_Row(shard, half, outputs))

    def comparisons(self, alarm: float) -> list[Comparison]:
        """Compare in four ways: inside a shard, across shards, inside a row, and whole rows."""
        if not self._texts:
            return []
        chances, repeated, left = self._chances(alarm)
        share = left / 4
        return [
            self._aligned("pairs of a shard", self._within(), chances, share),
            self._aligned("pairs of two shards", self._across(), chances, share),
            self._repeated(repeated, share),
            self._identical(chances, share),
        ]

    def _within(self) -> Iterator[tuple[int, Words, Words]]:
        """Pair the two rows of a text in a shard."""
        for pair, rows in self._rows.items():
            by_shard: dict[int, dict[int, Words]] = defaultdict(dict)
            for row in rows:
                by_shard[row.shard][row.half] = row.outputs
            yield from ((pair, found[0], found[1]) for found in by_shard.values() if len(found) == 2)

    def _across(self) -> Iterator[tuple[int, Words, Words]]:
        """Pair the first row of a text in a shard with that in the next shard; a row stands in one pair at most."""
        for pair, rows in self._rows.items():
            front = [row.outputs for row in sorted(rows) if row.half == 0]
            yield from ((pair, one, other) for one, other in zip(front[::2], front[1::2], strict=False))

    def _aligned(
        self, name: str, pairs: Iterable[tuple[int, Words, Words]], chances: Chances, alarm: float
    ) -> Comparison:
        trials: Trials = Counter()
        equal = 0
        for pair, one, other in pairs:
            trials.update(chances[pair])
            equal += sum(a == b for a, b in zip(one, other, strict=True))
        return Comparison(name, trials.total(), equal, _limit(trials, alarm))

    def _repeated(self, chances: Chances, alarm: float) -> Comparison:
        """Pair the occurrences of a word in a row: "same word, same replacement" inside a record."""
        trials: Trials = Counter()
        equal = 0
        for pair, rows in self._rows.items():
            for (one, other), chance in zip(_repeats(self._texts[pair]), chances[pair], strict=True):
                trials[chance] += len(rows)
                equal += sum(row.outputs[one] == row.outputs[other] for row in rows)
        return Comparison("a word twice in a row", trials.total(), equal, _limit(trials, alarm))

    def _identical(self, chances: Chances, alarm: float) -> Comparison:
        """Count pairs of rows that agree in every word, wherever they are; Markov: P[X >= t] <= E[X] / t."""
        compared = equal = 0
        expected = 0.0
        for pair, rows in self._rows.items():
            pairs = math.comb(len(rows), 2)
            compared += pairs
            expected += pairs * math.prod(chances[pair]) * (1 + 1e-9)
            equal += sum(math.comb(times, 2) for times in Counter(row.outputs for row in rows).values())
        return Comparison("rows of one text", compared, equal, max(1, math.ceil(expected / alarm)))

    def _chances(self, alarm: float) -> tuple[Chances, Chances, float]:
        """Bound the chance that words agree.

        Where no fractions express the output distribution, half of `alarm` goes to simulations: of every text as a
        whole, and of the words that stand in it twice, which may agree oftener than the others. The mean of the words
        that were simulated together stands for each of them: among Bernoulli trials of one mean, equal chances have the
        heaviest tail (Hoeffding 1956) and the largest product.
        """
        repeats = {pair: tuple(text[one] for one, _ in _repeats(text)) for pair, text in self._texts.items()}
        try:
            words = {word for text in self._texts.values() for word in text}
            exact = {word: self._mechanism.collision(word) for word in words}
        except PolicyError:
            share = alarm / 4 / len(self._texts)
            whole, twice = (
                {pair: self._simulated(text, share) for pair, text in of.items()} for of in (self._texts, repeats)
            )
            return whole, twice, alarm / 2
        whole, twice = (
            {pair: tuple(exact[w] for w in text) for pair, text in of.items()} for of in (self._texts, repeats)
        )
        return whole, twice, alarm

    def _simulated(self, text: Words, alarm: float) -> tuple[float, ...]:
        if not text:
            return ()
        pairs, mean = -(-PAIRS // len(text)) * len(text), 1.0
        if isinstance(self._mechanism, Simulated):
            mean = upper_bound(self._mechanism.simulated_collisions(text, pairs), pairs, alarm)
        return (mean,) * len(text)


def _repeats(words: Words) -> list[tuple[int, int]]:
    """Places of equal words, in pairs; every place stands in one pair at most."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(words):
        places[word].append(place)
    return [pair for found in places.values() for pair in zip(found[::2], found[1::2], strict=False)]


def _limit(trials: Trials, alarm: float) -> int:
    mean = sum(chance * times for chance, times in trials.items())
    return max(least_suspicious(trials, alarm), math.ceil(mean) + 1)
