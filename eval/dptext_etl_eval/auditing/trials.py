"""Test a release: count how often an event occurs under each of two public inputs, through the code that releases.

The event is chosen on separate draws (the pilot), so that counting it on other draws is a fair test. Other trials
compare two draws that should be independent: of neighboring positions, of two records, of two keys, columns or
releases, of two passes. Draws that repeat each other would show whether two texts are equal, which no finite epsilon
allows (docs/spec/privacy.md#shared-samples).

Where one budget is divided among the draws of a record, a text of one draw gives it the largest part there is. Two
texts of two draws may differ in both divisions, even if they differ in only one word, so the budget of the record
bounds their loss; under a template it is the part of the position in which they differ (docs/spec/privacy.md#theorem-a,
docs/spec/privacy.md#allocation-allowed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import PrivateAttr

from dptext_etl import _kernel
from dptext_etl.allocation import Allocation, Place
from dptext_etl.families.words import WordByWord, WordMechanism
from dptext_etl.guarantee import MICRO
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import Mechanism
from dptext_etl_eval.auditing.results import Counts

Kind = TypeVar("Kind", bound=Mechanism)
Words = TypeVar("Words", bound=WordByWord)

POSITIONS = "two positions"
"""Name of the trial whose texts have two draws, the second of which differs."""
OF_TWO = "one draw of two"
"""Name of the trial of one such text and another, by what both release."""
PASSES = "two passes"
"""Name of the trial of both passes of a text of one draw."""


def limit_of(mechanism: Mechanism, trial: str, otherwise: float) -> float:
    """Return the claimed bound of a trial's loss."""
    allocation = mechanism.allocation
    if allocation is None or trial not in (POSITIONS, OF_TWO):
        return otherwise
    if allocation.template is None:
        return mechanism.epsilon
    return allocation.by_position(allocation.template, 2)[1] / MICRO


def whole(mechanism: Mechanism) -> float | None:
    """Return the epsilon of a record where one budget is divided among its draws; otherwise None."""
    return None if mechanism.allocation is None else mechanism.epsilon


class Watched(Allocation):
    """An allocation of two passes that keeps the first one's release; all words score alike."""

    _first: list[str] = PrivateAttr(default_factory=list)

    @property
    def seen(self) -> list[str]:
        """Return the first pass's release of every text, in the order of the texts."""
        return self._first

    def over(
        self, tokens: Sequence[str], places: Sequence[Place] | None = None, *, draws: int | None = None
    ) -> list[int]:
        """Divide the budget of the second pass, and keep the words of the first."""
        self._first.append(" ".join(tokens).strip())
        return super().over(tokens, places, draws=draws)

    def rated(self, tokens: Sequence[str]) -> list[float]:
        """Return equal scores, so that no tool is loaded."""
        return [1.0] * len(tokens)


def watched(mechanism: Kind) -> tuple[Kind, Watched] | None:
    """Return the mechanism with two passes of equal budgets, whose first one is seen; None where it has one pass.

    With equal budgets, two passes that share a stream release the same word of a text of one draw.
    """
    allocation = mechanism.allocation
    if allocation is None or allocation.first is None:
        return None
    budget = min(allocation.first, allocation.largest)
    same = {name: getattr(allocation, name) for name in allocation.model_fields_set}
    seen = Watched(**same | {"total": budget, "first": budget, "eps_lo": None, "eps_hi": None})
    return mechanism.model_copy(update={"allocation": seen}), seen


UNKNOWN = ("qzxvkj", "90417735")
"""Two texts that no public corpus holds a word of."""
PILOT = 4
"""Number of counted draws per draw of the pilot."""

REPEATED = 7
"""Largest number of trials of repeated draws: of records, keys, columns, releases, nonces, passes and positions."""

Texts = npt.NDArray[np.object_]
Pair = tuple[str | None, str | None]
_NULL = "(null)"


