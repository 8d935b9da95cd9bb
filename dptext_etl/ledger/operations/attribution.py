"""Keep every record with the unit that it was charged to, in all releases of its dataset.

A balance belongs to a unit. If a known record could arrive under another unit, a new spelling of people would start
every balance at zero, and a replay would cost the new person nothing. So it is refused, until someone accepts by name
that the records of a dataset may have other units, and says how much a unit may have been charged under another one.

Specification: docs/spec/privacy.md#same-unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import Micro, micro
from dptext_etl.ledger.operations.batch import BatchIds
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.operations.foresight import Foresight
from dptext_etl.ledger.operations.freezing import checked_losses
from dptext_etl.ledger.operations.releases import refuse_frozen
from dptext_etl.ledger.storage.records import Held
from dptext_etl.ledger.terms import Event, Mask, ReleaseRef, Scope

ACCEPTED = "units/"
"""What the names begin with under which `meta` says up to which event the records of a dataset may have other units."""


def require_same_units(
    book: Book, scope: Scope, batch: BatchIds, seen: Mapping[ReleaseRef, Held], foresight: Foresight
) -> None:
    """Refuse known records of a dataset that arrive under another unit than they were charged to."""
    found = book.store.row("select value from meta where name=?", (f"{ACCEPTED}{scope.dataset}",))
    since = int(found[0]) if found is not None else 0
    fresh, moved = ~batch.canary, np.zeros(batch.size, np.bool_)
    for held in (*seen.values(), *_elsewhere(book, scope, batch, seen, foresight, fresh)):
        rows = np.flatnonzero(held.known & fresh & (held.places.batch > since))
        moved[rows] = (book.records.column(held.places.take(rows), "unit") != batch.units[rows]).any(axis=1)
        fresh &= ~(held.known & (held.places.batch > since))
    if moved.any():
        per = "to another subject before" if scope.unit == "subject" else "before, to a subject"
        msg = f"{int(moved.sum())} of {batch.size} records were charged {per}; nothing of the batch is charged"
        hint = "a record keeps its unit, so that no new spelling of people starts a balance at zero: bring the old ids "
        then = f"back, or accept the change by name: `dptext ledger accept-units {scope.dataset}`"
        raise LedgerError(msg, hint + then)


def _elsewhere(  # noqa: PLR0917
    book: Book,
    scope: Scope,
    batch: BatchIds,
    seen: Mapping[ReleaseRef, Held],
    foresight: Foresight,
    fresh: Mask,
) -> Iterator[Held]:
    """Look records up in the other releases of their dataset, the newest first, while any was not found yet."""
    if not _per_subject(book, scope):
        return
    rows = book.store.rows(
        "select release.id, col, release.release, cfg, tally.nonce from release join tally on tally.release ="
        " release.id where dataset=? order by release.id desc, tally.nonce desc",
        (scope.dataset,),
    )
    for number, column, release, cfg, nonce in rows:
        ref = ReleaseRef(number, scope.dataset, column, release, cfg, nonce)
        if fresh.any() and ref not in seen:
            yield book.records.held(ref, batch.record_ids, batch.record_order, foresight.records(ref))


def _per_subject(book: Book, scope: Scope) -> bool:
    """Return whether a record of the dataset may belong to a subject; otherwise every record is its own unit."""
    found = book.store.row(
        "select 1 from scope join member on member.scope = scope.id where dataset=? and unit='subject' limit 1",
        (scope.dataset,),
    )
    return found is not None


def accept_units(book: Book, dataset: str, lost: Mapping[str, float], reason: str) -> dict[str, dict[str, Micro]]:
    """Let the records that a dataset holds arrive under other units, and its columns of ids be named anew."""
    refuse_frozen(book.store, dataset)
    names = book.store.rows(
        "select distinct scope.name from scope join member on member.scope = scope.id where dataset=?", (dataset,)
    )
    if not names:
        raise LedgerError(f"the ledger holds no record of the dataset {dataset}", "name it as the policy does")
    lost = checked_losses(lost)
    lowered = book.freezes.lower({dataset}, lost)
    amounts = {name: int(micro(amount)) for name, amount in lost.items()}
    scopes = sorted(name for (name,) in names)
    seq = book.journal.append(Event.UNITS, dataset=dataset, scopes=scopes, lost=amounts, reason=reason)
    book.store.execute("insert or replace into meta values(?,?)", (f"{ACCEPTED}{dataset}", str(seq)))
    book.forms.forget(dataset, scopes)
    return lowered
