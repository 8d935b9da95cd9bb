"""Read pairs of public texts that stand side by side: sentences of an article, turns of a dialogue.

What follows a text mostly speaks of the same thing. That is all a contrastive training needs, and no label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dptext_etl.artifacts import sha256_file
from dptext_etl.corpora.encoder import WordEncoder
from dptext_etl.corpora.public_texts import Source, split
from dptext_etl.embeddings import WordVectors
from dptext_etl.errors import InputError
from dptext_etl_models.training.corpus import held_out

Words = npt.NDArray[np.int64]
Pair = tuple[Words, Words]

FEWEST = 1_000
"""Pairs that a training needs."""
_FEWEST_WORDS = 3
_UNKNOWN = 2**32 - 1
_REACH = 2
"""A turn makes pairs with so many that follow it: the answer, and what the same person says next."""


@dataclass(frozen=True)
class Pairs:
    """Hold pairs of texts as numbers of words.

    Attributes:
        train: Pairs to learn from.
        held: Pairs that were held out: by the hash of the first text, two in a hundred.
        sources: Names and hashes of the files.
    """

    train: tuple[Pair, ...]
    held: tuple[Pair, ...]
    sources: dict[str, str]


def read(
    articles: Sequence[Path],
    turns: Sequence[Path],
    vectors: WordVectors,
    *,
    column: str = "text",
    group: str = "dialogue",
    most: int = 120_000,
    seed: int = 0,
) -> Pairs:
    """Read pairs from public files."""
    finder = WordEncoder(vectors.words, np.zeros((len(vectors), 1), np.int16))
    random = np.random.default_rng(seed)
    train: list[Pair] = []
    held: list[Pair] = []
    for path in (*articles, *turns):
        found = list(_turns(path, column, group) if path in turns else _sentences(path, column))
        chosen = random.permutation(len(found))[:most]
        known = _known(finder, [found[number] for number in chosen])
        for number, pair in zip(chosen, known, strict=True):
            if min(map(len, pair)) >= _FEWEST_WORDS:
                (held if held_out(found[number][0]) else train).append(pair)
    if len(train) < FEWEST:
        raise InputError(
            f"{len(train)} pairs of texts with known words; allowed: {FEWEST:,} and more", "name more public texts"
        )
    return Pairs(tuple(train), tuple(held), {path.name: sha256_file(path) for path in (*articles, *turns)})


def _sentences(path: Path, column: str) -> Iterator[tuple[str, str]]:
    for text, _ in Source(path, column).rows():
        yield from pairwise(split(text))


def _turns(path: Path, column: str, group: str) -> Iterator[tuple[str, str]]:
    for _, rows in groupby(Source(path, column, group).rows(), key=lambda row: row[1]):
        texts = [text for text, _ in rows]
        for place, text in enumerate(texts):
            yield from ((text, later) for later in islice(texts, place + 1, place + 1 + _REACH))


def _known(finder: WordEncoder, pairs: Sequence[tuple[str, str]]) -> Iterable[Pair]:
    """Return the numbers of the known words of every pair."""
    first, second = (finder.numbers([pair[side] for pair in pairs]) if pairs else [] for side in (0, 1))
    for one, other in zip(first, second, strict=True):
        yield one[one != _UNKNOWN].astype(np.int64), other[other != _UNKNOWN].astype(np.int64)