@dataclass(frozen=True)
class Subject:
    """What releases in trials."""

    single: Mechanism  # the mechanism, for texts of one step
    double: Mechanism | None  # the same for texts of two steps; None where a record has one
    # the same as `single` in two passes, and what sees the first; None where a text has one pass
    passes: tuple[Mechanism, Watched] | None = None
    between: str = " "  # the characters between the two words of a text of two steps


def trials(mechanism: WordMechanism, pairs: Sequence[Pair], draws: int, secrets: tuple[Any, Any]) -> Iterator[Counts]:
    """Count the events of every pair of inputs, both ways, and for the first pair events of repeated draws."""
    single = of_words(mechanism, 1)
    return trials_of(Subject(single, of_words(mechanism, 2), watched(single)), pairs, draws, secrets)


def trials_of(subject: Subject, pairs: Sequence[Pair], draws: int, secrets: tuple[Any, Any]) -> Iterator[Counts]:
    """Count as `trials` does, for any subject that releases."""
    for number, (word, other) in enumerate(pairs):
        two = subject.double is not None and " " in (word or "")
        single = subject.double if two and subject.double is not None else subject.single
        key, pilot_key = (_kernel.ReleaseKey(secret, "audit", "words", "audit", single.cfg()) for secret in secrets)
        counted = _released(single, key, [word, other] * draws)
        pilot = _released(single, pilot_key, [word, other] * max(1, draws // PILOT))
        turned = _released(single, pilot_key, [other, word] * max(1, draws // PILOT))
        seen, other_seen = Counter(counted[0::2]), Counter(counted[1::2])
        guide = Counter(pilot[0::2]) + Counter(turned[1::2])
        other_guide = Counter(pilot[1::2]) + Counter(turned[0::2])
        trial, (left, right) = OF_TWO if two else "one draw", _named(word, other)
        yield _likelier(trial, (left, right), seen, other_seen, _event(guide, other_guide))
        yield _likelier(trial, (right, left), other_seen, seen, _event(other_guide, guide))
        if number == 0:
            yield _differ(
                "two records", (left, right), (counted[0:-2:4], counted[2::4]), (counted[0::2], counted[1::2])
            )
            first = counted[0 : len(pilot) : 2]
            yield _differ("two keys", (left, right), (first, pilot[0::2]), (first, turned[0::2]))
            for trial, again in _again(single, secrets[0], [word, other] * max(1, draws // PILOT)):
                yield _differ(trial, (left, right), (first, again[0::2]), (first, again[1::2]))
            if subject.passes is not None:
                yield _of_passes(*subject.passes, (left, right), draws, secrets[0])
            if subject.double is not None:
                yield _of_positions(subject.double, (left, right), subject.between, draws, secrets[0])


def _again(single: Mechanism, secret: Any, texts: Sequence[str | None]) -> Iterator[tuple[str, Texts]]:
    """Release the same records as another column, under another release name, and as an extra release of it."""
    cfg = single.cfg()
    yield "two columns", _released(single, _kernel.ReleaseKey(secret, "audit", "others", "audit", cfg), texts)
    yield "two releases", _released(single, _kernel.ReleaseKey(secret, "audit", "words", "again", cfg), texts)
    yield "two nonces", _released(single, _kernel.ReleaseKey(secret, "audit", "words", "audit", cfg), texts, nonce=1)


def _of_passes(twice: Mechanism, watch: Watched, words: tuple[str, str], draws: int, secret: Any) -> Counts:
    """Two passes of a text of one draw: of one word, and the first of it with the second of another record's word."""
    key = _kernel.ReleaseKey(secret, "audit", "passes", "audit", twice.cfg())
    watch.seen.clear()
    second = np.array([_words(text) for text in _released(twice, key, list(words) * draws)], dtype=object)
    first = np.array([_words(text) for text in watch.seen], dtype=object)
    return _differ(PASSES, words, (first[0::2], second[0::2]), (first[0::2], second[1::2]))


def _of_positions(double: Mechanism, words: tuple[str, str], between: str, draws: int, secret: Any) -> Counts:
    """Two draws of one record: of one word twice, and of two words."""
    key = _kernel.ReleaseKey(secret, "audit", "positions", "audit", double.cfg())
    texts = [between.join(text).strip() for text in ((words[0], words[0]), words)]
    pairs = [_two(text) for text in _released(double, key, texts * draws)]
    left, right = (np.array(side, dtype=object) for side in zip(*pairs, strict=True))
    return _differ(POSITIONS, words, (left[0::2], right[0::2]), (left[1::2], right[1::2]))


def _words(text: str) -> str:
    """Return the words of a text, without the characters between them, which a first pass is not read with."""
    return " ".join(piece for piece, is_word in _kernel.split(text) if is_word)


def _two(text: str) -> tuple[str, str]:
    """Return the two outputs of a text of two draws; padding, which is released as nothing, comes last."""
    first, _, second = text.partition(" ")
    return first, second


def of_words(mechanism: Words, words: int) -> Words:
    """Return the mechanism for texts of `words` words if the length is hidden, without the noise of the length."""
    hidden = {"length": "fixed", "epsilon_length": None, "n_max": words}
    return mechanism.model_copy(update=hidden) if mechanism.length != "disclose" else mechanism


def at_small(mechanism: Kind, epsilon: float) -> Kind:
    """Return the mechanism at an epsilon of three digits, which draws can refute."""
    return mechanism.model_copy(update={"epsilon": float(f"{epsilon:.3g}")})


def _released(mechanism: Mechanism, key: Any, texts: Sequence[str | None], nonce: int = 0) -> Texts:
    """Release texts, each its own record."""
    ids = pa.array(np.arange(len(texts)).astype(str))
    text = mechanism.release(pa.array(texts, pa.large_string()), RecordKeys(key, ids, nonce)).text
    released: Texts = text.fill_null(_NULL).to_numpy(zero_copy_only=False)
    return released


def _named(word: str | None, other: str | None) -> tuple[str, str]:
    return _NULL if word is None else word, _NULL if other is None else other


def _event(guide: Counter[str], other_guide: Counter[str]) -> frozenset[str]:
    """Choose the outputs that are likelier under the first input, so that the pilot's counts give the best bound."""
    ranked = sorted(
        guide | other_guide, key=lambda text: (-(guide[text] + 0.5) / (other_guide[text] + 0.5), -guide[text], text)
    )
    draws, other_draws = guide.total(), other_guide.total()
    hits = np.cumsum([guide[text] for text in ranked])
    other_hits = np.cumsum([other_guide[text] for text in ranked])
    # a normal approximation is good enough for the choice, since the event is counted on other draws
    shares, other_shares = (hits + 0.5) / draws, (other_hits + 2.0) / other_draws
    gains = np.log(shares / other_shares) - 2 * np.sqrt(1 / (hits + 0.5) + 1 / (other_hits + 2.0))
    return frozenset(ranked[: int(np.argmax(gains)) + 1])


def _likelier(
    trial: str, words: tuple[str, str], seen: Counter[str], other_seen: Counter[str], event: frozenset[str]
) -> Counts:
    counted = [sum(counter[text] for text in event) for counter in (seen, other_seen)]
    description = f"one of {len(event):,} outputs" if len(event) > 1 else "one output"
    return Counts(trial, words, description, counted[0], seen.total(), counted[1], other_seen.total())


def _differ(trial: str, words: tuple[str, str], same: tuple[Texts, Texts], apart: tuple[Texts, Texts]) -> Counts:
    """Count pairs of draws that differ, from two words (first) and from one word twice (second)."""
    hits, other_hits = (int(np.count_nonzero(left != right)) for left, right in (apart, same))
    return Counts(trial, words, "two draws differ", hits, len(apart[0]), other_hits, len(same[0]))
