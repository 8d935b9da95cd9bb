"""Make a reservation ready before it is this writer's turn, so that the others wait for less.

What a batch will write is known beforehand unless another writer takes the same records or the last of somebody's
budget meanwhile. So rows are judged, encoded, hashed and sent first; in its turn the writer judges again, in runs that
are new since, and takes what it made ready if the answer is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dptext_etl.ledger.storage.keyed_ids import Index
from dptext_etl.ledger.storage.segments import Segments
from dptext_etl.ledger.storage.sorted_runs import Recall


class Sealed(NamedTuple):
    """The new rows of a batch in one column, encoded.

    Attributes:
        rows: Their places in the batch.
        facts: What the event states of them.
        blobs: Their columns.
    """

    rows: Index
    facts: Mapping[str, Any]
    blobs: Mapping[str, bytes]


class Foresight:
    """What is known and ready of one request. It is made for one transaction; one that begins again starts anew."""

    def __init__(self) -> None:
        self._recalls: dict[bytes, Recall] = {}
        self._sealed: dict[str, Sealed] = {}
        self._sent: dict[str, int] = {}

    def recall(self, *what: object) -> Recall:
        """Return what lookups found before, for the same ids in the same place.

        Args:
            what: Names the place, and the ids where they are not those of the whole batch.
        """
        name = b"\0".join(part if isinstance(part, bytes) else str(part).encode() for part in what)
        return self._recalls.setdefault(name, {})

    def prepare(self, column: str, sealed: Sealed) -> None:
        """Keep the rows of a column."""
        self._sealed[column] = sealed

    def send(self, segments: Segments) -> None:
        """Store what is ready, within the transaction."""
        for column, sealed in self._sealed.items():
            self._sent[column] = segments.send(sealed.blobs)

    def take(
        self, segments: Segments, column: str, rows: Index, seal: Callable[[], Sealed]
    ) -> tuple[Sealed, Callable[[int], None]]:
        """Return the rows of a column, encoded, and what stores them under the number of their event.

        Args:
            segments: The sealed batches.
            column: The column.
            rows: The rows that are new, now that it is this writer's turn.
            seal: Encodes them, if what is ready does not fit.
        """
        ready, sent = self._sealed.get(column), self._sent.pop(column, None)
        if ready is not None and sent is not None and np.array_equal(ready.rows, rows):
            return ready, lambda seq: segments.adopt(sent, seq)
        if sent is not None:
            segments.drop(sent)
        made = seal()
        return made, lambda seq: segments.write(seq, made.blobs)

    def clear(self, segments: Segments) -> None:
        """Remove what was sent and not taken."""
        for sent in self._sent.values():
            segments.drop(sent)
        self._sent.clear()
