"""Learn word vectors whose sums are near for texts that follow each other (contrastive training).

Pairs are neighboring sentences of an article, or neighboring turns of a dialogue: they mostly speak of the same thing,
so no label is needed. The encoder of a corpus sums weighted vectors of words (docs/spec/surrogate.md#words-encoder). Of
a batch of pairs, each text shall be nearest to its own partner among all partners (InfoNCE; van den Oord et al. 2018,
"Representation Learning with Contrastive Predictive Coding"). Only directions learn; a word's weight follows from its
frequency in the corpus, as in `corpora.encoder`. So the result is a file of word vectors like any other, and the
encoder stays a sum of integers that the kernel computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl.artifacts import sha256_file
from dptext_etl.corpora.building import Source, split
from dptext_etl.corpora.corpus import WordEncoder
from dptext_etl.corpora.learning import SMOOTHING
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
"""Number of following turns with which a turn makes pairs: the answer, and the same person's next turn."""


@dataclass(frozen=True)
class Pairs:
    """Hold pairs of texts as numbers of words."""

    train: tuple[Pair, ...]  # pairs to learn from
    held: tuple[Pair, ...]  # pairs that were held out: by the hash of the first text, two in a hundred
    sources: dict[str, str]  # names and hashes of the files


def read_pairs(
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
    kept_back: list[Pair] = []
    for path in (*articles, *turns):
        texts = list(_turns(path, column, group) if path in turns else _sentences(path, column))
        chosen = random.permutation(len(texts))[:most]
        in_vocabulary = _known(finder, [texts[number] for number in chosen])
        for number, pair in zip(chosen, in_vocabulary, strict=True):
            if min(map(len, pair)) >= _FEWEST_WORDS:
                (kept_back if held_out(texts[number][0]) else train).append(pair)
    if len(train) < FEWEST:
        raise InputError(
            f"{len(train)} pairs of texts with known words; allowed: {FEWEST:,} and more", "name more public texts"
        )
    return Pairs(tuple(train), tuple(kept_back), {path.name: sha256_file(path) for path in (*articles, *turns)})


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
    for left, other in zip(first, second, strict=True):
        yield left[left != _UNKNOWN].astype(np.int64), other[other != _UNKNOWN].astype(np.int64)


Reals = npt.NDArray[np.float64]

_CHOICES = 500
_REPORT_EVERY = 100  # steps


@dataclass(frozen=True)
class Settings:
    """Hold the settings of the training."""

    steps: int = 500  # number of steps
    batch: int = 512  # pairs of a step; each text is contrasted with that many partners
    temperature: float = 0.05  # cosines are divided by it
    rate: float = 1e-3  # learning rate of Adam at the start; it falls to 0 in a straight line
    seed: int = 0  # of the order of pairs


def fit(
    vectors: WordVectors, pairs: Sequence[Pair], settings: Settings, progress: Callable[[str], None] = lambda _: None
) -> Reals:
    """Return learned vectors of length 1, shape (words, dimensions)."""
    import torch

    batch = min(settings.batch, len(pairs))
    weights = torch.tensor(word_weights(len(vectors), pairs), dtype=torch.float32)
    table = torch.tensor(unit(vectors.vectors.astype(np.float64)), dtype=torch.float32).requires_grad_()
    learning = torch.optim.Adam([table], lr=settings.rate)
    random = np.random.default_rng(settings.seed)
    common = torch.zeros(table.shape[1])
    order, lost = np.zeros(0, np.int64), 0.0
    for step in range(settings.steps):
        if len(order) < batch:
            order = random.permutation(len(pairs))
        chosen, order = order[:batch], order[batch:]
        normed = torch.nn.functional.normalize(table, dim=1)
        sides = [_sums(normed, weights, [pairs[number][side] for number in chosen]) for side in (0, 1)]
        mean = torch.cat(sides).detach().mean(0)
        common = mean if step == 0 else 0.99 * common + 0.01 * mean
        first, second = (torch.nn.functional.normalize(side - common, dim=1) for side in sides)
        cosines = first @ second.T / settings.temperature
        diagonal = torch.arange(batch)
        loss = torch.nn.functional.cross_entropy(cosines, diagonal) + torch.nn.functional.cross_entropy(
            cosines.T, diagonal
        )
        learning.zero_grad()
        loss.backward()
        learning.step()
        learning.param_groups[0]["lr"] = settings.rate * (1 - (step + 1) / settings.steps)
        lost += float(loss.detach()) / 2
        if (step + 1) % _REPORT_EVERY == 0:
            progress(f"step {step + 1:,} of {settings.steps:,}: loss {lost / _REPORT_EVERY:.3f}")
            lost = 0.0
    return unit(table.detach().double().numpy())


def partners_found(vectors: npt.NDArray[Any], weights: Reals, pairs: Sequence[Pair]) -> float:
    """Return the share of texts that are nearest to their own partner, of all partners among up to 500 pairs."""
    chosen, table = pairs[:_CHOICES], unit(vectors.astype(np.float64))
    first, second = (np.stack([weights[pair[side]] @ table[pair[side]] for pair in chosen]) for side in (0, 1))
    common = np.concatenate([first, second]).mean(axis=0)
    cosines = unit(first - common) @ unit(second - common).T
    return float((cosines.argmax(axis=1) == np.arange(len(chosen))).mean())


def word_weights(words: int, pairs: Sequence[Pair]) -> Reals:
    """Return the weight a / (a + f) of every word, f being its share of all words of the pairs, shape (words,)."""
    shares = np.bincount(np.concatenate([text for pair in pairs for text in pair]), minlength=words).astype(np.float64)
    weights: Reals = SMOOTHING / (SMOOTHING + shares / shares.sum())
    return weights


def _sums(table: Any, weights: Any, texts: Sequence[Words]) -> Any:
    """Return the weighted sum of the vectors of each text's words, shape (texts, dimensions)."""
    import torch

    words = torch.tensor(np.concatenate(texts))
    starts = torch.tensor(np.cumsum([0, *(len(text) for text in texts[:-1])]))
    return torch.nn.functional.embedding_bag(words, table, starts, mode="sum", per_sample_weights=weights[words])


def unit(table: Reals) -> Reals:
    """Divide the rows of a table by their lengths."""
    normed: Reals = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    return normed


def on_grid(vectors: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int8], float]:
    """Round vectors to int8, with one scale at which the largest coordinate is 127."""
    scale = float(np.float32(np.abs(vectors).max() / 127))
    return np.rint(np.clip(vectors / scale, -127, 127)).astype(np.int8), scale
