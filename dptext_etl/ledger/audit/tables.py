"""Write a ledger as plain tables: records, balances, events, releases, publications, for people and their tools.

Ids are the ledger's own keyed hashes, amounts are in units of epsilon, rho and delta. docs/ledger.md#tables lists the
columns. The tables are internal: the number of charged words may reveal more than a release.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_etl.column import INFINITE
from dptext_etl.errors import InputError
from dptext_etl.guarantee import ADDITIVE, PURE, steps
from dptext_etl.ledger.audit.remaining import counted, used_by_unit
from dptext_etl.ledger.audit.table_schemas import COUNTS, SCHEMAS
from dptext_etl.ledger.audit.views import retired
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.operations.scopes import LARGEST
from dptext_etl.ledger.storage.keyed_ids import Bytes, KeyedIds
from dptext_etl.ledger.storage.records import Places
from dptext_etl.ledger.terms import I64, U8, Event, Mask, ReleaseRef, State

EVENTS = 10_000
"""Events that are read at a time."""
GROUP = 100_000
"""Rows that are written together, at least."""
HASH_BYTES = 16
"""Bytes of a keyed id in the tables, as in the ledger's index."""
_EXACT = 1 << 53

Floats = npt.NDArray[np.float64]
Rows = Iterator[dict[str, Any]]


def write(book: Book, folder: Path, names: Sequence[str] = tuple(SCHEMAS)) -> dict[str, int]:
    """Write tables into a new folder, and return their numbers of rows. Call it inside a snapshot."""
    _require_new(folder)
    draft = folder.absolute().with_name(f".{folder.name}.{secrets.token_hex(8)}")
    problem = None
    try:
        draft.mkdir(mode=0o700)
        counts = {name: _written(draft / f"{name}.parquet", SCHEMAS[name], _ROWS[name](book)) for name in names}
        draft.rename(folder)
    except OSError as exc:
        problem = f"the tables cannot be written ({exc.strerror})"
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    if problem is not None:
        raise InputError(problem, "the parent folder must exist and have room")
    return counts


def _require_new(folder: Path) -> None:
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise InputError("the folder of the tables holds something already", "name a new folder")


def _written(path: Path, schema: pa.Schema, parts: Rows) -> int:
    rows, held = 0, list[pa.RecordBatch]()
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for part in parts:
            held.append(pa.record_batch([pa.array(part[field.name], field.type) for field in schema], schema=schema))
            rows += held[-1].num_rows
            if sum(batch.num_rows for batch in held) >= GROUP:
                writer.write_table(pa.Table.from_batches(held, schema))
                held.clear()
        if held:
            writer.write_table(pa.Table.from_batches(held, schema))
    return rows


def _records(book: Book) -> Rows:
    """Iterate over reserved records, batch by batch: their charges as they stand, after refunds."""
    names, scopes, settled = _releases_by_id(book), _scopes_by_id(book), _settlements(book)
    for seq, release, nonce, scope, job in book.store.rows(
        "select seq, release, nonce, scope, job from batch order by seq"
    ):
        facts = book.journal.facts(seq)
        columns = book.segments.read(seq, facts, ["record", "unit", "canary", "n_worst", *ADDITIVE])
        states, canary = book.records.states(seq), columns["canary"] == 1
        rows, committed = len(states), states == State.COMMITTED
        positions, digests = _outputs(book, seq, committed)
        same = {"batch": seq, "reserved_at": _time(facts), "job": job, **_named(names, release, nonce), **scopes[scope]}
        amounts = {name: _standing(columns[name], states, canary) for name in ADDITIVE}
        for event in settled.get(seq, ()):
            _settle(book, event, seq, amounts[PURE], canary)
        yield {
            **{name: _repeated(value, rows) for name, value in same.items()},
            "batch_row": np.arange(rows),
            "record_hash": _hex(columns["record"][:, :HASH_BYTES]),
            "unit_hash": _hex(columns["unit"][:, :HASH_BYTES], ~canary),
            "canary": canary,
            "state": np.array([state.name for state in State], object)[states],
            "reserved_positions": columns["n_worst"],
            "positions": pa.array(positions, mask=~committed),
            "digest": _hex(digests, committed),
            f"reserved_{PURE}": in_units(PURE, columns[PURE]),
            **{name: in_units(name, amount) for name, amount in amounts.items()},
        }


