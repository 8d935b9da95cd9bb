"""Read texts as words, and write drawn outputs as texts.

Strict mode reads only words, in lower case, and writes words with one blank between them
(docs/spec/privacy.md#output-text). Faithful mode reads words and punctuation unchanged, as the paper's code does, and
writes outputs into the places of words.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from dptext_etl import _kernel
from dptext_etl.inference.masked.steps import INSERTED, Script
from dptext_etl.mechanism import PAD
from dptext_etl.scoring import Choices


class Read(NamedTuple):
    """The words of a text.

    Attributes:
        words: Words that the model reads, in faithful mode also marks of punctuation.
        kept: True for each that is released in clear.
    """

    words: list[str]
    kept: list[bool]


def read_strict(text: str, kept: Collection[str], n_max: int) -> Read:
    """Read the first `n_max` words of a text in the form of lookups.

    Args:
        text: The text.
        kept: Words that are released in clear, in lower case.
        n_max: Largest number of words to read.
    """
    words = [_form(segment) for segment, is_word in _kernel.split(text) if is_word][:n_max]
    return Read(words, [word in kept for word in words])


def read_faithful(text: str, kept: Collection[str], n_max: int) -> Read:
    """Read up to `n_max` words and the punctuation between them unchanged; keep punctuation and stopwords.

    Args:
        text: The text.
        kept: Stopwords in lower case.
        n_max: Largest number of words to read.
    """
    words, told, seen = [], [], 0
    for segment, is_word in _kernel.split(text):
        seen += is_word
        if seen > n_max:
            break
        if segment.strip():
            words.append(segment.strip())
            told.append(not is_word or _form(segment) in kept)
    return Read(words, told)


def write_strict(script: Script, chosen: Choices, outputs: Sequence[str]) -> str:
    """Join drawn outputs and kept words by single blanks; the padding of a hidden length gives nothing.

    Args:
        script: The positions of the text.
        chosen: Indices of the drawn outputs, in the order of the draws.
        outputs: The text of each output.
    """
    drawn = iter(chosen.tolist())
    written = (outputs[next(drawn)] if item.drawn else script.words[item.word] for item in script.items)
    return " ".join(word for word in written if word != PAD)


def write_faithful(text: str, n_max: int, script: Script, chosen: Choices, outputs: Sequence[str]) -> str:
    """Put drawn outputs in the places of words, with a capital letter if the word had one (as the paper's code does).

    Args:
        text: The text.
        n_max: Largest number of words that were read.
        script: The positions of the text.
        chosen: Indices of the drawn outputs, in the order of the draws.
        outputs: The text of each output.
    """
    drawn, places, last = iter(chosen.tolist()), dict[int, list[str]](), 0
    for item in script.items:
        if not item.drawn:
            last = item.word
            places[last] = [script.words[last]]
            continue
        word = outputs[next(drawn)].lower()
        if item.word == INSERTED:
            last = item.tail - 1
        else:
            last = item.word
            word = word.capitalize() if script.words[last][:1].isupper() else word
        places.setdefault(last, []).append(word)
    written, number, seen = [], 0, 0
    for segment, is_word in _kernel.split(text):
        seen += is_word
        if seen > n_max:
            break
        if segment.strip():
            written.append(" ".join(places.get(number, [])))
            number += 1
        else:
            written.append(segment)
    return "".join(written)


def _form(word: str) -> str:
    """Return a word in the form of the kernel's lookups."""
    return word.lower().replace("\u2019", "'")
