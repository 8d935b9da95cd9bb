"""Encode public texts as rows of token ids of one length, and draw the batches of training steps.

A batch depends on the seed and the step alone, so a resumed training sees the same batches as one that was never
stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import InputError
from dptext_etl_models.training.corpus import Corpus, clean, held_out, sentences

Rows = npt.NDArray[np.int32]

_CHUNK = 20_000


def token_rows(read: Callable[[Sequence[str]], npt.NDArray[np.integer]], texts: Iterable[str], length: int) -> Rows:
    """Encode texts, some thousands at a time."""
    found = [np.asarray(read(chunk), dtype=np.int32) for chunk in _chunks(texts)]
    return np.concatenate(found) if found else np.zeros((0, length), dtype=np.int32)


def public_texts(corpora: Sequence[Corpus], words: int, count: int, seed: int) -> list[str]:
    """Draw short texts from corpora by their shares; leave out texts that are held out for evaluation."""
    total = sum(corpus.share for corpus in corpora)
    found: list[str] = []
    for number, corpus in enumerate(corpora):
        texts = [text for text in corpus.texts() if not held_out(text)]
        found += short_texts(texts, words, round(count * corpus.share / total), seed + number)
    if not found:
        raise InputError("the corpora hold no text to train on", "name Parquet files of public texts")
    return found


def short_texts(texts: Sequence[str], words: int, count: int, seed: int) -> list[str]:
    """Draw short public texts: a whole text if it is short, otherwise one of its sentences or some words in a row."""
    if not texts:
        return []
    draw = np.random.default_rng(seed)
    sizes = np.array([len(text) + 1 for text in texts], dtype=np.float64)
    chosen = draw.choice(len(texts), size=count, p=sizes / sizes.sum())
    made = (_short(texts[at], words, draw) for at in chosen.tolist())
    made = (bare(text) if number % 2 else text for number, text in enumerate(made))
    return [text for text in made if text]


def bare(text: str) -> str:
    """Replace every character that is neither letter nor digit by a blank, and join adjacent blanks."""
    return " ".join("".join(character if character.isalnum() else " " for character in text).split())


def batch(rows: Rows, size: int, seed: int, step: int) -> Rows:
    """Draw the rows of a step with replacement."""
    draw = np.random.default_rng((seed, step))
    return rows[draw.integers(0, len(rows), size=size)]


def stacked(rows: Sequence[Sequence[int]], padding: int) -> npt.NDArray[np.int64]:
    """Stack rows of different lengths, padded on the right to the longest, shape (rows, longest)."""
    filled = np.full((len(rows), max(map(len, rows))), padding, np.int64)
    for place, row in enumerate(rows):
        filled[place, : len(row)] = row
    return filled


def random_rows(shape: tuple[int, int], ids: range, marks: tuple[int, int], draw: np.random.Generator) -> Rows:
    """Draw rows of uniform ids and uniform lengths; they teach the model to copy tokens that it never saw."""
    count, length = shape
    rows = draw.integers(ids.start, ids.stop, size=shape, dtype=np.int32)
    ends = draw.integers(1, length, size=(count, 1))
    place = np.arange(length)[None, :]
    filled: Rows = np.where(place < ends, rows, np.where(place == ends, *marks)).astype(np.int32)
    return filled


def _short(text: str, words: int, draw: np.random.Generator) -> str:
    split = text.split()
    if len(split) > words:
        parts = sentences(clean(text)) or [text]
        split = parts[int(draw.integers(len(parts)))].split()
    if len(split) > words:
        size = int(draw.integers(min(3, words), words + 1))
        start = int(draw.integers(len(split) - size + 1))
        split = split[start : start + size]
    return " ".join(split)


def _chunks(texts: Iterable[str]) -> Iterator[Sequence[str]]:
    chunk: list[str] = []
    for text in texts:
        chunk.append(text)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
