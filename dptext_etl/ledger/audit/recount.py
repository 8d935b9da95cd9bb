"""Count the record index and the balances again, in passes of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import PURE
from dptext_etl.ledger.audit.derived import Derived
from dptext_etl.ledger.operations.balances import balances
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.operations.scopes import LARGEST, Pinned, components
from dptext_etl.ledger.storage.keyed_ids import Index, KeyedIds, joined, keyed_ids
from dptext_etl.ledger.storage.parts import Fold, Part, Values, fold
from dptext_etl.ledger.storage.passes import Pass, Taken, passes
from dptext_etl.ledger.storage.records import Places
from dptext_etl.ledger.storage.sorted_runs import SortedRuns
from dptext_etl.ledger.terms import I64, State

Charges = tuple[KeyedIds, I64, Values]
"""Units, the numbers of the events that charged them, and amounts, shape (components, charges)."""


def recount_index(book: Book, derived: Derived, release: int, nonce: int) -> None:
    """Compare the record index of a release with its batches, and find records or identities that stand twice."""
    batches = [seq for seq, item in derived.batches.items() if (item.release, item.nonce) == (release, nonce)]
    index = book.records.index(release, nonce)
    what = f"the record index of {derived.name(release)}"
    if not _readable(derived, index, what):
        return
    for each in passes(book.segments, book.journal, derived.rows(batches)):
        records, values = _entries(each, batches, "record")
        identities, entries = _entries(each, batches, "idem_key")
        _once(derived, records, values[2], "a record")
        _once(derived, identities, entries[2], "an identity")
        if not _equal(index.part(each.bits, each.at), fold(records, values, Fold.LATEST)):
            derived.note(f"{what} differs from its batches")


def _entries(each: Pass, batches: list[int], key: str) -> tuple[KeyedIds, Values]:
    """Return the ids of a pass and, per id, its identity (two numbers) and its place."""
    ids, values = [], [np.zeros((3, 0), np.int64)]
    for item in _taken(each, batches, key, ["idem_key"]):
        identity = keyed_ids(item.columns["idem_key"])
        ids.append(item.ids)
        place = (np.int64(item.batch) << np.int64(32)) | item.rows
        values.append(np.stack([identity.hi.view(np.int64), identity.lo.view(np.int64), place]))
    return joined(ids), np.concatenate(values, axis=1)


def _once(derived: Derived, ids: KeyedIds, places: I64, what: str) -> None:
    """Add a problem for every id that stands twice; rows that were aborted, or released again, do not count."""
    alive = ~np.isin(places >> 32, list(derived.again))
    where = Places(places >> 32, places & 0xFFFFFFFF)
    for seq, here in where.groups() if derived.aborted else ():
        alive[here] = derived.batches[seq].states[where.row[here]] != State.ABORTED
    ids, places = ids.take(alive), places[alive]
    order = ids.order()
    starts = ids.take(order).starts()
    again = np.delete(order, starts)
    for seq in np.unique(places[again] >> 32).tolist():
        derived.note(f"batch {seq} (RESERVE): {what} stands twice in {derived.name(derived.batches[seq].release)}")


def recount_balances(book: Book, derived: Derived) -> None:
    """Compare the balances of every capped scope with its batches, and judge each charge by the cap of its time."""
    for number, history in derived.caps.items():
        name, period, unit = derived.scopes[number]
        pinned = Pinned(number, "record" if unit == "record" else "subject", history[-1][1], tuple(history[-1][2]))
        runs = balances(book.store, book.cache, pinned)
        what = f"the balances of {name}, period {period}"
        batches = [seq for seq, item in derived.batches.items() if item.scope == number]
        if not _readable(derived, runs, what):
            continue
        for each in passes(book.segments, book.journal, derived.rows(batches)):
            units, when, amounts = charges(derived, each, batches, components(pinned))
            _within(derived, (units, when, amounts), history)
            if not _equal(runs.part(each.bits, each.at), fold(units, amounts, Fold.SUM)):
                derived.note(f"{what} are not the sums of the batches")


def charges(derived: Derived, each: Pass, batches: list[int], names: tuple[str, ...]) -> Charges:
    """Return units, events and amounts of a pass; amounts that were given back are negative."""
    ids, when, amounts = [], [np.zeros(0, np.int64)], [np.zeros((len(names), 0), np.int64)]
    for item in _taken(each, batches, "unit", ["canary", *names]):
        mine = item.columns["canary"] == 0
        taken = np.stack([item.columns[name] for name in names])
        if (taken[:, mine] >= LARGEST).any():
            derived.note(f"batch {item.batch} (RESERVE): a charge is infinite on the cap's measure")
            taken = np.minimum(taken, LARGEST)
        for event, rows in [(item.batch, item.rows), *derived.aborted.get(item.batch, [])]:
            picked = mine & np.isin(item.rows, rows)
            ids.append(item.ids.take(picked))
            when.append(np.full(int(picked.sum()), event, np.int64))
            amounts.append(taken[:, picked] if event == item.batch else -taken[:, picked])
        for event, rows, spent in derived.settled.get(item.batch, []) if names == (PURE,) else []:
            picked = mine & np.isin(item.rows, rows)
            left = np.zeros(int(item.rows.max(initial=0)) + 1, np.int64)
            left[rows[rows < len(left)]] = spent[rows < len(left)]
            ids.append(item.ids.take(picked))
            when.append(np.full(int(picked.sum()), event, np.int64))
            amounts.append(left[item.rows[picked]][None] - taken[:, picked])
    return joined(ids), np.concatenate(when), np.concatenate(amounts, axis=1)


def _within(derived: Derived, charges: Charges, history: list[tuple[int, str, list[int]]]) -> None:
    """Add a problem for every charge after which its unit was over the cap that was in force."""
    units, when, amounts = charges
    order: Index = np.lexsort((when, units.lo, units.hi))
    starts = units.take(order).starts()
    if not len(starts):
        return
    sums = np.cumsum(amounts[:, order], axis=1)
    lengths = np.diff(np.append(starts, len(order)))
    sums -= np.repeat(sums[:, starts] - amounts[:, order[starts]], lengths, axis=1)
    event = when[order]
    for at, (since, _, limits) in enumerate(history):
        until = history[at + 1][0] if at + 1 < len(history) else np.iinfo(np.int64).max
        charged = (event > since) & (event < until) & (amounts[:, order] >= 0).all(axis=0)
        over = charged & (sums > np.array(limits, np.int64)[:, None]).any(axis=0)
        for seq in np.unique(event[over]).tolist():
            count = int((event[over] == seq).sum())
            derived.note(f"batch {seq} (RESERVE): {count} charges exceed the cap that was in force")


def _taken(each: Pass, batches: list[int], key: str, names: list[str]) -> Iterator[Taken]:
    for batch in batches:
        try:
            yield from each.over([batch], key, names)
        except (LedgerError, KeyError, ValueError, TypeError):
            continue  # the batch was named when its root was checked


def _equal(stored: Part, counted: Part) -> bool:
    """Compare two maps; an entry of zeros counts as no entry."""
    (left, have), (right, want) = (_nonzero(part) for part in (stored, counted))
    return np.array_equal(left.hi, right.hi) and np.array_equal(left.lo, right.lo) and np.array_equal(have, want)


def _nonzero(part: Part) -> Part:
    kept = (part.values != 0).any(axis=0)
    return Part(part.ids.take(kept), part.values[:, kept])


def _readable(derived: Derived, runs: SortedRuns, what: str) -> bool:
    try:
        sound = runs.sound()
    except (LedgerError, ValueError, IndexError):
        sound = False
    if not sound:
        derived.note(f"{what}: sorted runs are damaged")
    return sound
