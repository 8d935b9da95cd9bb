"""Show what a ledger holds, to people and their tools."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dptext_etl.ledger import views
from dptext_etl.ledger.database import Database
from dptext_etl.ledger.types import Event, Scope


class Reports:
    """Views of one consistent state of a ledger; nothing is written. Publish only what `export` returns."""

    def __init__(self, db: Database) -> None:
        self._db = db

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

    def caps(self) -> list[dict[str, Any]]:
        """List the scopes with their caps, amounts in millionths."""
        with self._db.store.snapshot():
            return views.caps(self._db)

    def together(self) -> dict[str, Any]:
        """Return the most epsilon that all scopes of persons charged one of them (`views.together`)."""
        with self._db.store.snapshot():
            return views.together(self._db)

    def history(self) -> list[dict[str, Any]]:
        """List what people decided: changes of caps, freezes, thaws, revocations, and who may be released (`views`)."""
        with self._db.store.snapshot():
            return views.history(self._db)

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

    def events_hash(self, *kinds: Event) -> str:
        """Return a hash over all events of some kinds, in hex, which each further one changes; empty without events."""
        with self._db.store.snapshot():
            hashes = b"".join(entry.hash for entry in self._db.journal.entries(*kinds))
        return hashlib.sha256(hashes).hexdigest() if hashes else ""

    def uncounted(self, scope: Scope) -> list[str]:
        """Return the scopes whose charges a first cap of a scope would not count, in words."""
        with self._db.store.snapshot():
            return self._db.scopes.uncounted(scope)
