"""Seal a raw column: keyed fingerprints that count which values a release shares with it (docs/spec/privacy.md#seal).

A seal holds distinct values only, under a key that follows from the noise key for this column and nothing else. It
holds no record, order or multiplicity; without the key no one can extend or search it. Anyone who may put chosen texts
to it can still ask whether a text is in the column. So only `runner.publish.raw_reports` makes one, over a staged run,
and logs that it did.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dptext_etl._kernel import Secret
from dptext_etl.artifacts import canon

NGRAM = 5
"""Words of the n-grams that are sealed next to whole texts."""
_SEPARATOR = "\x1f"


@dataclass(frozen=True)
class Seal:
    """Holds keyed hashes of the distinct texts and n-grams of a raw column.

    Attributes:
        size: How many distinct values there are.
    """

    _key: bytes = field(repr=False)
    _marks: frozenset[bytes] = field(repr=False)

    @classmethod
    def of(cls, texts: Iterable[Iterable[str]], secret: Secret, dataset: str, column: str) -> Seal:
        """Seal the texts of a column."""
        key = secret.derive("seal", canon([dataset, column]))
        return cls(key, frozenset(_mark(key, value) for text in texts for value in _values(list(text))))

    @property
    def size(self) -> int:
        """Number of distinct values."""
        return len(self._marks)

    def shared(self, texts: Iterable[Iterable[str]]) -> dict[str, int]:
        """Count the released texts that the raw column holds, too."""
        counts = {"rows": 0, "texts": 0, "with_runs": 0}
        for text in texts:
            whole, *ngrams = _values(list(text)) or [""]
            counts["rows"] += 1
            counts["texts"] += bool(whole) and _mark(self._key, whole) in self._marks
            counts["with_runs"] += any(_mark(self._key, ngram) in self._marks for ngram in ngrams)
        return counts

    def __reduce__(self) -> str:
        msg = "a seal stays in the process that made it"
        raise TypeError(msg)


def _values(words: list[str]) -> list[str]:
    """Return the text itself, then its n-grams; nothing for an empty text."""
    return list(_written(words)) if words else []


def _written(words: list[str]) -> Iterator[str]:
    yield f"text{_SEPARATOR}{_SEPARATOR.join(words)}"
    for at in range(len(words) - NGRAM + 1):
        yield f"run{_SEPARATOR}{_SEPARATOR.join(words[at : at + NGRAM])}"


def _mark(key: bytes, value: str) -> bytes:
    return hmac.new(key, value.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
