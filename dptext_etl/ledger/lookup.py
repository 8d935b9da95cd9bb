"""Look up what a release vouches for, in two steps that several processes can share out among themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dptext_etl.ledger.storage.hashed_ids import WIDTH, Bytes, hashed_ids
from dptext_etl.ledger.storage.records import Places
from dptext_etl.ledger.types import I64, Mask, ReleaseRef, State

if TYPE_CHECKING:
    from dptext_etl.ledger.database import Database

NOWHERE = -1
"""The place of a record that the release has never seen."""


class Lookup:
    """The first step finds the places of records; the second reads states and digests, which lie batch by batch.

    No process needs more than the ids of its records, or the places of its batches.
    """

    def __init__(self, db: Database, ref: ReleaseRef, chain: str | None = None) -> None:
        self._db = db
        self.ref = ref
        self.chain = chain

    def hashed(self, ids: pa.Array, canary: Mask | None = None) -> Bytes:
        """Hash record ids, shape (records, 16)."""
        hashes: Bytes = np.ascontiguousarray(self._db.id_key.records(ids, canary).hashes[:, :16])
        return hashes

    def batches(self) -> I64:
        """Return the batches of the release, in ascending order."""
        with self._db.store.snapshot():
            return self._db.records.batches(self.ref)

    @property
    def planned(self) -> bool:
        """Whether the ledger has the plan of a run, so that records can be looked up a few at a time."""
        return self._db.plans.run is not None

    def places(self, hashes: Bytes) -> I64:
        """Find where records were reserved, shape (records,); `NOWHERE` for those that the release has never seen.

        Without a plan, each call goes through all batches of the release.
        """
        with self._db.store.snapshot():
            plan, at, _ = self._db.plans.covering(self.ref.dataset, hashed_ids(hashes))
            plan.catch_up(self._db)
            places = plan.places(self._db, self.ref, at)
        return np.where(places > 0, places, NOWHERE)

    def digests(self, places: I64) -> tuple[Mask, Bytes, I64]:
        """Return which records are committed, shape (records,), digests of their texts, (records, 32), and positions.

        With a chain of post-processings: which of them it rewrote, and the digests of the results.
        """
        packed, where = places, np.arange(len(places))
        if not (places[1:] > places[:-1]).all():
            packed, where = np.unique(places, return_inverse=True)
        mask = packed != NOWHERE
        every, records = Places.unpack(np.where(mask, packed, 0)), self._db.records
        digests, positions = np.zeros((len(packed), WIDTH), np.uint8), np.zeros(len(packed), np.int64)
        with self._db.store.snapshot():
            mask[mask] = records.states_of(every.take(mask)) == State.COMMITTED
            committed = every.take(mask)
            digests[mask], positions[mask] = records.digests_and_positions(committed)
            if self.chain is not None:
                done, digests[mask] = records.postprocessed(committed, self.chain)
                mask[mask] = done
        return mask[where], digests[where], positions[where]
