"""Look ahead to all records of a run, so that its batches need not be looked up one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from dptext_etl.errors import bare
from dptext_etl.ledger.admin import LedgerAdmin
from dptext_etl.ledger.batch import PreparedBatch, hash_both
from dptext_etl.ledger.reserve import Preview, preview
from dptext_etl.ledger.shared_walk import Notes, ShardWalk, WalkTerms, range_answers, walk_terms, walked_cells
from dptext_etl.ledger.storage.hashed_ids import Bytes
from dptext_etl.ledger.types import I64, Mask, ReleaseRef, Scope
from dptext_etl.ledger.walk import Walk


class PrefetchingLedger(LedgerAdmin):
    """Find what the ledger holds of the records of a run before it reserves them. Nothing is written."""

    _walk: Walk | ShardWalk | None = None

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
                walk.add(*hash_both(key, scope.unit, ids, subjects, canary, own=own), canary)
            if not walk.go():
                return False
            failing.pop_all()
        self._walk = walk
        return True

    @bare
    def preview(self, scope: Scope, ready: PreparedBatch, *, again: bool = False, published: bool = False) -> Preview:
        """Return what `reserve` would answer to a batch if there was no cap; nothing is written.

        Args:
            scope: Where the spends would add up.
            ready: What `make_ready` made of the batch; a release that is not pinned yet has the number `types.NEW`.
            again: As `reserve` takes it.
            published: The records are likely to come in the order in which they were reserved; what their units have
                used is not looked up, and given as zero.

        Raises:
            LedgerError: A release is revoked.
        """
        with self._db.store.snapshot():
            self._db.forget_merged_runs()
            ahead = None if self._walk is None else self._walk.next(ready.batch)
            return preview(self._db, scope, ready.batch, ready.columns, ahead, again=again, published=published)

    def plan_walk(self, scope: Scope, refs: Sequence[ReleaseRef], rows: int, at_once: int) -> WalkTerms | None:
        """Plan a walk for several processes, each of which reserves some shards; None where it is of no use."""
        return walk_terms(self._db, scope, refs, rows, at_once)

    def walked_cells(
        self, terms: WalkTerms, ids: pa.Array, subjects: pa.Array | None, canary: Mask, shards: I64, *, own: bool
    ) -> Iterator[tuple[str, Bytes]]:
        """Yield what a shared walk looks up of some rows (`shared_walk.walked_cells`)."""
        return walked_cells(self._db.id_key, terms, ids, subjects, canary, shards, own=own)

    def range_answers(self, terms: WalkTerms, what: str, cells: Bytes) -> tuple[Bytes, I64]:
        """Look up all records or units of a range of ids (`shared_walk.range_answers`)."""
        return range_answers(self._db, terms, what, cells)

    def follow(self, terms: WalkTerms, shard: int, answers: Callable[[], Bytes | None], notes: Notes) -> None:
        """Take up what a shared walk found of the shard that is reserved next, if anything. It changes no answer."""
        if isinstance(self._walk, ShardWalk) and self._walk.shard == shard:
            return
        self._end_walk()
        found = answers()
        if found is not None:
            self._walk = ShardWalk(self._db, terms, found, shard, notes)

    def close(self) -> None:
        """Close the connection."""
        self._end_walk()
        super().close()

    def _end_walk(self) -> None:
        walk, self._walk = self._walk, None
        if walk is not None:
            walk.close()
