"""Count the words of in-vocabulary canaries that came back, and bound how many chance lets come back."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from dptext_etl.checks.canaries.chances import Chances
from dptext_etl.checks.poisson_binomial import Trials
from dptext_etl.families.by_word import WordByWord
from dptext_etl.mechanism import PAD


class Survivors:
    """Holds the counts of one column, by shard.

    Attributes:
        name: The same.
        survived: Words that came back, by shard.
        misaligned: Rows whose number of words is not what was planted.
        at_most: The largest number of words that could come back.
    """

    def __init__(self, name: str, mechanism: WordByWord) -> None:
        self.name = name
        self.survived: dict[int, int] = defaultdict(int)
        self.misaligned = 0
        self.at_most = 0
        self._mechanism = mechanism
        self._known = frozenset(mechanism.input_words()) if mechanism.input_policy()["oov"] == "drop" else None
        self._texts: dict[int, list[tuple[str, ...]]] = defaultdict(list)

    def feed(self, shard: int, words: tuple[str, ...], text: Any) -> None:
        """Count the words of one canary row that came back."""
        words = tuple(word for word in words[: self._mechanism.n_max] if self._known is None or word in self._known)
        outputs = text.split(" ") if isinstance(text, str) and text else []
        if self._mechanism.hides_length:
            fits = len(outputs) <= self._mechanism.n_max
            survived = sum(output in words for output in outputs)
        else:
            fits = len(outputs) == len(words)
            survived = sum(output == word for output, word in zip(outputs, words, strict=False))
        if not fits:
            self.misaligned += 1
            return
        self.survived[shard] += survived
        self.at_most += len(words)
        self._texts[shard].append(words)

    def chances(self, alarm: float) -> tuple[Mapping[int, Trials], float]:
        """Return the trials whose successes were counted."""
        found: dict[int, Trials] = {shard: Counter() for shard in self._texts}
        chances = Chances(self._mechanism, {word for texts in self._texts.values() for text in texts for word in text})
        estimates = sum(len({*text, PAD}) for texts in self._texts.values() for text in texts)
        share = alarm / 2 / max(1, estimates)
        left = alarm if chances.exact else alarm / 2
        if not self._mechanism.hides_length:
            for shard, texts in self._texts.items():
                found[shard].update(chances.survival(word, share) for text in texts for word in text)
            return found, left
        for shard, texts in self._texts.items():
            for text in texts:
                targets = frozenset(text)
                for word, times in Counter(text).items():
                    found[shard][chances.within(word, targets, share)] += times
                found[shard][chances.within(PAD, targets, share)] += self._mechanism.n_max - len(text)
        return found, left
