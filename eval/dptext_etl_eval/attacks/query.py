"""Count the queries of a public word that reveal it as the most frequent answer: the query attack of Chen et al. 2023.

Paper: Chen et al. 2023 (section 5.4), made exact. The attacker makes N independent draws from the word's output
distribution and guesses the most frequent output; ties are broken at random. The result is the smallest N at which the
guess is right with probability 0.95. If another output is as likely as the word, the guess is never right in more than
half of the attacks, whatever N is.

The attack needs independent draws. A release draws from the key, the record's id and its text, so a second query gives
the same answer (`replays_seen`): N queries cost one spend and disclose as much as one. This does not stop a person who
can submit the same text under many ids; `TRUSTED_IDS` and caps address that (docs/spec/privacy.md#trusted-ids).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.families.words import WordMechanism, sample_many
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PAD
from dptext_etl_eval.measure import Attack, Score
from dptext_etl_eval.pairs import WORD_MECHANISM, Pairs
from dptext_etl_eval.statistics import wilson

SHARE = 0.95
REPEATS = 2_000
SAMPLES = 20_000
"""Number of draws that estimate a distribution without exact fractions."""
LIMIT = 1 << 20

_CELLS = 1 << 22
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class QueryAttack:
    """The result of the attack on one word.

    Attributes:
        queries: Smallest N found. None if the word is not its own likeliest output, or N is above the limit.
        success: Estimated probability that the guess is right at that N (at the limit if `queries` is None).
        stays: Probability that one draw gives the word.
        exact: True if draws came from the exact output distribution, False if from frequencies of `SAMPLES` draws.
    """

    queries: int | None
    success: float
    stays: float
    exact: bool


def queries_needed(
    mechanism: WordMechanism,
    word: str,
    *,
    share: float = SHARE,
    repeats: int = REPEATS,
    limit: int = LIMIT,
    seed: int = 0,
) -> QueryAttack:
    """Find the smallest N with P[most frequent of N answers = word] >= `share`, by doubling and bisection.

    Args:
        mechanism: Any word mechanism.
        word: A public word of its vocabulary.
        share: Wanted probability, between 0 and 1.
        repeats: Simulated attacks per N; the error of an estimated probability is about 0.5 / sqrt(repeats).
        limit: Largest N to try, at least 1.
        seed: Seed of the simulation, which protects nothing.

    Returns:
        The number of queries, and the estimated probabilities.

    Raises:
        PolicyError: `word` is not a single word.
        InputError: The share or a number is out of range.
    """
    if not 0 < share < 1 or repeats < 1 or limit < 1:
        raise InputError(
            "a share lies between 0 and 1, repeats and limit are 1 or more", "leave them at their defaults"
        )
    chances, target, exact = _distribution(mechanism, word)
    stays = float(chances[target])
    if stays <= np.delete(chances, target).max(initial=0.0):
        return QueryAttack(None, min(0.5, stays), stays, exact)

    def success(queries: int) -> float:
        return success_probability(chances, target, queries, repeats, np.random.default_rng((seed, queries)))

    high, chance = 1, success(1)
    while chance < share:
        if high >= limit:
            return QueryAttack(None, chance, stays, exact)
        high = min(2 * high, limit)
        chance = success(high)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        reached = success(middle)
        if reached >= share:
            high, chance = middle, reached
        else:
            low = middle
    return QueryAttack(high, chance, stays, exact)


def success_probability(chances: Floats, target: int, queries: int, repeats: int, random: np.random.Generator) -> float:
    """Estimate how often `target` is the most frequent of `queries` draws; ties are broken at random."""
    step = max(1, _CELLS // (len(chances) + queries))
    right = 0.0
    for first in range(0, repeats, step):
        counts = _counts(chances, queries, min(step, repeats - first), random)
        most = counts.max(axis=1, keepdims=True)
        winners = counts == most
        right += float((winners[:, target] / winners.sum(axis=1)).sum())
    return right / repeats


def replays_seen(mechanism: WordMechanism, word: str, queries: int, secret: _kernel.Secret | None = None) -> int:
    """Ask one release `queries` times for one record, and return the number of different answers, which is always 1.

    Args:
        mechanism: Any word mechanism.
        word: One public word.
        queries: Number of queries of the same text under the same record id.
        secret: The noise key; None creates a new random one.

    Returns:
        Number of different answers.
    """
    key = _kernel.ReleaseKey(secret or _kernel.Secret(), "attack", "word", "attack", mechanism.cfg())
    text, ids = pa.array([word] * queries, pa.large_string()), pa.array(["the record"] * queries)
    whole = mechanism.release(text, RecordKeys(key, ids, 0)).text.to_pylist()
    alone = [mechanism.release(text[:1], RecordKeys(key, ids[:1], 0)).text[0].as_py() for _ in range(3)]
    return len({*whole, *alone})


def _distribution(mechanism: WordMechanism, word: str) -> tuple[Floats, int, bool]:
    """Return the probabilities of all outputs, the index of the word, and True if the probabilities are exact."""
    try:
        outputs, fractions = mechanism.transition(word)
    except PolicyError:
        sampled = Counter(sample_many(mechanism, word, SAMPLES))
        outputs = [word, *(output for output in sampled if output != word)]
        return np.array([sampled[output] / SAMPLES for output in outputs]), 0, False
    merged: dict[str, float] = dict.fromkeys(outputs, 0.0)
    for output, chance in zip(outputs, fractions, strict=True):
        merged[output] += float(chance)
    names = [*merged] if word in merged else [*merged, word]
    chances = np.array([merged.get(name, 0.0) for name in names])
    return chances / chances.sum(), names.index(word), True


def _counts(chances: Floats, queries: int, repeats: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Count each output, shape (repeats, m): by single draws if there are few, by a multinomial if there are many."""
    m = len(chances)
    if queries >= m:
        return random.multinomial(queries, chances, size=repeats)
    running = np.cumsum(chances)
    drawn = np.searchsorted(running / running[-1], random.random((repeats, queries)), side="right")
    flat = drawn + m * np.arange(repeats)[:, None]
    counts: npt.NDArray[np.int64] = np.bincount(flat.ravel(), minlength=m * repeats).reshape(repeats, m)
    return counts


