"""Read a ledger: commits, balances, views, anchors, verification."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from dptext_etl.errors import DPTextError, bare
from dptext_etl.keys import IdForm
from dptext_etl.ledger import people, reports
from dptext_etl.ledger.caps import cap_change
from dptext_etl.ledger.holdings import Database, Places
from dptext_etl.ledger.people import Losses, People
from dptext_etl.ledger.reports import Remaining, Reports
from dptext_etl.ledger.storage.hashed_ids import WIDTH, Bytes, binaries, hashed_ids
from dptext_etl.ledger.storage.journal import Head, copy
from dptext_etl.ledger.types import (
    I64,
    Anchor,
    CapChange,
    Committed,
    IdForms,
    Mask,
    ReleaseRef,
    Scope,
    State,
    VerifyReport,
)
from dptext_etl.policy import Cap


class LedgerReader:
    """Read one open ledger. No method changes it, and each sees one consistent state."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.releases = db.releases
        self.people = People(db)
        self.losses = Losses(db)
        self.reports = Reports(db)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self._db.store.name!r})"

    @property
    def ledger_id(self) -> str:
        """The random name that the ledger got when it was made; it distinguishes two ledgers at the same place."""
        return self._db.ledger_id

    @property
    def place(self) -> str:
        """Where the ledger is, without user and password, the same from every folder."""
        return self._db.store.place

    def close(self) -> None:
        """Close the connection."""
        self._db.store.close()

    @bare
    def committed(
        self, ref: ReleaseRef, ids: pa.Array, *, chain: str | None = None, canary: Mask | None = None
    ) -> Committed:
        """Look up the commits of some records, or the results of a chain of post-processings.

        Args:
            ref: The release.
            ids: Canonical record ids, each once.
            chain: The hash that names the post-processings in their order; None looks up the commits.
            canary: Marks canary rows, shape (records,).

        Returns:
            The committed state of the records; with a chain, records without a result of it count as not committed.

        Raises:
            InputError: Ids are null, repeated, or not canonical strings.
        """
        records, read = self._db.id_key.records(ids, canary).ids, self._db.records
        digests, idem_keys = (np.zeros((records.size, 32), np.uint8) for _ in range(2))
        positions, used = np.zeros((2, records.size), np.int64)
        settled = np.zeros(records.size, np.bool_)
        with self._db.store.snapshot():
            holdings = self._db.look_up(ref, records)
            mask = holdings.committed
            places = holdings.places.take(mask)
            digests[mask], positions[mask] = read.digests_and_positions(places)
            idem_keys[mask] = read.reserved(places, "idem_key")
            settled[mask], used[mask] = read.settled(places)
            if chain is not None:
                rewritten, digests[mask] = read.postprocessed(places, chain)
                mask[mask] = rewritten
        return Committed(mask, binaries(digests, mask), binaries(idem_keys, mask), positions, settled, used)

    def seal(self, message: bytes) -> str:
        """Return a keyed hash of a message under the id key, 64 hex digits (docs/spec/stream.md#seal-key).

        Args:
            message: The message.

        Raises:
            KeyReferenceError: The id key cannot be read.
        """
        return self._db.id_key.secret.derive("seal", message).hex()

    def lookup(self, ref: ReleaseRef, chain: str | None = None, *, identities: bool = False) -> Lookup:
        """Look up the same as `committed`, in steps that several processes can share.

        Args:
            ref: The release.
            chain: The hash that names the post-processings; None looks up commits.
            identities: Look up the identities of raw texts instead of the digests of released ones.

        Returns:
            The lookup, which other processes can use without this ledger's connection.
        """
        return Lookup(self._db, ref, chain, identities=identities)

    @bare
    def known(self, ref: ReleaseRef, ids: pa.Array) -> Mask:
        """Return which records the release holds, shape (records,).

        Args:
            ref: The release.
            ids: Canonical record ids, each once.

        Raises:
            InputError: Ids are null, repeated, or not canonical strings.
        """
        records = self._db.id_key.records(ids).ids
        with self._db.store.snapshot():
            return self._db.look_up(ref, records).present

    def records(self, ref: ReleaseRef) -> int:
        """Return how many records a release holds, over all partitions, without canary rows.

        Args:
            ref: The release.
        """
        with self._db.store.snapshot():
            return self._db.records.count(ref)

    @bare
    def remaining(self, scope: Scope, subjects: pa.Array | None = None) -> Remaining:
        """Return the remaining amounts in a scope: quantiles over all units, and amounts of given units.

        Args:
            scope: Where the spends add up.
            subjects: Canonical ids of units whose amounts are returned, too; None gives only the quantiles.

        Raises:
            LedgerError: The scope counts per another unit.
        """
        with self._db.store.snapshot():
            return reports.remaining(self._db, scope, subjects)

    @bare
    def used(self, scope: Scope, units: pa.Array) -> dict[str, I64]:
        """Return the used amounts of units in a scope, by component of its cap; pure epsilon without a cap.

        Args:
            scope: Where the spends add up.
            units: Canonical ids of units.

        Returns:
            Amounts by component in its steps (`guarantee.steps`), shape (units,).

        Raises:
            LedgerError: The scope counts per another unit.
        """
        with self._db.store.snapshot():
            return reports.used(self._db, scope, units)

    def pinned_forms(self, scope: Scope, columns: Sequence[str]) -> dict[str, IdForm]:
        """Return the pinned forms of the ids of a table, by role: "record" and "subject", as far as known.

        Args:
            scope: Where the spends add up.
            columns: Names of the text columns.
        """
        with self._db.store.snapshot():
            return people.pinned_forms(self._db, scope, columns)

    def rehearsal(self) -> AbstractContextManager[None]:
        """Do the writes of the block on one snapshot of the ledger, and throw them away at its end.

        `agree_on_cap`, `require_forms`, and `releases.register` check and pin as they do in a run; later calls in
        the block see these events. No lock is held against writers, and no right to write is needed.
        """
        return self._db.journal.rehearsal()

    def require_forms(self, scope: Scope, columns: Sequence[str], forms: IdForms) -> None:
        """Pin the forms of ids in a rehearsal, or refuse others than the pinned ones; `reserve` does the same.

        Args:
            scope: Where the spends add up.
            columns: Names of the text columns.
            forms: The forms of the ids before they became canonical strings.

        Raises:
            LedgerError: A form or the name of an id column differs from the pinned one.
        """
        with self._db.journal.rehearsal():
            people.require_forms(self._db, scope, columns, forms)

    def cap_change(self, scope: Scope, cap: Cap | None) -> CapChange | None:
        """Return the change that a policy with this cap would make to the pinned cap, or None.

        Args:
            scope: The scope of the policy.
            cap: The cap of the policy; None if it has none.

        Raises:
            LedgerError: The scope counts per another unit.
        """
        with self._db.store.snapshot():
            return cap_change(scope, self._db.scopes.find(scope), cap)

    def anchor(self) -> Anchor:
        """Return the anchor of the ledger. Keep it where the keepers of the ledger cannot change it."""
        with self._db.store.snapshot():
            return self._db.journal.anchor()

    def backup(self, to: str | Path) -> Anchor:
        """Copy the ledger as it is at one moment, while others may write. The id key is not copied.

        Args:
            to: A path or a URL of a place without a ledger.

        Returns:
            The anchor of the copy.

        Raises:
            LedgerError: A ledger is there, or the copy is not intact.
        """
        return copy(self._db.store, str(to))

    def write_tables(self, folder: Path, ids: Sequence[str] = ()) -> dict[str, int]:
        """Write the ledger as Parquet tables into a new folder. Internal: never publish them.

        Ids are keyed hashes, amounts are in units of epsilon, rho and delta (docs/ledger.md#tables).

        Args:
            folder: A folder that does not exist, or is empty.
            ids: Ids of records or subjects; the table `asked` holds their keyed hashes.

        Returns:
            The number of rows by table.

        Raises:
            InputError: The folder holds something, or it cannot be written.
            KeyReferenceError: The id key cannot be read.
        """
        from dptext_etl.ledger import ledger_tables

        with self._db.store.snapshot():
            return ledger_tables.write(self._db, folder, ids)

    def holds(self, anchor: Anchor) -> bool:
        """Return whether the journal still holds an anchor. If not, it was cut or rewritten, or it is an old copy.

        Args:
            anchor: An anchor, as `anchor` returned it.
        """
        with self._db.store.snapshot():
            head = Head(anchor.seq, bytes.fromhex(anchor.hash))
            return anchor.ledger == self._db.ledger_id and self._db.journal.has_head(head)

    def verify(self) -> VerifyReport:
        """Derive every table again from the journal and its sealed batches, and report each difference."""
        from dptext_etl.ledger.audit import verify

        with self._db.store.snapshot():
            try:
                return verify(self._db)
            except DPTextError as error:
                if error.transient:  # an outage says nothing about the stored data
                    raise
                problem = str(error)
            except (ValueError, TypeError, LookupError, ArithmeticError) as error:  # what json and NumPy raise
                problem = f"a stored value has a form that the ledger never writes ({type(error).__name__})"
        return VerifyReport([problem], {})


