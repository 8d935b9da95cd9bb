"""Look ahead to all records of a run, so that its batches need not be looked up one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from dptext_etl.ledger.admin import LedgerAdmin
from dptext_etl.ledger.batch import hash_subjects
from dptext_etl.ledger.storage.hashed_ids import hashed_ids
from dptext_etl.ledger.types import Mask, ReleaseRef, Scope
from dptext_etl.ledger.walk import Walk


class PrefetchingLedger(LedgerAdmin):
    """Find what the ledger holds of the records of a run before it reserves them. Nothing is written."""

    _walk: Walk | None = None

    def prefetch(  # noqa: PLR0917
        self,
        scope: Scope,
        refs: Sequence[ReleaseRef],
        rows: int,
        at_once: int,
        batches: Iterable[tuple[pa.Array, pa.Array | None, Mask]],
        folder: Path | None = None,
        *,
        own: bool = False,
    ) -> bool:
        """Find in one walk what the ledger holds of all records of a run; then `reserve` looks up later writes alone.

        It changes no answer. Hashes lie in files without a name. Short runs do without, and read none of `batches`.

        Args:
            scope: As `reserve` will take it, and so the others.
            refs: The releases that will be charged.
            rows: Records of the run, about.
            at_once: Records that one call of `reserve` takes, at most.
            batches: Ids, subjects and marks of canary rows, in the order in which `reserve` will take them; canary rows
                come last, in the order of the batches that hold them.
            folder: Where the files lie.
            own: A record without a subject is a unit of its own.

        Returns:
            Whether anything is prefetched.
        """
        self._end_walk()
        walk, key = Walk(self._db, scope, refs, folder), self._db.id_key
        with ExitStack() as failing:
            failing.callback(walk.close)
            if not walk.is_worth(rows, at_once):
                return False
            for ids, subjects, canary in batches:
                records, units = key.records(ids, canary), None
                if scope.unit == "subject":
                    units = hashed_ids(hash_subjects(key, records, subjects, canary, own=own))
                walk.add(records.ids, records.unit_ids if units is None else units, canary)
            if not walk.go():
                return False
            failing.pop_all()
        self._walk = walk
        return True

    def close(self) -> None:
        """Close the connection."""
        self._end_walk()
        super().close()

    def _end_walk(self) -> None:
        walk, self._walk = self._walk, None
        if walk is not None:
            walk.close()
