"""Read texts as words.

Strict mode reads only words, in lower case (docs/spec/privacy.md#output-text). Faithful mode reads words and
punctuation unchanged, as the papers' code does.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dptext_etl import _kernel


class Read(NamedTuple):
    """The words of a text.

    Attributes:
        words: Words that the model reads, in faithful mode also marks of punctuation.
        kept: True for each that is released in clear.
    """

    words: list[str]
    kept: list[bool]


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
