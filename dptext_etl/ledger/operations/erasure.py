"""Keep which records of a dataset were forgotten, over all its releases, until they are admitted again by name.

An entry is the keyed hash of a record id, in a sealed batch of the journal. `meta` names these batches by dataset.

Specification: docs/spec/privacy.md#forgotten.
"""

from __future__ import annotations

import numpy as np

from dptext_etl.errors import LedgerError
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.storage.keyed_ids import WIDTH, Bytes, KeyedIds, keyed_ids
from dptext_etl.ledger.storage.segments import LAYOUTS, seal
from dptext_etl.ledger.terms import Event, Mask

FORGOTTEN = "forgotten/"
"""What the names begin with under which `meta` lists the events that forget or admit records of a dataset."""


def forget(book: Book, dataset: str, records: Bytes, subjects: Bytes) -> int:
    """Note records as forgotten, and return how many were not noted before. Call it inside a transaction."""
    wanted = _set(records) | _set(charged_to(book, dataset, subjects))
    return _note(book, Event.FORGET, dataset, wanted - _set(forgotten(book, dataset)))


def readmit(book: Book, dataset: str, records: Bytes, reason: str) -> int:
    """Admit forgotten records again, and return how many there are. Call it inside a transaction."""
    wanted = _set(records)
    missing = len(wanted - _set(forgotten(book, dataset)))
    if missing:
        msg = f"{missing} of {len(wanted)} records are not forgotten in {dataset}; nothing was changed"
        raise LedgerError(msg, "name records by their ids, as `dptext forget --record` takes them")
    return _note(book, Event.READMIT, dataset, wanted, reason=reason)


def forgotten(book: Book, dataset: str) -> Bytes:
    """Return the hashed ids of the records of a dataset that are forgotten now, shape (records, 32)."""
    found = book.store.row("select value from meta where name=?", (f"{FORGOTTEN}{dataset}",))
    held: set[bytes] = set()
    for seq in map(int, "" if found is None else found[0].split()):
        facts = book.journal.facts(seq)
        records = _set(book.segments.read(seq, facts, ["record"])["record"])
        held = held | records if facts["event"] == Event.FORGET else held - records
    return np.frombuffer(b"".join(sorted(held)), np.uint8).reshape(-1, WIDTH)


def are_forgotten(book: Book, dataset: str, records: KeyedIds) -> Mask:
    """Return which records of a dataset are forgotten, shape (records,)."""
    gone = keyed_ids(forgotten(book, dataset))
    mask = np.isin(records.hi, gone.hi)
    if mask.any():
        pairs = set(zip(gone.hi.tolist(), gone.lo.tolist(), strict=True))
        some = records.take(mask)
        mask[mask] = [pair in pairs for pair in zip(some.hi.tolist(), some.lo.tolist(), strict=True)]
    return mask


def refuse_forgotten(book: Book, dataset: str, records: KeyedIds) -> None:
    """Refuse to go on with records that were forgotten since they were reserved."""
    count = int(are_forgotten(book, dataset, records).sum())
    if count:
        msg = f"{count} of {records.size} records were forgotten since they were reserved; none of them is released"
        raise LedgerError(msg, "run again: forgotten records are left out then")


def charged_to(book: Book, dataset: str, subjects: Bytes) -> Bytes:
    """Return the hashed ids of all records that were ever charged to some subjects, in any release of a dataset."""
    wanted, found = _set(subjects), [np.zeros((0, WIDTH), np.uint8)]
    asked = "select seq from batch join release on release.id = batch.release where dataset=? order by seq"
    for (seq,) in book.store.rows(asked, (dataset,)) if wanted else ():
        columns = book.segments.read(seq, book.journal.facts(seq), ["record", "unit"])
        found.append(columns["record"][[row.tobytes() in wanted for row in columns["unit"]]])
    return np.concatenate(found)


def _note(book: Book, kind: Event, dataset: str, records: set[bytes], **said: str) -> int:
    if not records:
        return 0
    rows = np.frombuffer(b"".join(sorted(records)), np.uint8).reshape(-1, WIDTH)
    facts, blobs = seal(LAYOUTS[kind], {"record": rows})
    seq = book.journal.append(kind, dataset=dataset, **said, **facts)
    book.segments.write(seq, blobs)
    name = f"{FORGOTTEN}{dataset}"
    before = book.store.row("select value from meta where name=?", (name,))
    listed = str(seq) if before is None else f"{before[0]} {seq}"
    book.store.execute("insert or replace into meta values(?,?)", (name, listed))
    return len(records)


def _set(rows: Bytes) -> set[bytes]:
    return {row.tobytes() for row in rows}
