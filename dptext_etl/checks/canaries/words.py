"""Choose the words of canary rows: pseudo-words that no mechanism knows, and words of its vocabulary.

The pseudo-words are a function of (secret, dataset, release, column), so any later check can search for them with the
key alone. To everybody else each is 20 random letters. A text holds one by chance with probability below 1e-28 per
place that is searched.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from dptext_etl.artifacts import canon
from dptext_etl.errors import PolicyError
from dptext_etl.families.by_word import WordByWord, by_word
from dptext_etl.families.choice import ChoiceMechanism

if TYPE_CHECKING:
    from dptext_etl._kernel import Secret
    from dptext_etl.mechanism import Mechanism
    from dptext_etl.policy import Policy

TOKENS = 8
TOKEN_LETTERS = 20
VOCABULARY_WORDS = 64
"""Per column: distinct pseudo-words, the letters of each, and distinct vocabulary words."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def pseudo_words(secret: Secret, dataset: str, release: str, column: str) -> tuple[str, ...]:
    """Return the pseudo-words of a column's canaries."""
    seeds = (secret.derive("canary", canon(["token", dataset, release, column, place])) for place in range(TOKENS))
    return tuple(map(_word, seeds))


def policy_tokens(policy: Policy, secret: Secret) -> dict[str, tuple[str, ...]]:
    """Return the pseudo-words of every text column of a policy."""
    return {item.name: pseudo_words(secret, policy.dataset, policy.release, item.name) for item in policy.columns}


@lru_cache(maxsize=64)
def in_vocabulary_words(
    mechanism: Mechanism, secret: Secret, dataset: str, release: str, column: str
) -> tuple[str, ...]:
    """Choose words of the mechanism's vocabulary that it can change."""
    replacing = by_word(mechanism)
    inputs = () if replacing is None else replacing.input_words()
    if isinstance(mechanism, ChoiceMechanism):
        inputs = mechanism.opened.texts
    long = [word for word in chain(inputs, mechanism.output_words() or ()) if len(word) >= TOKEN_LETTERS]
    tokens = pseudo_words(secret, dataset, release, column)
    if any(token in word for word in long for token in tokens):
        raise PolicyError(f"column {column!r}: a canary word is one of the mechanism's", "release under another name")
    if isinstance(mechanism, ChoiceMechanism):
        return _public_texts(mechanism, secret, dataset, release, column) if mechanism.most_positions == 1 else ()
    if replacing is None:
        return ()
    words = sorted(word for word in inputs if word.isalpha() and word == word.lower())
    chosen: dict[str, None] = {}
    for place in range(4 * VOCABULARY_WORDS if words else 0):
        seed = secret.derive("canary", canon(["native", dataset, release, column, place]))
        word = words[int.from_bytes(seed, "little") % len(words)]
        if word not in chosen and _can_change(replacing, word):
            chosen[word] = None
        if len(chosen) == VOCABULARY_WORDS:
            break
    return tuple(chosen)


def _public_texts(
    mechanism: ChoiceMechanism, secret: Secret, dataset: str, release: str, column: str
) -> tuple[str, ...]:
    """Choose texts of the corpus, as many as there are words otherwise."""
    texts = mechanism.opened.texts
    chosen: dict[str, None] = {}
    for place in range(VOCABULARY_WORDS):
        seed = secret.derive("canary", canon(["native", dataset, release, column, place]))
        chosen[texts[int.from_bytes(seed, "little") % len(texts)]] = None
    return tuple(chosen)


def survival(mechanism: Mechanism, word: str) -> Fraction:
    """Return the probability that `word` comes back as itself, or an upper bound of it."""
    replacing = by_word(mechanism)
    if replacing is None:
        raise PolicyError(f"{mechanism.name} replaces no single words, so that none of them survives by chance")
    return replacing.survival(word)


def _can_change(mechanism: WordByWord, word: str) -> bool:
    try:
        return survival(mechanism, word) < 1
    except PolicyError:
        return False


def _word(seed: bytes) -> str:
    number = int.from_bytes(seed, "little")
    return "".join(_LETTERS[number // len(_LETTERS) ** place % len(_LETTERS)] for place in range(TOKEN_LETTERS))
