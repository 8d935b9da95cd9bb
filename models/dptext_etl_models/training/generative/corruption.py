"""Spoil public texts in many ways, so that a model that writes them anew learns to copy, to repair and to paraphrase.

What a spoilt text and its original have in common is what a paraphrase keeps: most words that carry meaning, or near
neighbors of them. Texts of random words, which are not spoilt, teach the model to copy names that it never saw.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dptext_etl.embeddings import WordVectors
from dptext_etl_models.training.corpus import WORD
from dptext_etl_models.training.token_rows import bare
from dptext_etl_models.training.words.vocabulary import whole_words

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FREQUENT = 60
"""The most frequent words of the embedded vocabulary, which are dropped more often than others."""
NEAR = 8
"""Number of nearest neighbors that a word may be replaced by."""


@dataclass(frozen=True)
class Recipe:
    """Say how often what happens; the rates of a text are drawn from 0 up to these."""

    copied: float = 0.3  # share of texts that keep all their words
    random: float = 0.2  # share of texts that are random words, and are copied
    bare: float = 0.5  # share of texts that lose their punctuation and capitals, next to all spoilt ones
    near: float = 0.5  # rate of words that become a near neighbor
    other: float = 0.2  # rate of words that become a random word
    frequent: float = 0.5  # rate of frequent words that are dropped
    dropped: float = 0.1  # rate of other words that are dropped
    swapped: float = 0.1  # rate of words that change places with the next


class Corruption:
    """Make pairs of a spoilt text and its original."""

    def __init__(self, tokenizer: Tokenizer, recipe: Recipe) -> None:
        self._recipe = recipe
        words = (tokenizer.id_to_token(number) for number in whole_words(tokenizer))
        self._words = tuple(word for word in words if word is not None and len(word) > 1)
        self._near = neighbours(self._words)
        self._frequent = frozenset(WordVectors.load(limit=FREQUENT).words)

    def pair(self, text: str, rng: np.random.Generator) -> tuple[str, str]:
        """Return what the model reads, and what it shall write."""
        kind = rng.random()
        if kind < self._recipe.random:
            made = self._invented(len(text.split()), rng)
            return made, made
        if kind < self._recipe.random + self._recipe.copied:
            return (bare(text).lower() if rng.random() < self._recipe.bare else text), text
        return self._spoilt(text, rng) or text, text

    def _invented(self, count: int, rng: np.random.Generator) -> str:
        drawn = [self._words[at] for at in rng.integers(len(self._words), size=max(1, count)).tolist()]
        letters = list(string.ascii_lowercase)
        for at in np.flatnonzero(rng.random(len(drawn)) < 0.1).tolist():
            drawn[at] = "".join(rng.choice(letters, size=int(rng.integers(2, 8))).tolist())
        return " ".join(drawn)

    def _spoilt(self, text: str, rng: np.random.Generator) -> str:
        recipe, words = self._recipe, WORD.findall(text.lower())
        near, other, frequent, dropped, swapped = rng.random(5) * (
            recipe.near, recipe.other, recipe.frequent, recipe.dropped, recipe.swapped
        )  # fmt: skip
        made: list[str] = []
        for word, draws in zip(words, rng.random((len(words), 4)), strict=True):
            if draws[0] < (frequent if word in self._frequent else dropped):
                continue
            changed = word
            if draws[1] < near and word in self._near:
                changed = self._near[word][int(draws[2] * len(self._near[word]))]
            elif draws[1] > 1 - other:
                changed = self._words[int(draws[2] * len(self._words))]
            if made and draws[3] < swapped:
                made.insert(len(made) - 1, changed)
            else:
                made.append(changed)
        return " ".join(made)


@lru_cache(maxsize=2)
def neighbours(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the nearest of the given words of each that has a vector, the word itself left out."""
    vectors = WordVectors.load()
    known = [word for word in words if word in vectors.index]
    if len(known) <= NEAR:
        return {}
    rows = vectors.take(known).vectors.astype(np.float32)
    rows -= rows.mean(axis=0)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
    found: dict[str, tuple[str, ...]] = {}
    for start in range(0, len(known), 512):
        likeness = rows[start : start + 512] @ rows.T
        best = np.argpartition(-likeness, NEAR, axis=1)[:, : NEAR + 1]
        for row, places in enumerate(best.tolist()):
            word = known[start + row]
            found[word] = tuple(known[at] for at in sorted(places) if known[at] != word)
    return found
