"""Read texts as words, and write what was drawn as texts.

Strict mode reads words in lower case and nothing else, and writes words with one blank between them
(docs/spec/privacy.md#output-text). Faithful mode reads what the paper's code reads: words and punctuation as they
stand, and writes into their places.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from dptext_etl import _kernel
from dptext_etl.inference.masked.steps import INSERTED, Script
from dptext_etl.mechanism import PAD
from dptext_etl.scoring import Choices


class Read(NamedTuple):
    """A text as it was read.

    Attributes:
        words: What the model reads: words, and in faithful mode marks of punctuation.
        kept: Which of them are released as they are.
    """

    words: list[str]
    kept: list[bool]


def read_strict(text: str, kept: Collection[str], n_max: int) -> Read:
    """Read the words of a text in the form they are looked up in, the first `n_max`.

    Args:
        text: The text.
        kept: Words that are released as they are, lower case.
        n_max: Most words that are read.
    """
    words = [_form(segment) for segment, is_word in _kernel.split(text) if is_word][:n_max]
    return Read(words, [word in kept for word in words])


def read_faithful(text: str, kept: Collection[str], n_max: int) -> Read:
    """Read words and punctuation as they stand, up to `n_max` words; all but words are kept, and so are stopwords.

    Args:
        text: The text.
        kept: Stopwords, lower case.
        n_max: Most words that are read.
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
    """Join what was drawn, and kept words between it, by single blanks; the padding of a hidden length is nothing.

    Args:
        script: What became of the words.
        chosen: Numbers of the outputs that were drawn, in the order of the draws.
        outputs: The text of each output.
    """
    drawn = iter(chosen.tolist())
    written = (outputs[next(drawn)] if item.drawn else script.words[item.word] for item in script.items)
    return " ".join(word for word in written if word != PAD)


def write_faithful(text: str, n_max: int, script: Script, chosen: Choices, outputs: Sequence[str]) -> str:
    """Put what was drawn in the places of words, capital letters where a word had one (as the paper's code does).

    Args:
        text: The text.
        n_max: Most words that were read.
        script: What became of the words.
        chosen: Numbers of the outputs that were drawn, in the order of the draws.
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
    """Return the form under which the kernel looks a word up."""
    return word.lower().replace("\u2019", "'")