NOWHERE = -1  # the place of a record that the release has never seen


class Lookup:
    """The first step finds the places of records; the second reads states and digests, which lie batch by batch.

    No process needs more than the ids of its records, or the places of its batches.
    """

    def __init__(self, db: Database, ref: ReleaseRef, chain: str | None, *, identities: bool) -> None:
        self._db, self.ref, self.chain, self._identities = db, ref, chain, identities

    def hashed(self, ids: pa.Array, canary: Mask | None = None) -> Bytes:
        """Hash record ids, shape (records, 16)."""
        hashes: Bytes = np.ascontiguousarray(self._db.id_key.records(ids, canary).hashes[:, :16])
        return hashes

    def batches(self) -> I64:
        """Return the batches of the release, in ascending order."""
        with self._db.store.snapshot():
            return np.array(self._db.contents.latest().of_release.get((self.ref.id, self.ref.nonce), []), np.int64)

    @property
    def planned(self) -> bool:
        """Whether the ledger has the plan of a run, so that records can be looked up a few at a time."""
        return self._db.run is not None

    def places(self, hashes: Bytes) -> I64:
        """Find where records were reserved, shape (records,); `NOWHERE` for those that the release has never seen.

        Without a plan, each call goes through all batches of the release.
        """
        with self._db.store.snapshot():
            plan, at, _ = self._db.covering(self.ref.dataset, hashed_ids(hashes))
            plan.catch_up(self._db)
            places = plan.places(self._db, self.ref, at)
        return np.where(places > 0, places, NOWHERE)

    def digests(self, places: I64) -> tuple[Mask, Bytes, I64]:
        """Return which records are committed, shape (records,), digests of their texts, (records, 32), and positions.

        With a chain of post-processings: which of them it rewrote, and the digests of the results. With `identities`:
        the identities of the raw texts instead of digests.
        """
        if not (places[1:] > places[:-1]).all():
            packed, where = np.unique(places, return_inverse=True)
            mask, digests, positions = self.digests(packed)
            return mask[where], digests[where], positions[where]
        mask, records = places != NOWHERE, self._db.records
        every = Places.unpack(np.where(mask, places, 0))
        with self._db.store.snapshot():
            mask[mask] = records.states_of(every.take(mask)) == State.COMMITTED
            if mask.all() and self.chain is None and not self._identities:
                return mask, *records.digests_and_positions(every)
            digests, positions = np.zeros((len(places), WIDTH), np.uint8), np.zeros(len(places), np.int64)
            committed = every.take(mask)
            digests[mask], positions[mask] = records.digests_and_positions(committed)
            if self._identities:
                digests[mask] = records.reserved(committed, "idem_key")
            if self.chain is not None:
                rewritten, digests[mask] = records.postprocessed(committed, self.chain)
                mask[mask] = rewritten
        return mask, digests, positions
