"""Derive everything in a ledger again from its journal, and compare (docs/spec/privacy.md#verify)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dptext_etl.accounting import MEASURES
from dptext_etl.artifacts import canon
from dptext_etl.errors import LedgerError, UnavailableLedgerError
from dptext_etl.guarantee import PURE
from dptext_etl.ledger.caps import LARGEST
from dptext_etl.ledger.database import Database
from dptext_etl.ledger.identities import PINNED_FORMS
from dptext_etl.ledger.releases import COMMITMENTS, PINNED_NAMES
from dptext_etl.ledger.replay import Replay
from dptext_etl.ledger.storage.hashed_ids import SATURATED, HashedIds, Index, Values, concatenated
from dptext_etl.ledger.storage.records import POSTS
from dptext_etl.ledger.storage.segments import LAYOUTS, IdRange, ScannedRows, id_ranges, read_limits
from dptext_etl.ledger.types import ACCEPTED_UNITS, FORGOTTEN, I64, State, VerifyReport
from dptext_etl.ledger.views import COUNTS

_META = (
    (PINNED_FORMS, "pinned"),
    (ACCEPTED_UNITS, "accepted"),
    (FORGOTTEN, "forgotten"),
    (POSTS, "post-processing"),
    (COMMITMENTS, "committed to"),
)
Charges = tuple[HashedIds, I64, Values]
"""Units, the numbers of the events that charged them, and amounts, shape (components, charges)."""


def verify(db: Database) -> VerifyReport:
    """Check chains, roots, states, counts, uniqueness, and caps.

    The report names the batch of every row that was edited, removed, reordered or inserted. If someone rewrites the
    whole ledger consistently, only an anchor that was kept elsewhere shows it.
    """
    db = Database(db.store, None)  # use nothing that was read before
    replay = Replay(db)
    _compare_tables(db, replay)
    for release, nonce in sorted({(batch.release, batch.nonce) for batch in replay.batches.values()}):
        batches = [seq for seq, batch in replay.batches.items() if (batch.release, batch.nonce) == (release, nonce)]
        for within in id_ranges(_rows(replay, batches)):
            for key, what in (("record", "a record"), ("idem_key", "an identity")):
                _check_unique(replay, db, within, batches, key, what)
    _check_balances(db, replay)
    tallies = replay.tallies.values()
    counts = {name: sum(tally[name] for tally in tallies) for name in COUNTS}
    pending = counts["records"] - counts["committed"] - counts["expired"] - counts["aborted"]
    rewritten = sum(len(rows) for lists in replay.rewritten.values() for rows in lists)
    counts = {"events": replay.events.total(), "batches": len(replay.blobs), **counts, "pending": pending}
    return VerifyReport(replay.problems, counts | ({"rewritten": rewritten} if rewritten else {}))


def _compare_tables(db: Database, replay: Replay) -> None:
    rows, derived, stored = db.store.rows, dict[str, dict[Any, Any]](), dict[str, dict[Any, Any]]()
    derived["release"] = {
        number: (
            *(facts[name] for name in PINNED_NAMES),
            facts["publishable"],
            canon(facts["facts"]).decode(),
            replay.revoked.get((facts["dataset"], facts["release"])),
        )
        for number, facts in replay.releases.items()
    }
    query = "select id, dataset, col, release, cfg, id_type, publishable, facts, burnt from release"
    stored["release"] = {row[0]: (*row[1:6], bool(row[6]), *row[7:]) for row in rows(query)}
    derived["frozen dataset"] = replay.frozen
    stored["frozen dataset"] = dict.fromkeys((name for (name,) in rows("select dataset from frozen")), True)
    derived["revoked name"] = replay.revoked
    stored["revoked name"] = {row[:2]: row[2] for row in rows("select dataset, release, seq from burnt")}
    for prefix, what in _META:
        derived[what] = {name: value for name, value in replay.meta.items() if name.startswith(prefix)}
        stored[what] = db.store.metas(prefix)
    derived["publication"] = replay.publications
    query = "select release, nonce, version, manifest, rows from publication"
    stored["publication"] = {row[:3]: row[3:] for row in rows(query)}
    derived["counts of release"] = {
        key: (*(tally[name] for name in COUNTS), None if tally["infinite"] else tally["max_pure"])
        for key, tally in replay.tallies.items()
    }
    query = f"select release, nonce, {', '.join(COUNTS)}, max_pure from tally"  # noqa: S608
    stored["counts of release"] = {row[:2]: row[2:] for row in rows(query)}
    derived["batch"] = {
        seq: (
            *(batch.release, batch.nonce, batch.scope, batch.job, len(batch.states)),
            *(int((batch.states == State.RESERVED).sum()), batch.attached, batch.states.tobytes()),
        )
        for seq, batch in replay.batches.items()
    }
    query = "select seq, release, nonce, scope, job, rows, open, attached, state from batch"
    stored["batch"] = {row[0]: (*row[1:7], bool(row[7]), row[8]) for row in rows(query)}
    derived["digests of batch"] = dict.fromkeys(replay.commit_parts, True)
    stored["digests of batch"] = dict.fromkeys(rows("select batch, seq from commit_part"), True)
    derived["blobs of batch"] = replay.blobs
    query = f"select seq from event where kind in ({','.join('?' * len(LAYOUTS))})"  # noqa: S608
    sealed: dict[int, set[str]] = {seq: set() for (seq,) in rows(query, LAYOUTS)}
    for seq, name in rows("select seq, name from segment"):
        sealed.setdefault(seq, set()).add(name)
    stored["blobs of batch"] = sealed
    for what, wanted in derived.items():
        _compare(replay.problems, what, wanted, stored[what])
    _compare_scopes(db, replay)


def _compare(problems: list[str], what: str, derived: dict[Any, Any], stored: dict[Any, Any]) -> None:
    for key in sorted({*derived, *stored}, key=str):
        shown = " ".join(str(part) for part in key) if isinstance(key, tuple) else key
        if key not in stored:
            problems.append(f"{what} {shown}: the journal has it, but the table of the ledger does not")
        elif key not in derived:
            problems.append(f"{what} {shown}: the table of the ledger has it, but the journal does not")
        elif derived[key] != stored[key]:
            problems.append(f"{what} {shown}: it differs from the journal")


def _compare_scopes(db: Database, replay: Replay) -> None:
    stored = {row[0]: row[1:] for row in db.store.rows("select id, name, period, unit, measure, limits from scope")}
    for number, (*names, measure, limits) in stored.items():
        history = replay.caps.get(number)
        last = (None, []) if history is None else (history[-1][1], list(history[-1][2]))
        derived = replay.scopes.get(number, tuple(names))
        if tuple(names) != derived or (measure, list(read_limits(measure, limits))) != last:
            replay.problems.append(f"scope {number}: its cap or unit differs from the journal")
    members = set(db.store.rows("select scope, dataset from member"))
    for number, dataset in replay.members:
        if number not in stored or (number, dataset) not in members:
            replay.problems.append(f"scope {number}: the journal has it, but the table of the ledger does not")


def _check_unique(  # noqa: PLR0917
    replay: Replay, db: Database, within: IdRange, batches: list[int], key: str, what: str
) -> None:
    """Add a problem for every id that occurs twice; rows that were aborted, or released again, do not count."""
    ids, of = list[HashedIds](), [np.zeros(0, np.int64)]
    for item in _scan(db, within, [seq for seq in batches if seq not in replay.again], key, []):
        alive = replay.batches[item.batch].states[item.rows] != State.ABORTED
        ids.append(item.ids.take(alive))
        of.append(np.full(ids[-1].size, item.batch, np.int64))
    found, seqs = concatenated(ids), np.concatenate(of)
    order = found.order()
    repeated = np.delete(order, found.take(order).starts())
    for seq in np.unique(seqs[repeated]).tolist():
        replay.note(f"batch {seq} (RESERVE): {what} occurs twice in {replay.name(replay.batches[seq].release)}")


def _check_balances(db: Database, replay: Replay) -> None:
    """Judge each charge of a capped scope by the cap of its time, and by what that cap counts."""
    for number, history in replay.caps.items():
        ends = [seq for seq, _, _ in history[1:]] + [np.iinfo(np.int64).max]
        for measure in dict.fromkeys(name for _, name, _ in history):
            pairs = zip(history, ends, strict=True)
            mine = [(since, until, limits) for (since, name, limits), until in pairs if name == measure]
            batches = [seq for seq, batch in replay.batches.items() if batch.scope == number and seq < mine[-1][1]]
            for within in id_ranges(_rows(replay, batches)):
                of_range = charges(db, replay, within, batches, MEASURES[measure])
                _check_caps(replay, of_range, np.array(batches, np.int64), mine)


def charges(db: Database, replay: Replay, within: IdRange, batches: list[int], names: tuple[str, ...]) -> Charges:
    """Return units, events and amounts of a range of units; amounts that were given back are negative."""
    ids, when, amounts = [], [np.zeros(0, np.int64)], [np.zeros((len(names), 0), np.int64)]
    for item in _scan(db, within, batches, "unit", ["canary", *names]):
        mine = item.columns["canary"] == 0
        taken = np.stack([item.columns[name] for name in names])
        if (taken[:, mine] >= LARGEST).any():
            replay.note(f"batch {item.batch} (RESERVE): a charge is infinite on the cap's measure")
            taken = np.minimum(taken, LARGEST)
        changes = [(item.batch, item.rows, taken)]
        changes += [(event, rows, -taken) for event, rows in replay.aborted.get(item.batch, [])]
        for event, rows, spent in replay.settled.get(item.batch, []) if names == (PURE,) else []:
            left = np.zeros(int(item.rows.max(initial=0)) + 1, np.int64)
            left[rows[rows < len(left)]] = spent[rows < len(left)]
            changes.append((event, rows, left[item.rows][None] - taken))
        for event, rows, change in changes:
            picked = mine & np.isin(item.rows, rows)
            ids.append(item.ids.take(picked))
            when.append(np.full(int(picked.sum()), event, np.int64))
            amounts.append(change[:, picked])
    return concatenated(ids), np.concatenate(when), np.concatenate(amounts, axis=1)


def _check_caps(replay: Replay, charges: Charges, batches: I64, caps: list[tuple[int, int, list[int]]]) -> None:
    """Add a problem for every charge after which its unit was over the cap that was in force.

    Only batches charge. A refund may be 0, and its unit may be over a cap that was set after the charge.
    """
    units, when, amounts = charges
    order: Index = np.lexsort((when, units.lo, units.hi))
    starts = units.take(order).starts()
    if not len(starts):
        return
    event, amounts = when[order], amounts[:, order]
    longest = int(np.diff(starts, append=len(order)).max())
    if longest * max(int(amounts.max()), -int(amounts.min())) >= SATURATED:
        amounts = amounts.astype(object)  # no sum wraps
    sums = np.cumsum(amounts, axis=1)
    sums -= np.repeat(sums[:, starts] - amounts[:, starts], np.diff(np.append(starts, len(order))), axis=1)
    for since, until, limits in caps:
        charged = (event > since) & (event < until) & np.isin(event, batches)
        over = charged & (sums > np.array(limits, np.int64)[:, None]).any(axis=0)
        for seq, count in zip(*(item.tolist() for item in np.unique(event[over], return_counts=True)), strict=True):
            replay.note(f"batch {seq} (RESERVE): {count:,} charges exceed the cap that was in force")


def _rows(replay: Replay, batches: list[int]) -> int:
    return sum(len(replay.batches[seq].states) for seq in batches)


def _scan(db: Database, within: IdRange, batches: list[int], key: str, names: list[str]) -> Iterator[ScannedRows]:
    for batch in batches:
        try:
            yield from db.segments.scan([batch], key, names, within)
        except UnavailableLedgerError:
            raise
        except (LedgerError, KeyError, ValueError, TypeError):
            continue  # the batch was named when its root was checked
