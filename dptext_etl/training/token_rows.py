"""Public texts as rows of token ids that all have one length, and the batches that a training step sees.

A batch is a function of the seed and the step alone, so that a training that was stopped goes on with the batches
that it would have seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import InputError
from dptext_etl.training.corpus import Corpus, clean, held_out, sentences

Rows = npt.NDArray[np.int32]

_CHUNK = 20_000


def token_rows(read: Callable[[Sequence[str]], npt.NDArray[np.integer]], texts: Iterable[str], length: int) -> Rows:
    """Encode texts, some thousands at a time.

    Args:
        read: Cuts and pads texts to rows of ids, as the release does (`families.sequence_model`).
        texts: Public texts.
        length: Tokens of a row.

    Returns:
        Shape (texts, length).
    """
    found = [np.asarray(read(chunk), dtype=np.int32) for chunk in _chunks(texts)]
    return np.concatenate(found) if found else np.zeros((0, length), dtype=np.int32)


def public_texts(corpora: Sequence[Corpus], words: int, count: int, seed: int) -> list[str]:
    """Draw short texts from corpora by their shares; what is held out for examinations stays out.

    Args:
        corpora: Public ones.
        words: Most words of a text.
        count: Texts wanted in all.
        seed: Of all choices.

    Returns:
        About `count` texts, corpus after corpus.

    Raises:
        InputError: The corpora hold no text.
    """
    total = sum(corpus.share for corpus in corpora)
    found: list[str] = []
    for number, corpus in enumerate(corpora):
        texts = [text for text in corpus.texts() if not held_out(text)]
        found += short_texts(texts, words, round(count * corpus.share / total), seed + number)
    if not found:
        raise InputError("the corpora hold no text to train on", "name Parquet files of public texts")
    return found


def short_texts(texts: Sequence[str], words: int, count: int, seed: int) -> list[str]:
    """Draw short public texts: whole ones if they are short, else one of their sentences, or a run of its words.

    Args:
        texts: Public texts of any length; long ones are drawn more often.
        words: Most words of a short text.
        count: Texts wanted.
        seed: Of all choices.

    Returns:
        At most `count` texts, fewer where punctuation was all there is; every other one is without punctuation.
    """
    if not texts:
        return []
    draw = np.random.default_rng(seed)
    sizes = np.array([len(text) + 1 for text in texts], dtype=np.float64)
    chosen = draw.choice(len(texts), size=count, p=sizes / sizes.sum())
    made = (_short(texts[at], words, draw) for at in chosen.tolist())
    made = (bare(text) if number % 2 else text for number, text in enumerate(made))
    return [text for text in made if text]


def bare(text: str) -> str:
    """Return the text with every character that is neither letter nor digit turned into a blank, blanks joined."""
    return " ".join("".join(character if character.isalnum() else " " for character in text).split())


def batch(rows: Rows, size: int, seed: int, step: int) -> Rows:
    """Return the rows of a step, drawn with replacement; shape (size, length)."""
    draw = np.random.default_rng((seed, step))
    return rows[draw.integers(0, len(rows), size=size)]


def random_rows(shape: tuple[int, int], ids: range, marks: tuple[int, int], draw: np.random.Generator) -> Rows:
    """Return rows of ids drawn uniformly, of every number of tokens alike; they teach to copy what was never seen.

    Args:
        shape: Rows, and the tokens of each.
        ids: The ids to draw from.
        marks: The id that ends a row, and the one that fills it.
        draw: Where the draws come from.
    """
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
