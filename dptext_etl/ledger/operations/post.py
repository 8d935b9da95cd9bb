"""Record what post-processing made of released texts: spend 0, and the first result is the one that is published.

Specification: docs/spec/privacy.md#rewrite-again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dptext_etl.errors import LedgerError
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.storage.keyed_ids import Bytes, Index, KeyedIds
from dptext_etl.ledger.storage.segments import LAYOUTS, seal
from dptext_etl.ledger.terms import U8, CommitOutcome, Event, ReleaseRef, State

PROVENANCES = ("public", "disjoint-records")
"""What a post-processing that costs nothing may have learned from."""


def post(  # noqa: PLR0917
    book: Book,
    job: str,
    ref: ReleaseRef,
    chain: str,
    steps: Sequence[Mapping[str, Any]],
    records: KeyedIds,
    order: Index,
    digests: Bytes,
) -> U8:
    """Record the results of a batch. Call it inside a transaction."""
    book.releases.require_usable(ref)
    if not steps or any(step.get("training_provenance") not in PROVENANCES for step in steps):
        allowed = " or ".join(map(repr, PROVENANCES))
        raise LedgerError(f"post-processing costs nothing only where its training_provenance is {allowed}")
    book.store.turn(book.records.turn(ref))  # the index is read here, and others may merge its runs
    book.store.turn(book.records.turn_of_states(ref))
    held = book.records.held(ref, records, order)
    missing = int((~(held.known & (held.state == State.COMMITTED))).sum())
    if missing:
        raise LedgerError(f"{missing} records are not committed, so nothing of them is rewritten", "commit them before")
    done, first = book.records.posted(held.places, chain)
    outcome = np.full(records.size, CommitOutcome.COMMITTED, np.uint8)
    outcome[done] = np.where((first != digests).any(axis=1), CommitOutcome.DIVERGED, CommitOutcome.ALREADY)[done]
    new = np.flatnonzero(~done)
    if len(new):
        places = held.places.take(new)
        facts, blobs = seal(LAYOUTS[Event.POST], {"batch": places.batch, "row": places.row, "digest": digests[new]})
        said = {"job": job, "release": ref.id, "nonce": ref.nonce, "spend": 0, "chain": chain}
        seq = book.journal.append(Event.POST, **said, steps=[dict(step) for step in steps], **facts)
        book.segments.write(seq, blobs)
        book.records.note_post(places, seq)
    return outcome
