"""Forget people, admit them again, and find what the ledger holds of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dptext_etl.arrays import to_numpy
from dptext_etl.guarantee import Micro
from dptext_etl.ledger import identities, views
from dptext_etl.ledger.database import Database
from dptext_etl.ledger.storage.hashed_ids import WIDTH, binaries, hashed_ids, matrix
from dptext_etl.ledger.types import Mask, ReleaseRef, require_plain


class People:
    """What the ledger knows of people and their records, as keyed hashes. Every method is one transaction."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def forget(self, dataset: str, records: pa.Array, subjects: pa.Array) -> int:
        """Note records and subjects as forgotten in a dataset: nothing of them is released until `readmit`.

        It returns how many records were not noted before: those given, and those that were charged to the subjects.

        Specification: docs/spec/privacy.md#forgotten.
        """
        hashed, units = self._db.id_key.records(records).hashes, self._db.id_key.subjects(subjects)
        with self._db.store.transaction():
            return identities.forget(self._db, dataset, hashed, units)

    def readmit(self, dataset: str, records: pa.Array, reason: str, subjects: pa.Array | None = None) -> int:
        """Let forgotten records and subjects of a dataset be released again, and return how many records there are."""
        require_plain(reason, "readmission")
        hashed = self._db.id_key.records(records).hashes
        units = self._db.id_key.subjects(pa.array([], pa.large_string()) if subjects is None else subjects)
        with self._db.store.transaction():
            self._db.store.require_steward()
            self._db.standing.refuse_frozen(dataset)
            return identities.readmit(self._db, dataset, hashed, units, reason)

    def forgotten(self, dataset: str, ids: pa.Array, units: pa.Array | None = None) -> Mask:
        """Return which records of a dataset are forgotten, shape (records,).

        With `units`, as `unit_hashes` returns them, these are records that may never have been charged.
        """
        records = self._db.id_key.records(ids).ids
        theirs = None if units is None else hashed_ids(matrix(units.fill_null(bytes(WIDTH)), "units"))
        with self._db.store.snapshot():
            return identities.are_forgotten(self._db, dataset, records, theirs)

    def forgets(self, dataset: str) -> bool:
        """Return whether any record of a dataset is forgotten."""
        with self._db.store.snapshot():
            return bool(identities.forgotten(self._db, dataset).records)

    def count_forgotten(self, ref: ReleaseRef) -> int:
        """Return how many records of a release are forgotten in its dataset."""
        with self._db.store.snapshot():
            gone = hashed_ids(identities.as_rows(identities.forgotten(self._db, ref.dataset).records))
            return int(self._db.look_up(ref, gone).known.sum()) if gone.size else 0

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

    def unit_hashes(self, subjects: pa.Array) -> pa.Array:
        """Return the keyed hashes of subjects as the ledger keeps them, fixed-size binary (32), null where unknown."""
        unknown = to_numpy(subjects.is_null())
        return binaries(self._db.id_key.subjects(subjects, unknown), ~unknown)

    def publications_of(self, dataset: str, ids: pa.Array, subjects: pa.Array) -> list[dict[str, Any]]:
        """List the releases of a dataset with publications that were not retired and hold any of these people.

        Returns:
            Per release: `release`, `column`, `versions` (their names), and `records`, how many records are theirs.
        """
        hashes, records = self._db.id_key.subjects(subjects), self._db.id_key.records(ids).hashes
        with self._db.store.snapshot():
            theirs = np.concatenate([records, identities.charged_to(self._db, dataset, hashes)])
            return views.publications_of(self._db, dataset, theirs)

    def accept_units(self, dataset: str, lost: Mapping[str, float], reason: str) -> dict[str, dict[str, Micro]]:
        """Let the records that a dataset holds arrive under other units, and its columns of ids be named anew.

        The caps of the dataset are lowered by what a unit may have been charged under another name.

        Specification: docs/spec/privacy.md#same-unit.
        """
        require_plain(reason, "change of units")
        with self._db.store.transaction():
            return identities.accept_units(self._db, dataset, lost, reason)
