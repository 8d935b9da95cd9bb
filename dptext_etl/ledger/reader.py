"""Read a ledger: commits, balances, views, anchors, verification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from dptext_etl.errors import DPTextError
from dptext_etl.id_forms import IdForm
from dptext_etl.ledger import people, views
from dptext_etl.ledger.caps import cap_change
from dptext_etl.ledger.losses import Losses
from dptext_etl.ledger.people import People
from dptext_etl.ledger.plan import Database, Lookup
from dptext_etl.ledger.storage.hashed_ids import binaries
from dptext_etl.ledger.types import (
    I64,
    Anchor,
    CapChange,
    Committed,
    IdForms,
    Mask,
    Postprocessed,
    ReleaseRef,
    Scope,
    VerifyReport,
)
from dptext_etl.ledger.views import Remaining
from dptext_etl.policy import Cap

if TYPE_CHECKING:
    from dptext_etl.ledger.reports import Reports


class LedgerReader:
    """Read one open ledger. No method changes it, and each sees one consistent state."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.releases = db.releases
        self.people = People(db)
        self.losses = Losses(db)

    @cached_property
    def reports(self) -> Reports:
        """Export the ledger, and read it in other forms."""
        from dptext_etl.ledger.reports import Reports

        return Reports(self._db)

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

    def committed(self, ref: ReleaseRef, ids: pa.Array, *, canary: Mask | None = None) -> Committed:
        """Look up the commits of some records; replays and gates need them.

        Args:
            ref: The release.
            ids: Canonical record ids, each once.
            canary: Marks canary rows, shape (records,).

        Returns:
            Which records are committed, shape (records,), and their digests, identities, and positions.

        Raises:
            InputError: Ids are null, repeated, or not canonical strings.
        """
        records = self._db.id_key.records(ids, canary).ids
        digests, idem_keys = (np.zeros((records.size, 32), np.uint8) for _ in range(2))
        positions = np.zeros(records.size, np.int64)
        with self._db.store.snapshot():
            holdings = self._db.look_up(ref, records)
            mask = holdings.committed
            places = holdings.places.take(mask)
            digests[mask], positions[mask] = self._db.records.digests_and_positions(places)
            idem_keys[mask] = self._db.records.reserved(places, "idem_key")
        return Committed(mask, binaries(digests, mask), binaries(idem_keys, mask), positions)

    def seal(self, message: bytes) -> str:
        """Return a keyed hash of a message under the id key, 64 hex digits (docs/spec/stream.md#seal-key).

        Args:
            message: The message.

        Raises:
            KeyReferenceError: The id key cannot be read.
        """
        return self._db.id_key.secret.derive("seal", message).hex()

    def settled_epsilons(self, ref: ReleaseRef, ids: pa.Array, *, canary: Mask | None = None) -> tuple[Mask, I64]:
        """Return which committed records were settled ex post, and the pure epsilon that they used, in millionths.

        Args:
            ref: The release.
            ids: Canonical record ids, each once.
            canary: Marks canary rows, shape (records,).

        Returns:
            A mask and amounts, each of shape (records,); the amounts of other records are 0.

        Raises:
            InputError: Ids are null, repeated, or not canonical strings.
        """
        records = self._db.id_key.records(ids, canary).ids
        used = np.zeros(records.size, np.int64)
        with self._db.store.snapshot():
            holdings = self._db.look_up(ref, records)
            mask = holdings.committed
            mask[mask], used[mask] = self._db.records.settled(holdings.places.take(mask))
        return mask, used

    def postprocessed(self, ref: ReleaseRef, chain: str, ids: pa.Array, *, canary: Mask | None = None) -> Postprocessed:
        """Look up the results of a chain of post-processings for some records.

        Args:
            ref: The release.
            chain: The hash that names the post-processings in their order.
            ids: Canonical record ids, each once.
            canary: Marks canary rows, shape (records,).

        Returns:
            Which records have a result, shape (records,), and the digests of these results.

        Raises:
            InputError: Ids are null, repeated, or not canonical strings.
        """
        records = self._db.id_key.records(ids, canary).ids
        digests = np.zeros((records.size, 32), np.uint8)
        with self._db.store.snapshot():
            holdings = self._db.look_up(ref, records)
            mask = holdings.committed
            rewritten, digests[mask] = self._db.records.postprocessed(holdings.places.take(mask), chain)
        mask[mask] = rewritten
        return Postprocessed(mask, binaries(digests, mask))

    def lookup(self, ref: ReleaseRef, chain: str | None = None, *, identities: bool = False) -> Lookup:
        """Look up the same as `committed` or `postprocessed`, in steps that several processes can share.

        Args:
            ref: The release.
            chain: The hash that names the post-processings; None looks up commits.
            identities: Look up the identities of raw texts instead of the digests of released ones.

        Returns:
            The lookup, which other processes can use without this ledger's connection.
        """
        return Lookup(self._db, ref, chain, identities=identities)

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

    def remaining(self, scope: Scope, subjects: pa.Array | None = None) -> Remaining:
        """Return the remaining amounts in a scope: quantiles over all units, and amounts of given units.

        Args:
            scope: Where the spends add up.
            subjects: Canonical ids of units whose amounts are returned, too; None gives only the quantiles.

        Raises:
            LedgerError: The scope counts per another unit.
        """
        with self._db.store.snapshot():
            return views.remaining(self._db, scope, subjects)

    def further(
        self, scope: Scope, cap: Cap, costs: Mapping[str, views.Cost], most: int | None
    ) -> dict[str, Counter[int]]:
        """Count the units of a dataset by how many more releases fit into their remaining amounts.

        Such a release holds the records of the newest release of each column, or where the column has none, of the
        dataset's newest release. As in `reserve`, charges add up by component; nothing that a commit gives back counts.

        Args:
            scope: Where the spends add up.
            cap: The cap, on one measure.
            costs: The costs of records, by text column.
            most: Records of a person that a release holds, at most.

        Returns:
            Numbers of units by number of releases: "units", and where persons are the unit "rows", records without a
            person. Units that a release does not charge are excluded.
        """
        with self._db.store.snapshot():
            return views.further(self._db, scope, cap, costs, most)

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
            return views.used(self._db, scope, units)

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
        from dptext_etl.ledger.copying import copy

        return copy(self._db.store, str(to))

    def holds(self, anchor: Anchor) -> bool:
        """Return whether the journal still holds an anchor. If not, it was cut or rewritten, or it is an old copy.

        Args:
            anchor: An anchor, as `anchor` returned it.
        """
        with self._db.store.snapshot():
            return anchor.ledger == self._db.ledger_id and self._db.journal.holds(anchor)

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
