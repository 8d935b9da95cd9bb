"""Find records that come in the order in which they were reserved: next to each other in a batch, without the index.

A run judges its rows in the order in which it charged them, and a table that grows begins with its published rows. A
batch holds its records in order, so one comparison of bytes finds thousands of them. A published table lacks the canary
rows, which stand at both ends of a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dptext_etl.ledger.storage.hashed_ids import WIDTH, Bytes
from dptext_etl.ledger.types import AGAIN, I64, ReleaseRef, State

if TYPE_CHECKING:
    from dptext_etl.ledger.database import Database

_KEY = 16
"""Bytes of a keyed hash by which records are found, as in the index."""


class InOrder:
    """The batches of one release, followed row by row.

    A record stands in several batches only if its first reservation was given back, or if its text was charged once
    more. Rows that were given back are not found here, nor is anything in a release with texts that were charged again.
    """

    def __init__(self, db: Database, ref: ReleaseRef) -> None:
        self._db, self._ref = db, ref
        self._begins: dict[bytes, tuple[int, int]] | None = None
        self._batch, self._next = 0, 0
        self._held = np.zeros((0, _KEY // 8), np.uint64)

    def places(self, hashes: Bytes) -> I64:
        """Find records as far as they follow each other in batches; return packed places of the first ones."""
        keys, done = np.ascontiguousarray(hashes[:, :_KEY]).view(np.uint64), 0
        found = [np.zeros(0, np.int64)]
        while done < len(keys):
            opened = self._next == len(self._held) or not np.array_equal(self._held[self._next], keys[done])
            if opened and not self._open(keys[done].tobytes()):
                break
            count = min(len(keys) - done, len(self._held) - self._next)
            mine, theirs = keys[done : done + count], self._held[self._next : self._next + count]
            if not np.array_equal(mine, theirs):
                count = int(np.argmax((mine != theirs).any(axis=1)))
            found.append((np.int64(self._batch) << np.int64(32)) + np.arange(self._next, self._next + count))
            self._next, done = self._next + count, done + count
        return np.concatenate(found)

    def _open(self, first: bytes) -> bool:
        """Read the batch that begins with a record, up to the first row that was given back."""
        db, self._held, self._next = self._db, self._held[:0], 0
        with db.store.snapshot():
            if self._begins is None:
                self._begins = self._read_begins()
            if first in self._begins:
                self._batch, self._next = self._begins[first]
                record = db.segments.read(self._batch, ["record"])["record"]
                gone = np.flatnonzero(db.records.states(self._batch) == State.ABORTED)
                self._held = record.view(np.uint64)[: gone[0] if len(gone) else None, : _KEY // 8]
        self._next = min(self._next, len(self._held))
        return self._next < len(self._held)

    def _read_begins(self) -> dict[bytes, tuple[int, int]]:
        """Return where the first record of each batch stands, and the first one behind canary rows."""
        db, begins = self._db, dict[bytes, tuple[int, int]]()
        query = "select substr(data, ?, ?) from segment where seq = ? and name = 'record'"
        for batch in db.records.batches(self._ref).tolist():
            facts = db.journal.facts(batch)
            if facts.get(AGAIN):
                return {}
            own = np.flatnonzero(db.segments.read(batch, ["canary"], facts)["canary"] == 0)[:1]
            for row in {0, *own.tolist()}:
                for (key,) in db.store.rows(query, (1 + WIDTH * row, _KEY, batch)):
                    begins[bytes(key)] = batch, row
        return begins
