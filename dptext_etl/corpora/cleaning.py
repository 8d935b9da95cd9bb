"""Clean public texts for a corpus: one form, one length range, no contact data, each text once.

What is dropped is counted by reason. The order of what stays follows the hashes of texts: it depends neither on the
order of the sources nor on the machine.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dptext_etl import _kernel
from dptext_etl.errors import PolicyError

FEWEST_WORDS, MOST_WORDS = 4, 40
_MARKUP = re.compile(r"<br ?/?>", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
_DROPPED = {
    "e-mail address": re.compile(r"[\w.+-]+\s?@\s?[\w-]+\s?\.\s?\w+"),
    "URL": re.compile(r"https?\s?:|\bwww\s?\.|\b[\w-]+\.(?:com|org|net|edu|gov|info|io|co)\b", re.IGNORECASE),
    "telephone number": re.compile(r"(?<![\w.])\+?\(?\d(?:[\s().x/-]*\d){6,14}(?!\w)"),
    "long run of digits": re.compile(r"\d{6}"),
}
_EVERY = 50_000

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Cleaning:
    """Say how texts become lines of a corpus.

    Attributes:
        fewest: Words of the shortest text.
        most: Words of the longest text.
        sentences: Whether texts are cut into sentences first.
    """

    fewest: int = FEWEST_WORDS
    most: int = MOST_WORDS
    sentences: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.fewest <= self.most:
            raise PolicyError(f"lengths from {self.fewest} to {self.most} words; allowed: 1 <= fewest <= most")


@dataclass
class Kept:
    """Hold the texts of a corpus, and count what became of the others.

    Attributes:
        texts: Distinct clean texts, in the order of their hashes.
        read: Number of texts (or sentences) that were read.
        dropped: Number of texts that were left out, by reason.
    """

    texts: list[str]
    read: int
    dropped: Counter[str] = field(default_factory=Counter)


def clean(texts: Iterable[str], how: Cleaning, progress: Progress = lambda _: None) -> Kept:
    """Clean texts, drop those that a corpus must not hold, and keep each once."""
    kept: dict[str, bytes] = {}
    dropped: Counter[str] = Counter()
    seen = 0
    for text in texts:
        for part in split(text) if how.sentences else [text]:
            seen += 1
            if seen % _EVERY == 0:
                progress(f"{seen:,} texts read, {len(kept):,} kept")
            line = normalized(part)
            reason = _reason(line, how)
            if reason is None and line in kept:
                reason = "there already"
            if reason is None:
                kept[line] = hashlib.sha256(line.encode()).digest()
            else:
                dropped[reason] += 1
    return Kept(sorted(kept, key=kept.__getitem__), seen, dropped)


def normalized(text: str) -> str:
    r"""Return a text in Unicode form NFC with single spaces, HTML line breaks removed.

    >>> normalized("  cafe\u0301 <br />au\nlait ")
    'café au lait'
    """
    return " ".join(unicodedata.normalize("NFC", _MARKUP.sub(" ", text)).split())


def split(text: str) -> list[str]:
    """Cut a text into sentences after full stops, question and exclamation marks; the cut is rough.

    >>> split("It rained. We stayed in! Why?")
    ['It rained.', 'We stayed in!', 'Why?']
    """
    return [part for part in _SENTENCE_END.split(normalized(text)) if part]


def _reason(line: str, how: Cleaning) -> str | None:
    """Say why a text is left out; None if it stays."""
    if not all(letter.isprintable() for letter in line):
        return "control character"
    for name, pattern in _DROPPED.items():
        if pattern.search(line):
            return name
    words = sum(is_word for _, is_word in _kernel.split(line))
    if words < how.fewest:
        return "too short"
    return "too long" if words > how.most else None