WORDS, FEW = 20, 5
FREQUENT = 4_000
"""Words are chosen evenly from this number of first words of the vocabulary."""
COUNTS = (1, 10, 100, 1_000)
_REPEATS, _LARGE = 400, 1_000


class Query(Attack):
    """Queries of one word, independently drawn, until its most frequent answer is the word in 95 of 100 attacks."""

    title: ClassVar[str] = "Asking for a word again and again"
    says: ClassVar[str] = (
        "The attacker gets N independent answers for a word and guesses the most frequent one. The figure depends "
        f"only on the mechanism and at most {WORDS} public words, not on the texts. A release answers equal queries "
        "equally; but anyone who may submit one text under many ids gets independent answers. The baseline is a "
        "guess among the words that are asked."
    )
    knows: ClassVar[str] = "only answers, and a way to have one text released under many ids"
    needs: ClassVar[frozenset[str]] = frozenset({WORD_MECHANISM})
    order: ClassVar[int] = 60
    weight: ClassVar[float] = 3.0

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the shares of words that 1, 10, 100 and 1,000 queries reveal, and the median number of queries."""
        assert isinstance(pairs.mechanism, WordMechanism)  # noqa: S101  (`needs` says so)
        attacked = [item for word in asked(pairs.mechanism) if (item := _attacked(pairs.mechanism, word)) is not None]
        if not attacked:
            return [Score("words revealed", None, note="the mechanism answers for no single word")]
        needed = sorted(item.queries or float("inf") for item in attacked)
        hits = {count: sum(queries <= count for queries in needed) for count in COUNTS}
        middle = needed[(len(needed) - 1) // 2]
        finite = middle != float("inf")
        return [
            *(
                Score(
                    f"words that {count:,} {'query reveals' if count == 1 else 'queries reveal'}",
                    hits[count] / len(attacked),
                    wilson(hits[count], len(attacked)),
                    blind=1 / len(attacked),
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
    candidates = [word for word in mechanism.input_words()[:FREQUENT] if word != PAD]
    words = WORDS if _answers(mechanism, candidates[0]) else FEW
    return candidates[:: max(1, len(candidates) // words)][:words]


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