def _outputs(book: Book, seq: int, committed: Mask) -> tuple[I64, Bytes]:
    """Return draws made and digests of the committed rows of a batch; zeros for the other rows."""
    positions, digests = np.zeros(len(committed), np.int64), np.zeros((len(committed), 32), np.uint8)
    where = np.flatnonzero(committed)
    places = Places(np.full(len(where), seq, np.int64), where)
    positions[where], digests[where] = book.records.positions(places), book.records.digests(places)
    return positions, digests


def _standing(reserved: I64, states: U8, canary: Mask) -> I64:
    """Return what stays charged: nothing of rows that were given back, nor of canary rows, which are no one's."""
    return np.where((states == State.ABORTED) | canary, 0, reserved)


def _settlements(book: Book) -> dict[int, list[int]]:
    """Return the events that gave back what rows of a batch did not use, by batch."""
    found: dict[int, list[int]] = {}
    for entry in book.journal.entries(Event.SETTLE):
        batches = book.segments.read(entry.seq, entry.facts, ["batch"])["batch"]
        for batch in np.unique(batches).tolist():
            found.setdefault(batch, []).append(entry.seq)
    return found


def _settle(book: Book, event: int, batch: int, amounts: I64, canary: Mask) -> None:
    columns = book.segments.read(event, book.journal.facts(event), ["batch", "row", PURE])
    mine = columns["batch"] == batch
    rows, left = columns["row"][mine], columns[PURE][mine]
    amounts[rows] = np.where(canary[rows], 0, left)


def _balances(book: Book) -> Rows:
    """Iterate over what units have used, scope by scope: one row per unit and component."""
    for number, scope in _scopes_by_id(book).items():
        pinned = book.scopes.by_id(number)
        names = counted(pinned)
        for part in used_by_unit(book, pinned, names):
            hashes = _hex(_bytes(part.ids))
            for at, (name, used) in enumerate(zip(names, part.values, strict=True)):
                cap = pinned.limits[at] if pinned.limits else None
                rows = len(used)
                endless = np.where(used >= LARGEST, INFINITE, used)
                yield {
                    **{key: _repeated(value, rows) for key, value in scope.items()},
                    "unit": _repeated(pinned.unit, rows),
                    "unit_hash": hashes,
                    "component": _repeated(name, rows),
                    "used": in_units(name, endless),
                    "cap": pa.nulls(rows) if cap is None else in_units(name, np.full(rows, cap)),
                    "remaining": pa.nulls(rows) if cap is None else in_units(name, np.maximum(0, cap - used)),
                }


def _events(book: Book) -> Rows:
    """Iterate over the journal, whatever kinds of events it holds."""
    names, held = _releases_by_id(book), list[dict[str, Any]]()
    for entry in book.journal.entries():
        facts = entry.facts
        dataset, release = _about(facts, names)
        held.append(
            {
                "event": entry.seq,
                "kind": entry.kind,
                "written_at": _time(facts),
                "writer": facts["writer"],
                "dataset": dataset,
                "release": release,
                **{name: facts.get(name) for name in ("job", "rows", "reason")},
                "body": entry.body,
                "event_hash": entry.hash.hex(),
            }
        )
        if len(held) == EVENTS:
            yield _columns("event", held)
            held = []
    yield _columns("event", held)


def _about(facts: Mapping[str, Any], names: Mapping[int, tuple[str, ...]]) -> tuple[str | None, str | None]:
    """Return the dataset and the release name that an event is about, as far as it names one."""
    said = facts.get("release")
    if isinstance(said, str):
        return facts.get("dataset"), said
    numbers = [said] if isinstance(said, int) else [number for number, _ in facts.get("releases", ())]
    about = {(names[number][0], names[number][2]) for number in numbers}
    dataset, release = about.pop() if len(about) == 1 else (None, None)
    return facts.get("dataset", dataset), release


