"""Read a release in context: what were the words, given what the mechanism does and what language is like?

The attacker knows the mechanism and treats a word as likely where it both gives the released word often and fits the
words around it. Likelihoods of the mechanism and probabilities of a language model are multiplied along a text, and a
beam search finds the best raw text (a noisy channel; Shannon 1951, Jelinek 1976).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import PolicyError
from dptext_etl.families.words import WordMechanism, sample_many
from dptext_etl.mechanism import PAD
from dptext_etl_eval.evaluators import surprise
from dptext_etl_eval.measure import Attack, Score
from dptext_etl_eval.ngrams import NAME, OTHERS, START, Ngrams
from dptext_etl_eval.pairs import RAW, RELEASED, WORD_MECHANISM, Pairs
from dptext_etl_eval.statistics import wilson

POSITIONS = 1_000
"""Words that are attacked, in whole texts."""
CANDIDATES = 40
BEAM = 12
_LARGE, _DISTINCT = 1_000, 120
"""Mechanisms with more outputs cost more per word, so fewer different words are attacked."""
_SAMPLES = 400

Reals = npt.NDArray[np.float64]


class Candidates(NamedTuple):
    """Words that may be behind a released one."""

    words: tuple[str, ...]  # the words
    numbers: npt.NDArray[np.int64]  # their numbers in the language model, shape (words,)
    logs: Reals  # logarithms of the probabilities that the mechanism releases the word for them, shape (words,)


class Reconstruction(Attack):
    """Share of raw words that an attacker gets back who weighs the mechanism's odds with a small language model."""

    title: ClassVar[str] = "Reading the release in context"
    says: ClassVar[str] = (
        "The attacker searches for the raw text that explains a release best: the mechanism's odds times a small "
        f"language model of ours ({NAME}, public text, beam search). With --perplexity-model, that causal model "
        "chooses among the best readings. Position by position; blind always guesses the most common word of our "
        "model. Compare it with guessing every released word as it is."
    )
    knows: ClassVar[str] = "the release, the mechanism (no key), and public text"
    needs: ClassVar[frozenset[str]] = frozenset({WORD_MECHANISM})
    order: ClassVar[int] = 55
    weight: ClassVar[float] = 12.0

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the shares of words, and of words that the mechanism changed, that the attacker gets right."""
        assert isinstance(pairs.mechanism, WordMechanism)  # noqa: S101  (`needs` says so)
        model = Ngrams.load()
        common = max(model.place, key=lambda word: model.unigrams[model.place[word]])
        channel = Channel(pairs.mechanism, model)
        causal = pairs.evaluators.perplexity_model
        counts, by_model = Counter[str](), Counter[str]()
        for raw, released in zip(pairs.words(RAW), pairs.words(RELEASED), strict=True):
            if counts["words"] >= POSITIONS or channel.is_full:
                break
            if len(raw) != len(released) or not raw:
                continue
            readings = hypotheses(model, [channel.behind(word) for word in released])
            counts.update(_counted(raw, released, readings[0][0], common))
            if causal is not None:
                by_model.update(_counted(raw, released, chosen(causal, readings), common))
        scores = _scores(counts)
        if causal is None:
            return scores
        named = (replace(score, what=f"{score.what}, {Path(causal).name}") for score in _scores(by_model)[::2])
        return [*scores, *named]


def _counted(raw: Sequence[str], released: Sequence[str], guessed: Sequence[str], common: str) -> Counter[str]:
    """Count words of a text that are right, and those that the mechanism changed."""
    counts = Counter[str]()
    for true, shown_word, guess in zip(raw, released, guessed, strict=True):
        changed = true != shown_word
        counts.update({"words": 1, "changed": changed, "right": guess == true, "shown": not changed})
        counts.update({"back": changed and guess == true, "common": true == common})
        counts["common changed"] += changed and true == common
    return counts


def chosen(name: str, readings: Sequence[tuple[list[str], float]]) -> list[str]:
    """Return the reading that a causal language model and the mechanism's odds together find likeliest."""
    surprises = surprise(name, [" ".join(words) for words, _ in readings])[:, 0]
    return readings[int(np.argmax([odds - cost for (_, odds), cost in zip(readings, surprises, strict=True)]))][0]


