"""Read a ledger: commits, balances, views, anchors, verification."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from dptext_etl.arrays import to_numpy
from dptext_etl.errors import DPTextError
from dptext_etl.id_forms import IdForm
from dptext_etl.ledger import identities, views
from dptext_etl.ledger.caps import cap_change
from dptext_etl.ledger.database import Database
from dptext_etl.ledger.lookup import Lookup
from dptext_etl.ledger.storage.backup import copy
from dptext_etl.ledger.storage.hashed_ids import WIDTH, binaries, hashed_ids, matrix
from dptext_etl.ledger.types import (
    I64,
    Anchor,
    CapChange,
    Committed,
    Event,
    IdForms,
    Mask,
    Postprocessed,
    ReleaseRef,
    Scope,
    VerifyReport,
)
from dptext_etl.ledger.views import Remaining
from dptext_etl.policy import Cap


class LedgerReader:
    """Read one open ledger. No method changes it, and each sees one consistent state."""

    def __init__(self, db: Database) -> None:
        self._db = db

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
        """Look up what was committed for some records; replays and gates need it."""
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
        """Return a keyed hash of a message under the id key, 64 hex digits (docs/spec/stream.md#seal-key)."""
        return self._db.id_key.secret.derive("seal", message).hex()

    def settled_epsilons(self, ref: ReleaseRef, ids: pa.Array, *, canary: Mask | None = None) -> tuple[Mask, I64]:
        """Return which committed records were settled ex post, and the pure epsilon that they used, in millionths."""
        records = self._db.id_key.records(ids, canary).ids
        used = np.zeros(records.size, np.int64)
        with self._db.store.snapshot():
            holdings = self._db.look_up(ref, records)
            mask = holdings.committed
            mask[mask], used[mask] = self._db.records.settled(holdings.places.take(mask))
        return mask, used

    def postprocessed(self, ref: ReleaseRef, chain: str, ids: pa.Array, *, canary: Mask | None = None) -> Postprocessed:
        """Look up what a chain of post-processing made of some records."""
        records = self._db.id_key.records(ids, canary).ids
        digests = np.zeros((records.size, 32), np.uint8)
        with self._db.store.snapshot():
            holdings = self._db.look_up(ref, records)
            mask = holdings.committed
            done, digests[mask] = self._db.records.postprocessed(holdings.places.take(mask), chain)
        mask[mask] = done
        return Postprocessed(mask, binaries(digests, mask))

    def lookup(self, ref: ReleaseRef, chain: str | None = None) -> Lookup:
        """Look up what `committed` or `postprocessed` says, in steps that several processes can share out."""
        return Lookup(self._db, ref, chain)

    def known(self, ref: ReleaseRef, ids: pa.Array) -> Mask:
        """Return which records the release holds, shape (records,)."""
        records = self._db.id_key.records(ids).ids
        with self._db.store.snapshot():
            return self._db.look_up(ref, records).known

    def records(self, ref: ReleaseRef) -> int:
        """Count the records that a release holds, over all partitions, without canary rows."""
        with self._db.store.snapshot():
            return self._db.records.count(ref)

    def remaining(self, scope: Scope, subjects: pa.Array | None = None) -> Remaining:
        """Return what units may still lose in a scope: quantiles over all units, and amounts of given units."""
        with self._db.store.snapshot():
            return views.remaining(self._db, scope, subjects)

    def used(self, scope: Scope, units: pa.Array) -> dict[str, I64]:
        """Return what some units have used in a scope, by component of its cap; pure epsilon where there is no cap."""
        with self._db.store.snapshot():
            return views.used(self._db, scope, units)

    def pinned_forms(self, scope: Scope, columns: Sequence[str]) -> dict[str, IdForm]:
        """Return the pinned forms of the ids of a table, by role: "record" and "subject", as far as known."""
        with self._db.store.snapshot():
            return identities.pinned_forms(self._db, scope, columns)

    def require_forms(self, scope: Scope, columns: Sequence[str], forms: IdForms) -> None:
        """Refuse ids of another form than the pinned one; `reserve` does the same and pins."""
        with self._db.store.snapshot():
            identities.require_forms(self._db, scope, columns, forms, pin=False)

    def cap_change(self, scope: Scope, cap: Cap | None) -> CapChange | None:
        """Return what a policy with this cap would change, or None if it changes nothing that is pinned."""
        with self._db.store.snapshot():
            return cap_change(scope, self._db.scopes.find(scope), cap)

    def uncounted(self, scope: Scope) -> list[str]:
        """Return the scopes whose charges a first cap of a scope would not count, in words."""
        with self._db.store.snapshot():
            return self._db.scopes.uncounted(scope)

    def show(self) -> list[dict[str, Any]]:
        """List the releases with class, disclosures, spends and counts. Internal: never publish it."""
        with self._db.store.snapshot():
            return views.releases(self._db)

    def jobs(self) -> list[dict[str, Any]]:
        """List the jobs that reserved something: when they began, for what, and how many records are pending.

        Internal: never publish it.
        """
        with self._db.store.snapshot():
            return views.jobs(self._db)

    def published(self, ref: ReleaseRef, sink: str | None = None) -> dict[str, str]:
        """Return the SHA-256 of the manifest of every recorded publication of a release, by version.

        What was retired since, in a sink if it is given, is left out.
        """
        where = None if sink is None else self._db.id_key.sink(sink)
        with self._db.store.snapshot():
            return views.published(self._db, ref, where)

    def retired(self, ref: ReleaseRef, sink: str | None = None) -> set[str]:
        """Return the SHA-256 of every manifest of a release that was retired, in a sink if it is given.

        A person was taken out of these. Without a sink, a manifest counts that was retired wherever it was published.
        """
        where = None if sink is None else self._db.id_key.sink(sink)
        with self._db.store.snapshot():
            return views.retired(self._db, ref, where)

    def of_subjects(self, dataset: str, subjects: pa.Array, ids: pa.Array) -> Mask:
        """Return which records were ever charged to some subjects, in any release of a dataset, shape (records,)."""
        hashes, records = self._db.id_key.subjects(subjects), self._db.id_key.records(ids).hashes
        with self._db.store.snapshot():
            theirs = {row.tobytes() for row in identities.charged_to(self._db, dataset, hashes)}
        return np.fromiter((row.tobytes() in theirs for row in records), np.bool_, len(records))

    def known_subjects(self, dataset: str, subjects: pa.Array) -> Mask:
        """Return which subjects any record of a dataset was ever charged to, or are forgotten, shape (subjects,)."""
        hashes = self._db.id_key.subjects(subjects)
        with self._db.store.snapshot():
            gone = identities.forgotten(self._db, dataset).units
            records = [identities.charged_to(self._db, dataset, row[np.newaxis]) for row in hashes]
        known = [len(theirs) > 0 or row.tobytes() in gone for theirs, row in zip(records, hashes, strict=True)]
        return np.array(known, np.bool_)

    def known_records(self, dataset: str, ids: pa.Array) -> Mask:
        """Return which records any release of a dataset holds, or are forgotten, shape (records,)."""
        records = self._db.id_key.records(ids).ids
        order = records.order()
        with self._db.store.snapshot():
            known = identities.are_forgotten(self._db, dataset, records)
            for ref in self._db.releases.of_dataset(dataset):
                known |= self._db.look_up(ref, records, order).known
        return known

    def publications_of(self, dataset: str, ids: pa.Array, subjects: pa.Array) -> list[dict[str, Any]]:
        """List the releases of a dataset with publications that were not retired and hold any of these people.

        Returns:
            Per release: `release`, `column`, `versions` (their names), and `records`, how many records are theirs.
        """
        hashes, records = self._db.id_key.subjects(subjects), self._db.id_key.records(ids).hashes
        with self._db.store.snapshot():
            theirs = np.concatenate([records, identities.charged_to(self._db, dataset, hashes)])
            return views.publications_of(self._db, dataset, theirs)

    def forgotten(self, dataset: str, ids: pa.Array, units: pa.Array | None = None) -> Mask:
        """Return which records of a dataset are forgotten, shape (records,).

        With `units`, as `unit_hashes` returns them, these are records that may never have been charged.
        """
        records = self._db.id_key.records(ids).ids
        theirs = None if units is None else hashed_ids(matrix(units.fill_null(bytes(WIDTH)), "units"))
        with self._db.store.snapshot():
            return identities.are_forgotten(self._db, dataset, records, theirs)

    def unit_hashes(self, subjects: pa.Array) -> pa.Array:
        """Return the keyed hashes of subjects as the ledger keeps them, fixed-size binary (32), null where unknown."""
        unknown = to_numpy(subjects.is_null())
        return binaries(self._db.id_key.subjects(subjects, unknown), ~unknown)

    def forgets(self, dataset: str) -> bool:
        """Return whether any record of a dataset is forgotten."""
        with self._db.store.snapshot():
            return bool(identities.forgotten(self._db, dataset).records)

    def count_forgotten(self, ref: ReleaseRef) -> int:
        """Return how many records of a release are forgotten in its dataset."""
        with self._db.store.snapshot():
            gone = hashed_ids(identities.as_rows(identities.forgotten(self._db, ref.dataset).records))
            return int(self._db.look_up(ref, gone).known.sum()) if gone.size else 0

    def caps(self) -> list[dict[str, Any]]:
        """List the scopes with their caps, amounts in millionths."""
        with self._db.store.snapshot():
            return views.caps(self._db)

    def export(self) -> dict[str, Any]:
        """Return what may be published: configurations, claims, constants, and the number of subjects of a dataset.

        Specification: docs/spec/privacy.md#export.
        """
        with self._db.store.snapshot():
            return views.export(self._db)

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
        from dptext_etl.ledger import tables

        with self._db.store.snapshot():
            return tables.write(self._db, folder, ids)

    def anchor(self) -> Anchor:
        """Return the heads of the journal. Keep them where the keepers of the ledger cannot change them."""
        with self._db.store.snapshot():
            return self._db.journal.anchor()

    def events_hash(self, *kinds: Event) -> str:
        """Return a hash over all events of some kinds, in hex, which each further one changes; empty without events."""
        with self._db.store.snapshot():
            hashes = b"".join(entry.hash for entry in self._db.journal.entries(*kinds))
        return hashlib.sha256(hashes).hexdigest() if hashes else ""

    def backup(self, to: str | Path) -> Anchor:
        """Copy the ledger as it is at one moment, while others may write. The id key is not copied."""
        return copy(self._db.store, str(to))

    def holds(self, anchor: Anchor) -> bool:
        """Return whether the journal still holds an anchor. If not, it was cut or rewritten, or it is an old copy."""
        with self._db.store.snapshot():
            return anchor.ledger == self._db.ledger_id and self._db.journal.holds(anchor)

    def sharing(self, dataset: str, groups: Iterable[str] = ()) -> tuple[set[str], set[str]]:
        """Return the datasets and groups that share a scope with a dataset, directly or by way of others."""
        with self._db.store.snapshot():
            return self._db.freezes.sharing(dataset, groups)

    def losses(self, dataset: str, since: int = 0) -> int:
        """Count how often charges of a dataset were found to be missing; keep it next to an anchor, for `settled`."""
        with self._db.store.snapshot():
            return len(self._db.freezes.missed(dataset, since))

    def settled(self, dataset: str, missing: Anchor, losses: int | None = None) -> bool:
        """Return whether the loss of an anchor was settled: the dataset was frozen for it and thawed since."""
        with self._db.store.snapshot():
            return self._db.freezes.settled(dataset, missing, losses)

    def frozen(self) -> list[str]:
        """List the frozen datasets."""
        return [dataset for (dataset,) in self._db.store.rows("select dataset from frozen order by dataset")]

    def verify(self) -> VerifyReport:
        """Derive every table again from the journal and its sealed batches, and report each difference."""
        from dptext_etl.ledger.verify import verify

        with self._db.store.snapshot():
            try:
                return verify(self._db)
            except DPTextError as error:
                problem = str(error)
            except (ValueError, TypeError, LookupError, ArithmeticError) as error:  # what json and NumPy raise
                problem = f"a stored value has a form that the ledger never writes ({type(error).__name__})"
        return VerifyReport([problem], {})
