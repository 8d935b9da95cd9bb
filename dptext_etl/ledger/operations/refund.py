"""Give back the part of a worst case that a commit did not use, where the number of steps reveals nothing.

This is valid under a pure cap alone: along every path the sum stays below the cap. The number of steps must follow from
what is released or from coins that no text decides, never from anything else in the input. The guarantee of the record
stays its worst case; only the balance of its unit gets the difference back.

Specification: docs/spec/privacy.md#expost.
"""

from __future__ import annotations

import numpy as np

from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import PURE
from dptext_etl.ledger.operations.balances import balances, charged
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.storage.keyed_ids import keyed_ids
from dptext_etl.ledger.storage.records import Places
from dptext_etl.ledger.storage.segments import LAYOUTS, seal
from dptext_etl.ledger.terms import I64, Event, ReleaseRef

MEASURE = "pure"
_WORST = ["unit", "canary", PURE]


def scopes_of(book: Book, places: Places) -> list[str]:
    """Name what a writer holds that gives back what these rows did not use (see `Store.turn`)."""
    asked = "select scope from batch where seq=?"
    return [book.scopes.turn(book.scopes.by_id(book.store.rows(asked, (batch,))[0][0])) for batch, _ in places.groups()]


def settle(book: Book, job: str, ref: ReleaseRef, places: Places, spent: I64) -> None:
    """Give back what committed rows did not use. Call it inside the transaction that commits them.

    Scopes without a pure cap keep the worst case.
    """
    book.releases.require_refundable(ref)
    for batch, mine in places.groups():
        (number,) = book.store.rows("select scope from batch where seq=?", (batch,))[0]
        pinned = book.scopes.by_id(number)
        columns = book.segments.read(batch, book.journal.facts(batch), _WORST)
        rows, used = places.row[mine], spent[mine]
        worst = columns[PURE][rows]
        if (used < 0).any() or (used > worst).any():
            raise LedgerError(f"{int((used > worst).sum())} records used more than was reserved; nothing was committed")
        if pinned.measure != MEASURE:
            continue
        sealed = {"batch": np.full(len(rows), batch, np.int64), "row": rows, PURE: used}
        facts, blobs = seal(LAYOUTS[Event.SETTLE], sealed)
        seq = book.journal.append(Event.SETTLE, job=job, release=ref.id, nonce=ref.nonce, **facts)
        book.segments.write(seq, blobs)
        of_people = columns["canary"][rows] == 0
        units = keyed_ids(columns["unit"][rows[of_people]])
        balances(book.store, book.cache, pinned).insert(charged(units, (used - worst)[None, of_people]))