class Channel:
    """An attacker's knowledge of a mechanism: how likely words behind a released word are."""

    def __init__(self, mechanism: WordMechanism, model: Ngrams) -> None:
        self._mechanism, self._model = mechanism, model
        self._dear = False
        self._outputs: dict[str, dict[str, float]] = {}
        self._known: dict[str, Candidates] = {}

    @property
    def is_full(self) -> bool:
        """Return True if as many different words of a dear mechanism were attacked as may be."""
        return self._dear and len(self._known) >= _DISTINCT

    def behind(self, released: str) -> Candidates:
        """Return the likeliest words behind a released word.

        Output sets and distances are mutual: a frequent output of a word often becomes that word. Where a mechanism has
        few outputs, the odds are exact; else the odds of the released word itself replace them.
        """
        if released not in self._known:
            forward = self.outputs(released)
            likely = sorted(forward, key=lambda word: -forward[word])[:CANDIDATES]
            odds = {
                word: forward.get(word, 1e-6) if self._dear else self.outputs(word).get(released, 0.0)
                for word in dict.fromkeys([released, *likely])
                if word != PAD
            }
            words = tuple(word for word, chance in odds.items() if chance > 0) or (released,)
            logs = np.log([max(odds.get(word, 0.0), 1e-12) for word in words])
            self._known[released] = Candidates(words, np.array(self._model.numbers(words)), logs)
        return self._known[released]

    def outputs(self, word: str) -> dict[str, float]:
        """Return the probabilities of a word's outputs; shares of draws where there are no exact fractions."""
        if word not in self._outputs:
            try:
                names, chances = self._mechanism.transition(word)
                self._dear |= len(names) > _LARGE
                self._outputs[word] = dict(zip(names, map(float, chances), strict=True))
            except PolicyError:
                self._dear = True
                drawn = Counter(sample_many(self._mechanism, word, _SAMPLES))
                self._outputs[word] = {name: count / _SAMPLES for name, count in drawn.items()}
        return self._outputs[word]


def hypotheses(model: Ngrams, text: Sequence[Candidates]) -> list[tuple[list[str], float]]:
    """Return the readings that are left at the end of a beam search, best first, each with the mechanism's log odds."""
    before: npt.NDArray[np.int64] = np.array([[START, START]])
    scores, odds = np.zeros(1), np.zeros(1)
    steps: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    for here in text:
        first, second = (np.repeat(before[:, column], len(here.words)) for column in (0, 1))
        third = np.tile(here.numbers, len(before))
        chances = model.chances(first, second, third)
        chances = np.where(third == model.other, chances / OTHERS, chances)
        logs = np.tile(here.logs, len(before))
        every = np.repeat(scores, len(here.words)) + logs + np.log(chances)
        best = np.argsort(-every, kind="stable")[:BEAM]
        steps.append((best // len(here.words), best % len(here.words)))
        odds = (np.repeat(odds, len(here.words)) + logs)[best]
        before, scores = np.stack([second[best], third[best]], axis=1), every[best]
    readings = []
    for end in range(len(scores)):
        at, words = end, list[str]()
        for (parents, picked), here in zip(reversed(steps), reversed(text), strict=True):
            words.append(here.words[picked[at]])
            at = int(parents[at])
        readings.append((words[::-1], float(odds[end])))
    return readings


def _scores(counts: Counter[str]) -> list[Score]:
    if not counts["words"]:
        return [Score("words recovered", None, note="no release has as many words as its raw text")]
    scores = [
        Score(
            what,
            counts[hit] / counts["words"],
            wilson(counts[hit], counts["words"]),
            counts["common"] / counts["words"],
        )
        for what, hit in (("words recovered", "right"), ("released words that are unchanged", "shown"))
    ]
    changed = counts["changed"]
    share = counts["back"] / changed if changed else None
    return [
        *scores,
        Score(
            "changed words recovered",
            share,
            wilson(counts["back"], changed) if changed else None,
            counts["common changed"] / changed if changed else None,
            note="" if changed else "no word was changed",
        ),
    ]
