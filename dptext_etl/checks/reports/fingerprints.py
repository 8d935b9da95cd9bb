"""The sealed fingerprint of a raw column (docs/spec/privacy.md#seal): which values a release shares with it, as counts.

Distinct values alone are sealed, each under a key that follows from the noise key for this column and nothing else: no
record, order or multiplicity is in a seal, and without the key it can be neither extended nor searched. Whoever may put
chosen texts to it has a membership oracle all the same, so only `runner.inside` makes one, over a staged run, and logs
that it did.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dptext_etl._kernel import Secret
from dptext_etl.artifacts import canon

RUN = 5
"""Words of the runs that are sealed beside whole texts."""
_SEPARATOR = "\x1f"


@dataclass(frozen=True)
class Seal:
    """Keyed hashes of the distinct texts and word runs of a raw column.

    Attributes:
        size: How many distinct values there are.
    """

    _key: bytes = field(repr=False)
    _marks: frozenset[bytes] = field(repr=False)

    @classmethod
    def of(cls, texts: Iterable[Iterable[str]], secret: Secret, dataset: str, column: str) -> Seal:
        """Seal the texts of a column, each given by its words."""
        key = secret.derive("seal", canon([dataset, column]))
        return cls(key, frozenset(_mark(key, value) for text in texts for value in _values(list(text))))

    @property
    def size(self) -> int:
        """Distinct values under the seal."""
        return len(self._marks)

    def shared(self, texts: Iterable[Iterable[str]]) -> dict[str, int]:
        """Count released texts that are, and those that hold a run that is, under the seal."""
        counts = {"rows": 0, "texts": 0, "with_runs": 0}
        for text in texts:
            whole, *runs = _values(list(text)) or [""]
            counts["rows"] += 1
            counts["texts"] += bool(whole) and _mark(self._key, whole) in self._marks
            counts["with_runs"] += any(_mark(self._key, run) in self._marks for run in runs)
        return counts

    def __reduce__(self) -> str:
        msg = "a seal stays in the process that made it"
        raise TypeError(msg)


def _values(words: list[str]) -> list[str]:
    """The text itself, then its runs; nothing of an empty one."""
    return list(_written(words)) if words else []


def _written(words: list[str]) -> Iterator[str]:
    yield f"text{_SEPARATOR}{_SEPARATOR.join(words)}"
    for at in range(len(words) - RUN + 1):
        yield f"run{_SEPARATOR}{_SEPARATOR.join(words[at : at + RUN])}"


def _mark(key: bytes, value: str) -> bytes:
    return hmac.new(key, value.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
