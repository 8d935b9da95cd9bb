"""Test a release: count how often an event occurs under each of two public inputs, through the code that releases.

The event is chosen on separate draws (the pilot), so that counting it on other draws is a fair test. Other trials
compare two draws that should be independent: of neighbouring positions, of two records, of two keys. Draws that repeat
each other would show whether two texts are equal, which no finite epsilon allows (docs/spec/privacy.md#shared-samples).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.evaluation.auditing import bound
from dptext_etl.evaluation.auditing.divided import POSITIONS
from dptext_etl.families.words import WordMechanism
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import Mechanism

PILOT = 4
"""Number of counted draws per draw of the pilot."""

Texts = npt.NDArray[np.object_]
Pair = tuple[str, str]


@dataclass(frozen=True)
class Subject:
    """What releases in trials.

    Attributes:
        single: The mechanism, for texts of one step.
        double: The same for texts of two steps; None where a record has one.
        between: What stands between the two words of a text of two steps.
    """

    single: Mechanism
    double: Mechanism | None
    between: str = " "


@dataclass(frozen=True)
class Counts:
    """Counts of an event under two inputs; it should occur more often under the first one, if there is a difference.

    Attributes:
        trial: What was compared, in words.
        words: The two inputs, public words; "" is the empty text, whose draws are padding.
        event: The event, in words.
        hits: Under the first input.
        draws: Under the first input.
        other_hits: Under the second.
        other_draws: Under the second.
        delta: Of the claim, that the bound leaves out.
    """

    trial: str
    words: tuple[str, str]
    event: str
    hits: int
    draws: int
    other_hits: int
    other_draws: int
    delta: float = 0.0

    def bound(self, alpha: float) -> float:
        """Return the lower bound of the log ratio at joint confidence 1 - alpha."""
        return bound.log_ratio(self.hits, self.draws, self.other_hits, self.other_draws, alpha, self.delta)


def trials(mechanism: WordMechanism, pairs: Sequence[Pair], draws: int, secrets: tuple[Any, Any]) -> Iterator[Counts]:
    """Count the events of every pair of inputs, both ways, and for the first pair those of repeated draws.

    Args:
        mechanism: The mechanism.
        pairs: Inputs that its guarantee compares: one word each, or the empty text if the length is hidden.
        draws: Records per input.
        secrets: Two noise keys: of the counted draws, and of the pilot.
    """
    return trials_of(Subject(_of_one_word(mechanism, 1), _of_one_word(mechanism, 2)), pairs, draws, secrets)


def trials_of(subject: Subject, pairs: Sequence[Pair], draws: int, secrets: tuple[Any, Any]) -> Iterator[Counts]:
    """Count as `trials` does, for any subject that releases.

    Args:
        subject: The subject that releases.
        pairs: Inputs that its guarantee compares.
        draws: Records per input.
        secrets: Two noise keys: of the counted draws, and of the pilot.
    """
    single = subject.single
    key, pilot_key = (_kernel.ReleaseKey(secret, "audit", "words", "audit", single.cfg()) for secret in secrets)
    for number, (word, other) in enumerate(pairs):
        counted = _released(single, key, [word, other] * draws)
        pilot = _released(single, pilot_key, [word, other] * max(1, draws // PILOT))
        turned = _released(single, pilot_key, [other, word] * max(1, draws // PILOT))
        seen, other_seen = Counter(counted[0::2]), Counter(counted[1::2])
        guide = Counter(pilot[0::2]) + Counter(turned[1::2])
        other_guide = Counter(pilot[1::2]) + Counter(turned[0::2])
        yield _likelier((word, other), seen, other_seen, _event(guide, other_guide))
        yield _likelier((other, word), other_seen, seen, _event(other_guide, guide))
        if number == 0:
            yield _differ(
                "two records", (word, other), (counted[0:-2:4], counted[2::4]), (counted[0::2], counted[1::2])
            )
            first = counted[0 : len(pilot) : 2]
            yield _differ("two keys", (word, other), (first, pilot[0::2]), (first, turned[0::2]))
            if subject.double is not None:
                yield _of_positions(subject.double, (word, other), subject.between, draws, secrets[0])


def _of_positions(double: Mechanism, words: Pair, between: str, draws: int, secret: Any) -> Counts:
    """Two draws of one record: of one word twice, and of two words."""
    key = _kernel.ReleaseKey(secret, "audit", "positions", "audit", double.cfg())
    texts = [between.join(text).strip() for text in ((words[0], words[0]), words)]
    pairs = [_two(text) for text in _released(double, key, texts * draws)]
    left, right = (np.array(side, dtype=object) for side in zip(*pairs, strict=True))
    return _differ(POSITIONS, words, (left[0::2], right[0::2]), (left[1::2], right[1::2]))


def _two(text: str) -> tuple[str, str]:
    """Return the two outputs of a text of two draws; padding, which is released as nothing, comes last."""
    first, _, second = text.partition(" ")
    return first, second


def _of_one_word(mechanism: WordMechanism, words: int) -> WordMechanism:
    """Return the mechanism for texts of `words` words if the length is hidden, without the noise of the length."""
    hidden = {"length": "fixed", "epsilon_length": None, "n_max": words}
    return mechanism.model_copy(update=hidden) if mechanism.hides_length else mechanism


def _released(mechanism: Mechanism, key: Any, texts: Sequence[str]) -> Texts:
    """Release texts, each a record of its own."""
    ids = pa.array(np.arange(len(texts)).astype(str))
    text = mechanism.release(pa.array(texts, pa.large_string()), RecordKeys(key, ids, 0)).text
    released: Texts = text.fill_null("").to_numpy(zero_copy_only=False)
    return released


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


def _likelier(words: tuple[str, str], seen: Counter[str], other_seen: Counter[str], event: frozenset[str]) -> Counts:
    counted = [sum(counter[text] for text in event) for counter in (seen, other_seen)]
    said = f"one of {len(event):,} outputs" if len(event) > 1 else "one output"
    return Counts("one draw", words, said, counted[0], seen.total(), counted[1], other_seen.total())


def _differ(trial: str, words: tuple[str, str], same: tuple[Texts, Texts], apart: tuple[Texts, Texts]) -> Counts:
    """Count pairs of draws that differ, from two words (first) and from one word twice (second)."""
    hits, other_hits = (int(np.count_nonzero(left != right)) for left, right in (apart, same))
    return Counts(trial, words, "two draws differ", hits, len(apart[0]), other_hits, len(same[0]))
