"""Read texts as words, and cut batches into parts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl import _kernel


class Read(NamedTuple):
    """The words of a text."""

    words: list[str]  # words that the model reads, in faithful mode also marks of punctuation
    kept: list[bool]  # True for each that is released in clear


def read_strict(text: str, kept: Collection[str], n_max: int) -> Read:
    """Read the first `n_max` words of a text in the form of lookups."""
    words = [_form(segment) for segment, is_word in _kernel.split(text) if is_word][:n_max]
    return Read(words, [word in kept for word in words])


def read_faithful(text: str, kept: Collection[str], n_max: int) -> Read:
    """Read up to `n_max` words and the punctuation between them unchanged; keep punctuation and stopwords."""
    words, in_clear, seen = [], [], 0
    for segment, is_word in _kernel.split(text):
        seen += is_word
        if seen > n_max:
            break
        if segment.strip():
            words.append(segment.strip())
            in_clear.append(not is_word or _form(segment) in kept)
    return Read(words, in_clear)


def _form(word: str) -> str:
    """Return a word in the form of the kernel's lookups."""
    return word.lower().replace("\u2019", "'")


def parts(offsets: npt.NDArray[np.integer[Any]], most: int) -> Iterator[tuple[int, int]]:
    """Cut rows into parts of at most `most` draws or cells; a longer row is a part of its own."""
    ends = offsets.astype(np.int64)
    first, rows = 0, len(ends) - 1
    while first < rows:
        last = int(np.searchsorted(ends, ends[first] + most, side="right")) - 1
        last = max(first + 1, min(last, rows))
        yield first, last
        first = last