def _releases(book: Book) -> Rows:
    names, rows = _releases_by_id(book), []
    for number, nonce, cfg, publishable, facts, revoked, most, *counts in book.store.rows(_ALL_RELEASES):
        said = json.loads(facts)
        rows.append(
            {
                **_named(names, number, nonce),
                "mechanism": said["mechanism"],
                "guarantee": said["class"],
                "protects": said["unit"],
                "disclosures": ", ".join(said["disclosures"]),
                "assumptions": ", ".join(said["assumptions"]),
                "cfg": cfg,
                "publishable": bool(publishable),
                "revoked_by": revoked,
                **dict(zip(COUNTS, counts, strict=True)),
                f"largest_{PURE}": in_units(PURE, np.array([INFINITE if most < 0 else most])).item(),
            }
        )
    yield _columns("release", rows)


_ALL_RELEASES = (
    "select release.id, coalesce(nonce, 0), cfg, publishable, facts, burnt,"  # noqa: S608  (our own names)
    " case when tally.release is null then 0 else coalesce(max_pure, -1) end,"
    f" {', '.join(f'coalesce({name}, 0)' for name in COUNTS)}"
    " from release left join tally on tally.release = release.id order by release.id, 2"
)
"""Releases and nonces with their counts; the largest spend is -1 where it is infinite."""


def _publications(book: Book) -> Rows:
    names, events, gone = _releases_by_id(book), dict[tuple[int, int, str], tuple[int, datetime]](), {}
    for entry in book.journal.entries(Event.PUBLISH, Event.RETIRE):
        for release, nonce in entry.facts["releases"]:
            events.setdefault((release, nonce, entry.facts["version"]), (entry.seq, _time(entry.facts)))
    rows = []
    for release, nonce, version, manifest, count in book.store.rows(
        "select release, nonce, version, manifest, rows from publication order by release, nonce, version"
    ):
        if (release, nonce) not in gone:
            gone[release, nonce] = retired(book, ReleaseRef(release, *names[release], "", nonce))
        event, when = events[release, nonce, version]
        about = {"version": version, "manifest": manifest, "rows": count, "retired": manifest in gone[release, nonce]}
        rows.append({**_named(names, release, nonce), **about, "event": event, "published_at": when})
    yield _columns("publication", rows)


_ROWS: Mapping[str, Callable[[Book], Rows]] = {
    "record": _records,
    "balance": _balances,
    "event": _events,
    "release": _releases,
    "publication": _publications,
}


def in_units(component: str, amounts: I64) -> Floats:
    """Return counted amounts in units of epsilon, rho or delta; infinite where no bound is known.

    A float is the nearest to its amount, and the next larger one where the amount has more than 53 bits.
    """
    nearest = amounts / steps(component)
    upper = np.where(amounts > _EXACT, np.nextafter(nearest, np.inf), nearest)
    return np.where(amounts == INFINITE, np.inf, upper)


def _releases_by_id(book: Book) -> dict[int, tuple[str, str, str]]:
    found = book.store.rows("select id, dataset, col, release from release")
    return {number: (dataset, column, release) for number, dataset, column, release in found}


def _scopes_by_id(book: Book) -> dict[int, dict[str, str]]:
    found = book.store.rows("select id, name, period from scope order by id")
    return {number: {"scope": name, "period": period} for number, name, period in found}


def _named(names: Mapping[int, tuple[str, ...]], release: int, nonce: int) -> dict[str, Any]:
    dataset, column, name = names[release]
    return {"release_id": release, "nonce": nonce, "dataset": dataset, "text_column": column, "release": name}


def _time(facts: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(facts["ts"])


def _columns(table: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: [row[name] for row in rows] for name in SCHEMAS[table].names}


def _repeated(value: Any, rows: int) -> pa.Array:
    return pa.repeat(value, rows)


def _bytes(ids: KeyedIds) -> Bytes:
    return np.stack([ids.hi, ids.lo], axis=1).astype(">u8").view(np.uint8).reshape(-1, HASH_BYTES)


def _hex(rows: Bytes, valid: Mask | None = None) -> pa.Array:
    """Write bytes as hex digits, one text per row; null where they are not valid."""
    digits = np.frombuffer(np.ascontiguousarray(rows).tobytes().hex().encode(), f"S{2 * rows.shape[1]}")
    return pa.array(digits.astype(str), pa.string(), mask=None if valid is None else ~valid)
