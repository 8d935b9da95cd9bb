"""Look up what a release vouches for in two steps, which several processes can share out among themselves.

The first step finds where records stand: it reads the index, in which ids lie in order. Anyone who looks up all ids of
a range reads that range once. The second step reads states and digests, which lie batch by batch. No process needs more
than the ids of its range, or the places of its batches.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dptext_etl.ledger.operations.batch import record_ids
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.storage.keyed_ids import WIDTH, Bytes, keyed_ids
from dptext_etl.ledger.storage.records import Places
from dptext_etl.ledger.terms import I64, Mask, ReleaseRef, State

NOWHERE = -1
"""The place of a record that the release has never seen."""


class Lookup:
    """Look up the records of one release."""

    def __init__(self, book: Book, ref: ReleaseRef, chain: str | None = None) -> None:
        self._book = book
        self.ref = ref
        self.chain = chain

    def entries(self) -> int:
        """Return how many entries the index of the release has, those that were given back included."""
        with self._book.store.snapshot():
            return sum(run.size for run in self._book.records.index(self.ref.id, self.ref.nonce).runs())

    def keyed(self, ids: pa.Array, canary: Mask | None = None) -> Bytes:
        """Hash record ids as the index has them, shape (records, 16); their first bits say where in it they stand."""
        found = record_ids(self._book.id_key, ids, canary).keyed
        return np.stack([found.hi, found.lo], axis=1).astype(">u8").view(np.uint8)

    def places(self, keyed: Bytes) -> I64:
        """Find where records were reserved, shape (records,); `NOWHERE` for those that the release has never seen."""
        records = keyed_ids(keyed)
        order = records.order()
        with self._book.store.snapshot():
            found, values = self._book.records.index(self.ref.id, self.ref.nonce).find(records.take(order))
        places = np.empty(records.size, np.int64)
        places[order] = np.where(found, values[2], NOWHERE)
        return places

    def digests(self, places: I64) -> tuple[Mask, Bytes, I64]:
        """Return which records are committed, shape (records,), digests of their texts, (records, 32), and positions.

        With a chain: which of them it rewrote, and the digests of the results.
        """
        known, where = np.unique(places, return_inverse=True)
        stand = known != NOWHERE
        known = np.where(stand, known, 0)
        held, digests = Places(known >> 32, known & 0xFFFFFFFF), np.zeros((len(known), WIDTH), np.uint8)
        positions = np.zeros(len(known), np.int64)
        with self._book.store.snapshot():
            stand[stand] = self._book.records.states_of(held.take(stand)) == State.COMMITTED
            positions[stand] = self._book.records.positions(held.take(stand))
            done, digests[stand] = self._vouched(held.take(stand))
        stand[stand] = done
        return stand[where], digests[where], positions[where]

    def _vouched(self, places: Places) -> tuple[Mask, Bytes]:
        records = self._book.records
        if self.chain is not None:
            return records.posted(places, self.chain)
        return np.ones(len(places.batch), np.bool_), records.digests(places)
