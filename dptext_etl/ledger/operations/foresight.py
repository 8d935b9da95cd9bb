"""Make a reservation ready before it is this writer's turn, so that the others wait for less.

What a batch will write is known beforehand unless another writer takes the same records or the last of someone's
budget meanwhile. So rows are judged, encoded, hashed and sent first. The writer who is next looks at the runs that
others have written since. In its turn it judges again, by the runs that are newer still, and takes what it made ready
if the answer is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dptext_etl.ledger.storage.keyed_ids import Index
from dptext_etl.ledger.storage.parts import Part, Values
from dptext_etl.ledger.storage.segments import Segments
from dptext_etl.ledger.storage.sorted_runs import Recall, SortedRun, SortedRuns
from dptext_etl.ledger.terms import ReleaseRef


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
        self._charge: tuple[Index, Values, Part] | None = None
        self._run: SortedRun | None = None

    def recall(self, *what: object) -> Recall:
        """Return what lookups found before, for the same ids in the same place."""
        name = b"\0".join(part if isinstance(part, bytes) else str(part).encode() for part in what)
        return self._recalls.setdefault(name, Recall())

    def records(self, ref: ReleaseRef) -> Recall:
        """Return what lookups of the records of the batch found in a release."""
        return self.recall("records", ref.id, ref.nonce)

    def catch_up(self) -> None:
        """Look up again in what others wrote since."""
        for recall in self._recalls.values():
            recall.catch_up()

    def prepare(self, column: str, sealed: Sealed) -> None:
        """Keep the rows of a column."""
        self._sealed[column] = sealed

    def prepare_charge(self, rows: Index, taken: Values, part: Part) -> None:
        """Keep what the batch adds to the balances."""
        if len(rows):
            self._charge = (rows, taken, part)

    def send(self, segments: Segments, balances: SortedRuns | None) -> None:
        """Store what is ready, within the transaction."""
        for column, sealed in self._sealed.items():
            self._sent[column] = segments.send(sealed.blobs)
        if self._charge is not None and balances is not None:
            self._run = balances.send(self._charge[2])

    def charge(self, balances: SortedRuns, rows: Index, taken: Values, added: Callable[[], Part]) -> None:
        """Add a batch to the balances, now that it is this writer's turn."""
        run, self._run = self._run, None
        if run is not None and self._charge is not None:
            if np.array_equal(self._charge[0], rows) and np.array_equal(self._charge[1], taken):
                balances.adopt(run)
                return
            balances.withdraw(run)
        balances.insert(added())

    def take(
        self, segments: Segments, column: str, rows: Index, seal: Callable[[], Sealed]
    ) -> tuple[Sealed, Callable[[int], None]]:
        """Return the rows of a column, encoded, and what stores them under the number of their event."""
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
