"""Count how many e-mail addresses, numbers and names of the raw texts are left in a release.

The counts are exact statistics of raw text. They decide nothing, filter nothing, and never leave the boundary
(docs/spec/privacy.md#gates, docs/spec/privacy.md#seal). A find survives where its words occur in the release in the
same order without a word between them; case and punctuation do not count. A count of 0 proves nothing, because only
words that a pattern finds are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import polars as pl

from dptext_etl import _kernel
from dptext_etl.errors import InputError, seam

PATTERNS = {
    "EMAIL": re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    "URL": re.compile(r"\b(?:https?://|www\.)[^\s<>\"']+", re.IGNORECASE),
    "IBAN": re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"),
    "CARD": re.compile(r"\b\d(?:[ -]?\d){12,18}\b"),
    "PHONE": re.compile(r"(?<![\w.])\+?\(?\d(?:[\s().x/-]*\d){6,14}(?!\w)"),
}
"""The patterns to find, in this order; a later pattern does not see text that an earlier one matched."""


class Span(NamedTuple):
    """Holds something in a raw text that should not be in its release."""

    kind: str  # the kind, such as "EMAIL"
    text: str  # how it is written


Finder = Callable[[str], Sequence[Span]]


@dataclass(frozen=True)
class SurvivorCount:
    """Counts, by kind, of personal data in raw texts and of the part that survived.

    It adds up over shards and stays inside the boundary.
    """

    found: Mapping[str, int] = field(default_factory=dict)
    survived: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: SurvivorCount) -> SurvivorCount:
        return SurvivorCount(
            dict(Counter(self.found) + Counter(other.found)), dict(Counter(self.survived) + Counter(other.survived))
        )

    @property
    def share(self) -> float:
        """Share of all finds that survived, from 0 to 1; 0 where nothing was found."""
        total = sum(self.found.values())
        return sum(self.survived.values()) / total if total else 0.0

    def as_dict(self) -> dict[str, dict[str, int]]:
        """The counts as JSON can hold them."""
        return {"found": dict(sorted(self.found.items())), "survived": dict(sorted(self.survived.items()))}


def by_patterns(text: str) -> list[Span]:
    """Find the personal data that the patterns describe.

    >>> [span.kind for span in by_patterns("Write to a.b@example.org or call +49 30 901820.")]
    ['EMAIL', 'PHONE']
    """
    spans = []
    for kind, pattern in PATTERNS.items():
        for match in pattern.finditer(text):
            if kind != "CARD" or _luhn(match.group()):
                spans.append(Span(kind, match.group()))
                text = f"{text[: match.start()]}{'_' * len(match.group())}{text[match.end() :]}"
    return spans


def by_presidio(text: str) -> list[Span]:
    """Find what presidio-analyzer recognizes, names included; it needs its own language model."""
    with seam("looking for personal data", InputError, "install presidio-analyzer and its language model"):
        results = _analyzer().analyze(text=text, language="en")
        return [Span(item.entity_type, text[item.start : item.end]) for item in results]


def count_survivors(raw: pl.Series, released: pl.Series, find: Finder = by_patterns) -> SurvivorCount:
    """Count the personal data of raw texts, and the part that is left in their releases."""
    if len(raw) != len(released):
        raise InputError(
            f"{len(raw)} texts, {len(released)} releases: one each per row", "pass columns of the same length"
        )
    with seam("counting survivors"):
        return count_spans(([] if text is None else find(text) for text in raw), released)


def count_spans(spans: Iterable[Sequence[Span]], released: pl.Series) -> SurvivorCount:
    """Count given finds, row by row, and those that are left in the releases."""
    counts: Counter[str] = Counter()
    survived: Counter[str] = Counter()
    for given, text in zip(spans, released, strict=True):
        words = _words(text or "") if given else ()
        for span in given:
            counts[span.kind] += 1
            survived[span.kind] += _holds(words, _words(span.text))
    return SurvivorCount(dict(counts), {kind: count for kind, count in survived.items() if count})


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.lower() for word, is_word in _kernel.split(text) if is_word)


def _holds(words: tuple[str, ...], run: tuple[str, ...]) -> bool:
    return bool(run) and any(words[at : at + len(run)] == run for at in range(len(words) - len(run) + 1))


def _luhn(number: str) -> bool:
    digits = [int(letter) for letter in reversed(number) if letter.isdigit()]
    return sum(sum(divmod(2 * digit, 10)) if place % 2 else digit for place, digit in enumerate(digits)) % 10 == 0


@lru_cache(maxsize=1)
def _analyzer() -> Any:
    return import_module("presidio_analyzer").AnalyzerEngine()  # optional
