"""Merge runs between the writes of several writers, so that no one waits for it.

A writer that is alone merges as it inserts. Next to others the run that crowds a map is left to a transaction of its
own, after the one that wrote it is durable. It reads and writes while the others go on, and holds their turn for the
exchange alone. Runs never change and any of them may be folded before the others, so it changes no answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from dptext_etl.errors import LedgerError
from dptext_etl.ledger.operations.balances import balances
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.storage.sorted_runs import SortedRun, SortedRuns
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.terms import ReleaseRef, Scope


def merge_beside(store: Store, runs: SortedRuns, turn: str) -> None:
    """Merge the crowded runs of one map, each size class in one transaction, until none is crowded.

    Another writer that merges the same size class already goes on with it. Call it outside of a transaction.
    """
    done = True
    while done:
        done = False
        for crowded in runs.crowded():
            with store.transaction(sum(run.size for run in crowded), beside=True):
                if store.take(f"merge/{runs.space}/{crowded[0].rank}"):
                    done |= _merge(store, runs, crowded, turn)


def merge_after(book: Book, scope: Scope, refs: Iterable[ReleaseRef]) -> None:
    """Merge what many writes left behind. The charge is durable: what fails here is left to a later one."""
    with suppress(LedgerError):
        pinned = book.scopes.find(scope)
        if pinned is not None and pinned.measure is not None:
            merge_beside(book.store, balances(book.store, book.cache, pinned), book.scopes.turn(pinned))
        for ref in refs:
            merge_beside(book.store, book.records.index(ref.id, ref.nonce), book.records.turn(ref))


def _merge(store: Store, runs: SortedRuns, crowded: list[SortedRun], turn: str) -> bool:
    """Merge some runs if all of them still belong to the map, and return whether they did."""
    if not _all_there(runs, crowded):
        return False
    made = runs.merged(crowded)
    store.turn(turn)
    if _all_there(runs, crowded):
        runs.replace(crowded, made)
        return True
    runs.withdraw(made)
    return False


def _all_there(runs: SortedRuns, wanted: list[SortedRun]) -> bool:
    """Return whether runs were not merged meanwhile: by a writer that was alone, or by one of an older version."""
    return set(wanted) <= set(runs.runs())
