"""Read a ledger: commits, balances, views, anchors, verification."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from dptext_etl.errors import DPTextError
from dptext_etl.id_forms import IdForm
from dptext_etl.ledger.audit import views
from dptext_etl.ledger.audit.committed_index import Lookup
from dptext_etl.ledger.audit.remaining import Remaining, remaining, used
from dptext_etl.ledger.audit.verify import verify
from dptext_etl.ledger.operations.batch import record_ids
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.operations.cap_change import CapChange, cap_change
from dptext_etl.ledger.operations.erasure import are_forgotten, charged_to, forgotten
from dptext_etl.ledger.storage.copying import copy
from dptext_etl.ledger.storage.keyed_ids import binaries, keyed_ids
from dptext_etl.ledger.terms import (
    I64,
    Anchor,
    Committed,
    Event,
    IdForms,
    Mask,
    Posted,
    ReleaseRef,
    Scope,
    State,
    VerifyReport,
)
from dptext_etl.policy import Cap

FREEING = (Event.ABORT, Event.SETTLE, Event.THAW, Event.UNITS, Event.FORGET, Event.READMIT)
"""Events after which a record that was over the same cap may fit, or one that was forgotten be admitted."""


class Reader:
    """Read one open ledger. No method changes it, and each sees one consistent state."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self._book.store.name!r})"

    @property
    def ledger_id(self) -> str:
        """The random name that the ledger got when it was made; it distinguishes two ledgers at the same place."""
        return self._book.ledger_id

    @property
    def place(self) -> str:
        """Where the ledger is, without user and password, the same from every folder."""
        return self._book.store.place

    def close(self) -> None:
        """Close the connection."""
        self._book.store.close()

    def committed(self, ref: ReleaseRef, ids: pa.Array, *, canary: Mask | None = None) -> Committed:
        """Look up what was committed for some records; replays and gates need it."""
        records = record_ids(self._book.id_key, ids, canary).keyed
        with self._book.store.snapshot():
            held = self._book.records.held(ref, records, records.order())
            mask = held.known & (held.state == State.COMMITTED)
            found = self._book.records.digests(held.places.take(mask))
            keys_found = self._book.records.column(held.places.take(mask), "idem_key")
        digests, identities = (np.zeros((records.size, 32), np.uint8) for _ in range(2))
        digests[mask], identities[mask] = found, keys_found
        return Committed(mask, binaries(digests, mask), binaries(identities, mask))

    def posted(self, ref: ReleaseRef, chain: str, ids: pa.Array, *, canary: Mask | None = None) -> Posted:
        """Look up what a chain of post-processing made of some records."""
        records = record_ids(self._book.id_key, ids, canary).keyed
        with self._book.store.snapshot():
            held = self._book.records.held(ref, records, records.order())
            mask = held.known & (held.state == State.COMMITTED)
            done, found = self._book.records.posted(held.places.take(mask), chain)
        digests = np.zeros((records.size, 32), np.uint8)
        digests[mask] = found
        mask[mask] = done
        return Posted(mask, binaries(digests, mask))

    def lookup(self, ref: ReleaseRef, chain: str | None = None) -> Lookup:
        """Look up what `committed` or `posted` says, in steps that several processes can share out."""
        return Lookup(self._book, ref, chain)

    def known(self, ref: ReleaseRef, ids: pa.Array) -> Mask:
        """Return which records the release has seen, whatever became of them, shape (records,).

        Incremental runs take the other records.
        """
        records = record_ids(self._book.id_key, ids, None).keyed
        with self._book.store.snapshot():
            return self._book.records.held(ref, records, records.order()).known

    def records(self, ref: ReleaseRef) -> int:
        """Count the records that a release holds, over all partitions, without canary rows."""
        with self._book.store.snapshot():
            return self._book.records.count(ref)

    def remaining(self, scope: Scope, subjects: pa.Array | None = None) -> Remaining:
        """Return what units may still lose in a scope: quantiles over all units, and amounts of given units."""
        with self._book.store.snapshot():
            self._book.forget_dead_runs()
            return remaining(self._book, scope, subjects)

    def used(self, scope: Scope, units: pa.Array) -> dict[str, I64]:
        """Return what some units have used in a scope, by component of its cap; pure epsilon where there is no cap."""
        with self._book.store.snapshot():
            return used(self._book, scope, units)

    def pinned_forms(self, scope: Scope, columns: Sequence[str]) -> dict[str, IdForm]:
        """Return the pinned forms of the ids of a table, by role: "record" and "subject", as far as known."""
        with self._book.store.snapshot():
            return self._book.forms.pinned(scope, columns)

    def require_forms(self, scope: Scope, columns: Sequence[str], forms: IdForms) -> None:
        """Refuse ids of another form than the pinned one; `reserve` does the same and pins."""
        with self._book.store.snapshot():
            self._book.forms.require(scope, columns, forms, pin=False)

    def cap_change(self, scope: Scope, cap: Cap | None) -> CapChange | None:
        """Return what a policy with this cap would change, or None if it changes nothing that is pinned."""
        with self._book.store.snapshot():
            return cap_change(scope, self._book.scopes.find(scope), cap)

    def uncounted(self, scope: Scope) -> list[str]:
        """Return the scopes whose charges a first cap of a scope would not count, in words."""
        with self._book.store.snapshot():
            return self._book.scopes.uncounted(scope)

    def show(self) -> list[dict[str, Any]]:
        """List the releases with class, disclosures, spends and counts. Internal: never publish it."""
        with self._book.store.snapshot():
            return views.releases(self._book)

    def jobs(self) -> list[dict[str, Any]]:
        """List the jobs that reserved something, with what became of it. Internal: never publish it."""
        with self._book.store.snapshot():
            return views.jobs(self._book)

    def published(self, ref: ReleaseRef) -> dict[str, str]:
        """Return the SHA-256 of the manifest of every recorded publication of a release, by version.

        What was retired since is left out.
        """
        with self._book.store.snapshot():
            return views.published(self._book, ref)

    def retired(self, ref: ReleaseRef) -> set[str]:
        """Return the SHA-256 of every manifest of a release that was retired: a person was taken out of it."""
        with self._book.store.snapshot():
            return views.retired(self._book, ref)

    def of_subjects(self, dataset: str, subjects: pa.Array, ids: pa.Array) -> Mask:
        """Return which records were ever charged to some subjects, in any release of a dataset, shape (records,)."""
        hashed = self._book.id_key.subjects(subjects, np.zeros(len(subjects), np.bool_))
        records = self._book.id_key.records(ids, np.zeros(len(ids), np.bool_)).hashed
        with self._book.store.snapshot():
            theirs = {row.tobytes() for row in charged_to(self._book, dataset, hashed)}
        return np.fromiter((row.tobytes() in theirs for row in records), np.bool_, len(records))

    def known_subjects(self, dataset: str, subjects: pa.Array) -> Mask:
        """Return which subjects any record of a dataset was ever charged to, shape (subjects,)."""
        hashed = self._book.id_key.subjects(subjects, np.zeros(len(subjects), np.bool_))
        with self._book.store.snapshot():
            found = [bool(len(charged_to(self._book, dataset, row[np.newaxis]))) for row in hashed]
        return np.array(found, np.bool_)

    def known_records(self, dataset: str, ids: pa.Array) -> Mask:
        """Return which records any release of a dataset holds, shape (records,)."""
        records = self._book.id_key.records(ids, np.zeros(len(ids), np.bool_)).keyed
        with self._book.store.snapshot():
            return views.known_records(self._book, dataset, records)

    def publications_of(self, dataset: str, ids: pa.Array, subjects: pa.Array) -> list[dict[str, Any]]:
        """List the releases of a dataset with publications that were not retired and hold any of these people.

        Returns:
            Per release: `release`, `column`, `versions` (their names), and `records`, how many records are theirs.
        """
        hashed = self._book.id_key.subjects(subjects, np.zeros(len(subjects), np.bool_))
        records = self._book.id_key.records(ids, np.zeros(len(ids), np.bool_)).hashed
        with self._book.store.snapshot():
            theirs = np.concatenate([records, charged_to(self._book, dataset, hashed)])
            return views.publications_of(self._book, dataset, theirs)

    def forgotten(self, dataset: str, ids: pa.Array) -> Mask:
        """Return which records of a dataset are forgotten, shape (records,)."""
        records = self._book.id_key.records(ids, np.zeros(len(ids), np.bool_)).keyed
        with self._book.store.snapshot():
            return are_forgotten(self._book, dataset, records)

    def forgets(self, dataset: str) -> bool:
        """Return whether any record of a dataset is forgotten."""
        with self._book.store.snapshot():
            return bool(len(forgotten(self._book, dataset)))

    def holds_forgotten(self, ref: ReleaseRef) -> bool:
        """Return whether a release holds any record that is forgotten in its dataset."""
        return bool(self.count_forgotten(ref))

    def count_forgotten(self, ref: ReleaseRef) -> int:
        """Return how many records of a release are forgotten in its dataset."""
        with self._book.store.snapshot():
            gone = keyed_ids(forgotten(self._book, ref.dataset))
            return int(self._book.records.held(ref, gone, gone.order()).known.sum()) if gone.size else 0

    def caps(self) -> list[dict[str, Any]]:
        """List the scopes with their caps."""
        with self._book.store.snapshot():
            return views.caps(self._book)

    def export(self) -> dict[str, Any]:
        """Return what may be published about the ledger: no number in it depends on a text.

        Specification: docs/spec/privacy.md#export.
        """
        with self._book.store.snapshot():
            return views.export(self._book)

    def write_tables(self, folder: Path, names: Sequence[str] | None = None) -> dict[str, int]:
        """Write the ledger as Parquet tables into a new folder: all, or some by name. Internal: never publish them.

        Ids are keyed hashes, amounts are in units of epsilon, rho and delta (docs/ledger.md#tables).

        Returns:
            The number of rows by table.

        Raises:
            InputError: The folder holds something, or it cannot be written.
        """
        from dptext_etl.ledger.audit import table_schemas, tables

        with self._book.store.snapshot():
            self._book.forget_dead_runs()
            return tables.write(self._book, folder, tuple(table_schemas.SCHEMAS) if names is None else names)

    def hashes(self, ids: Sequence[str]) -> list[str]:
        """Return the keyed hashes that ids have in these tables: as records, and as subjects in every pinned spelling.

        Raises:
            KeyReferenceError: The id key cannot be read.
        """
        from dptext_etl.ledger.audit import query

        with self._book.store.snapshot():
            return query.hashes(self._book, ids)

    def anchor(self) -> Anchor:
        """Return the heads of the journal. Keep them where the keepers of the ledger cannot change them."""
        with self._book.store.snapshot():
            return self._book.journal.anchor()

    def number(self) -> int:
        """Return a number that all events to come are above, as far as they may free budgets or records."""
        with self._book.store.snapshot():
            return min((head.seq for head in self._book.journal.heads().values()), default=0)

    def freed(self, since: int) -> bool:
        """Return whether an event above a number may let records in that were left out before it."""
        with self._book.store.snapshot():
            return any(entry.seq > since for entry in self._book.journal.entries(*FREEING))

    def backup(self, to: str | Path) -> Anchor:
        """Copy the ledger as it is at one moment, while others may write. The id key is not copied."""
        return copy(self._book.store, str(to))

    def holds(self, anchor: Anchor) -> bool:
        """Return whether the journal still holds an anchor. If not, it was cut or rewritten, or it is an old copy."""
        if anchor.ledger != self._book.ledger_id:
            return False
        with self._book.store.snapshot():
            return self._book.journal.holds(anchor)

    def sharing(self, dataset: str, groups: Iterable[str] = ()) -> tuple[set[str], set[str]]:
        """Return the datasets and groups that share a scope with a dataset, directly or by way of others."""
        with self._book.store.snapshot():
            return self._book.freezes.sharing(dataset, groups)

    def losses(self, dataset: str, since: int = 0) -> int:
        """Count how often charges of a dataset were found to be missing; keep it next to an anchor, for `settled`."""
        with self._book.store.snapshot():
            return self._book.freezes.losses(dataset, since)

    def settled(self, dataset: str, missing: Anchor, losses: int | None = None) -> bool:
        """Return whether the loss of an anchor was settled: the dataset was frozen for it and thawed since."""
        with self._book.store.snapshot():
            return self._book.freezes.settled(dataset, missing, losses)

    def frozen(self) -> list[str]:
        """List the frozen datasets."""
        return [dataset for (dataset,) in self._book.store.rows("select dataset from frozen order by dataset")]

    def verify(self) -> VerifyReport:
        """Derive every table again from the journal and its sealed batches, and report each difference."""
        with self._book.store.snapshot():
            try:
                return verify(self._book)
            except DPTextError as error:
                problem = str(error)
            except (ValueError, TypeError, LookupError, ArithmeticError) as error:  # what json and NumPy raise
                problem = f"a stored value has a form that the ledger never writes ({type(error).__name__})"
        return VerifyReport([problem], {})
