"""Commit what was computed: the first result is the release; a later one that differs is recorded and discarded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.errors import InputError, LedgerError
from dptext_etl.ledger.idkey import IdKey
from dptext_etl.ledger.operations.batch import record_ids, whole
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.operations.erasure import refuse_forgotten
from dptext_etl.ledger.operations.refund import scopes_of, settle
from dptext_etl.ledger.storage.columns import Column
from dptext_etl.ledger.storage.keyed_ids import Bytes, Index, KeyedIds, keyed_ids, matrix
from dptext_etl.ledger.storage.records import Held, Places
from dptext_etl.ledger.storage.segments import LAYOUTS, seal
from dptext_etl.ledger.terms import I64, U8, CommitOutcome, Event, Mask, ReleaseRef, State

SealedRows = Mapping[Event, tuple[Mapping[str, Any], Mapping[str, bytes]]]
"""What events state of their rows, and the columns of these, by kind of event."""


class Outputs(NamedTuple):
    """The results of a batch, shape (records,) or (records, 32).

    Attributes:
        records: Hashed record ids.
        order: The places of the records in ascending order of id.
        identities: Identities of the texts.
        digests: Digests of what was staged.
        positions: Draw counts.
        spent: The pure epsilon that was used, in millionths; None charges the reserved worst case.
    """

    records: KeyedIds
    order: Index
    identities: KeyedIds
    digests: Bytes
    positions: I64
    spent: I64 | None = None


class Examined(NamedTuple):
    """What a commit will write, made ready before it is this writer's turn.

    Attributes:
        held: What the release held of the records.
        outcome: A `CommitOutcome` per record, shape (records,).
        new: The rows that are committed.
        diverged: The rows that differ from what was committed before.
        sealed: What the events state of these rows, and their columns.
    """

    held: Held
    outcome: U8
    new: Index
    diverged: Index
    sealed: SealedRows


class ToCommit(NamedTuple):
    """A batch of results that is ready to be committed.

    Attributes:
        ref: The release.
        outputs: The results.
        examined: What is to be written of them, if no other writer moves the records meanwhile.
    """

    ref: ReleaseRef
    outputs: Outputs
    examined: Examined


def read(  # noqa: PLR0917
    id_key: IdKey,
    ids: pa.Array,
    idem_keys: pa.Array,
    digests: pa.Array,
    positions: npt.ArrayLike | None,
    canary: Mask | None,
    spent: npt.ArrayLike | None,
) -> Outputs:
    """Read the results of a batch (see `Ledger.commit`)."""
    found = record_ids(id_key, ids, canary)
    size, order = found.size, found.distinct_order()
    identities, staged = keyed_ids(matrix(idem_keys, "idem keys")), matrix(digests, "digests")
    if not size == identities.size == len(staged):
        raise InputError("a commit has one idem key and one digest per record")
    drawn = whole(0 if positions is None else positions, size, "positions")
    used = None if spent is None else whole(spent, size, "spent epsilons")
    return Outputs(found.keyed, order, identities, staged, drawn, used)


def examine(book: Book, ref: ReleaseRef, outputs: Outputs) -> Examined:
    """Compare results with what was reserved and committed, and encode them. Call it inside a snapshot."""
    book.releases.require_usable(ref)
    records, order, identities, digests, positions, _ = outputs
    held = book.records.held(ref, records, order, book.records.recollect(ref, records, order))
    _require_reserved(held, identities)
    done = held.state == State.COMMITTED
    _require_within(book, held.places.take(~done), positions[~done])
    outcome = np.full(records.size, CommitOutcome.COMMITTED, np.uint8)
    if done.any():
        first = book.records.digests(held.places.take(done))
        differs = (first != digests[done]).any(axis=1)
        outcome[done] = np.where(differs, CommitOutcome.DIVERGED, CommitOutcome.ALREADY)
    new, diverged = (np.flatnonzero(outcome == kind) for kind in (CommitOutcome.COMMITTED, CommitOutcome.DIVERGED))
    kinds = {Event.COMMIT: new, Event.DIVERGED: diverged}
    sealed = {kind: seal(LAYOUTS[kind], _columns(held, outputs, where)) for kind, where in kinds.items() if len(where)}
    return Examined(held, outcome, new, diverged, sealed)


def commit(book: Book, job: str, ready: ToCommit) -> U8:
    """Commit a batch. Call it inside a transaction."""
    ref, outputs, examined = ready
    book.releases.require_usable(ref)
    refuse_forgotten(book, ref.dataset, outputs.records)
    if not book.store.lane and _moved(book, examined.held):
        book.forget_dead_runs()
        examined = examine(book, ref, outputs)
    held, outcome, new, diverged, sealed = examined
    places = held.places.take(new)
    if outputs.spent is not None:
        book.store.turn(*scopes_of(book, places))
    seq = 0
    if len(new):
        seq = _append(book, job, ref, Event.COMMIT, sealed)
        if outputs.spent is not None:
            settle(book, job, ref, places, outputs.spent[new])
    if len(diverged):
        _append(book, job, ref, Event.DIVERGED, sealed)
    book.store.turn(book.records.turn_of_states(ref))
    if book.store.lane and _moved(book, held):
        book.store.require_alone()
    if len(new):
        book.records.move(places, State.COMMITTED)
        for batch, _ in places.groups():
            book.store.execute("insert into commit_part values(?,?)", (batch, seq))
    expired = int((held.state[new] == State.EXPIRED).sum())
    if len(new) or len(diverged):
        _count(book, ref, committed=len(new), expired=-expired, diverged=len(diverged))
    return outcome


def _moved(book: Book, held: Held) -> bool:
    """Whether records have another state than they had when they were looked up."""
    return bool((book.records.states_of(held.places) != held.state).any())


def _require_reserved(held: Held, identities: KeyedIds) -> None:
    same = held.same(identities)
    if not same.all():
        other = int((held.known & ~same).sum())
        missing = int((~held.known).sum())
        msg = f"{missing} records were never reserved in this release, {other} were reserved with another text"
        raise LedgerError(f"{msg}; nothing was committed", "reserve the batch before you compute it")


def _require_within(book: Book, places: Places, positions: I64) -> None:
    over = int((positions > book.records.worst(places)).sum())
    if over:
        msg = f"{over} records took more positions than were reserved; nothing was committed"
        raise LedgerError(msg, "reserve the worst case of the mechanism")


def _columns(held: Held, outputs: Outputs, where: Index) -> dict[str, Column]:
    places = held.places.take(where)
    positions, digests = outputs.positions[where], outputs.digests[where]
    return {"batch": places.batch, "row": places.row, "positions": positions, "digest": digests}


def _append(book: Book, job: str, ref: ReleaseRef, kind: Event, sealed: SealedRows) -> int:
    facts, blobs = sealed[kind]
    seq = book.journal.append(kind, job=job, release=ref.id, nonce=ref.nonce, **facts)
    book.segments.write(seq, blobs)
    return seq


def _count(book: Book, ref: ReleaseRef, *, committed: int = 0, expired: int = 0, diverged: int = 0) -> None:
    book.store.execute(
        "update tally set committed = committed + ?, expired = expired + ?, diverged = diverged + ?"
        " where release=? and nonce=?",
        (committed, expired, diverged, ref.id, ref.nonce),
    )
