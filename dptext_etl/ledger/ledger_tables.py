"""Write a ledger as plain tables.

Ids are the ledger's own keyed hashes, amounts are in units of epsilon, rho and delta. docs/ledger.md#tables lists the
columns. The tables are internal: the number of charged words may reveal more than a release.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_etl import files
from dptext_etl.column import INFINITE
from dptext_etl.errors import InputError, file_failure
from dptext_etl.guarantee import ADDITIVE, PURE, steps
from dptext_etl.keys import IdForm, normalized
from dptext_etl.ledger.caps import LARGEST
from dptext_etl.ledger.contents import COUNTS, Contents, Key, Pinned
from dptext_etl.ledger.holdings import Database, Places
from dptext_etl.ledger.reports import charges, keys_of_releases, refunds, tracked_components, used_by_unit
from dptext_etl.ledger.storage.hashed_ids import Bytes
from dptext_etl.ledger.types import I64, Mask, State

EVENTS = 10_000  # events that are read at a time
ROW_GROUP = 100_000  # rows that are written together, at least
HASH_BYTES = 16  # bytes of a keyed id in the tables, as in the ledger's index
_EXACT = 1 << 52  # up to here, the nearest float to an amount in units rounds to the amount

Floats = npt.NDArray[np.float64]
Rows = Iterator[dict[str, Any] | list[dict[str, Any]]]  # parts, column by column or row by row
_TYPES = {"int": pa.int64(), "str": pa.string(), "float": pa.float64(), "bool": pa.bool_()}
_TYPES["time"] = pa.timestamp("ms", tz="UTC")


def _schema(columns: str) -> pa.Schema:
    return pa.schema([(name, _TYPES[kind]) for name, kind in (column.split() for column in columns.split(","))])


_RELEASE = "release_id int, nonce int, dataset str, text_column str, release str"
_SPENDS = ", ".join(f"{name} float" for name in ADDITIVE)
SCHEMAS: Mapping[str, pa.Schema] = {
    "record": _schema(
        f"batch int, batch_row int, reserved_at time, job str, {_RELEASE}, scope str, period str, record_hash str,"
        " unit_hash str, canary bool, state str, reserved_positions int, positions int, digest str,"
        f" reserved_{PURE} float, {_SPENDS}"
    ),
    "balance": _schema(
        "scope str, period str, unit str, unit_hash str, component str, used float, cap float, remaining float"
    ),
    "event": _schema(
        "event int, kind str, written_at time, writer str, dataset str, release str, job str, rows int, reason str,"
        " body str, event_hash str"
    ),
    "release": _schema(
        f"{_RELEASE}, mechanism str, guarantee str, protects str, disclosures str, assumptions str, cfg str,"
        f" publishable bool, revoked_by int, {', '.join(f'{name} int' for name in COUNTS)}, largest_{PURE} float"
    ),
    "publication": _schema(
        f"{_RELEASE}, version str, manifest str, rows int, retired bool, event int, published_at time"
    ),
    "asked": _schema("hash str"),
}
"""The columns of each table; docs/ledger.md#tables describes them."""


def write(db: Database, folder: Path, ids: Sequence[str]) -> dict[str, int]:
    """Write tables into a new folder, and return their numbers of rows. Call it inside a snapshot."""
    rows = {**{name: read(db) for name, read in _ROWS.items()}, "asked": iter([{"hash": _hashes(db, ids)}])}
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise InputError("the folder of the tables holds something already", "name a new folder")
    try:
        with files.temporary_folder(folder.absolute().parent) as draft:
            counts = {
                name: _write_table(draft / f"{name}.parquet", schema, rows[name]) for name, schema in SCHEMAS.items()
            }
            draft.rename(folder)
    except OSError as exc:
        hint = "the parent folder must exist and have room"
        raise file_failure(exc, "the tables cannot be written", hint) from None
    return counts


def _hashes(db: Database, ids: Sequence[str]) -> list[str]:
    """Return the keyed hashes of ids in these tables: as records, and as subjects in every pinned normalization."""
    if not ids:
        return []
    texts = pa.array(ids, pa.large_string())
    forms = [form for place, form in db.contents.latest().forms.items() if place[0] == "scope"]
    spellings = {(), *(IdForm.parse(form).normalize for form in forms)}
    hashed = [db.id_key.records(texts).hashes, *(db.id_key.subjects(normalized(texts, how)) for how in spellings)]
    return sorted({row[:HASH_BYTES].tobytes().hex() for hashes in hashed for row in hashes})


def _write_table(path: Path, schema: pa.Schema, parts: Rows) -> int:
    rows, pending = 0, list[pa.RecordBatch]()
    os.close(files.create(path))
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for part in parts:
            batch = pa.RecordBatch.from_pylist if isinstance(part, list) else pa.RecordBatch.from_pydict
            pending.append(batch(part, schema=schema))
            rows += pending[-1].num_rows
            if sum(batch.num_rows for batch in pending) >= ROW_GROUP:
                writer.write_table(pa.Table.from_batches(pending, schema))
                pending.clear()
        if pending:
            writer.write_table(pa.Table.from_batches(pending, schema))
    return rows


def _records(db: Database) -> Rows:
    """Iterate over reserved records, batch by batch: their charges after refunds."""
    contents = db.contents.latest()
    for seq, batch in contents.batches.items():
        facts = db.journal.facts(seq)
        columns = db.journal.read(seq, ["record", "unit", "canary", "n_worst", *ADDITIVE], facts)
        states, canary = db.records.states(seq), columns["canary"] == 1
        rows, committed = len(states), states == State.COMMITTED
        places = Places(np.full(int(committed.sum()), seq, np.int64), np.flatnonzero(committed))
        positions, digests = np.zeros(rows, np.int64), np.zeros((rows, 32), np.uint8)
        digests[committed], positions[committed] = db.records.digests_and_positions(places)
        # nothing stays charged of rows that were given back, nor of canary rows, which are no one's
        free = (states == State.ABORTED) | canary
        amounts = {name: np.where(free, 0, columns[name]) for name in ADDITIVE}
        for refunded, spent in refunds(db, seq, batch.settled):
            amounts[PURE][refunded] = np.where(canary[refunded], 0, spent)
        same = {"batch": seq, "reserved_at": _time(facts), "job": batch.job}
        same |= {**_named(contents, batch.key), **_scope(contents.scopes[batch.scope])}
        yield {
            **{name: pa.repeat(value, rows) for name, value in same.items()},
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


def _balances(db: Database) -> Rows:
    """Iterate over what units have used, scope by scope: one row per unit and component."""
    for pinned in db.contents.latest().scopes.values():
        for part in used_by_unit(db, pinned):
            order = part.ids.order()  # which does not show the order of the charges
            values, rows = part.values[:, order], len(order)
            hashes = _hex(part.ids.take(order).as_bytes())
            for at, (name, used) in enumerate(zip(tracked_components(pinned), values, strict=True)):
                cap = pinned.limits[at] if pinned.limits else None
                same = {**_scope(pinned), "unit": pinned.unit, "component": name}
                yield {
                    **{key: pa.repeat(value, rows) for key, value in same.items()},
                    "unit_hash": hashes,
                    "used": in_units(name, np.where(used >= LARGEST, INFINITE, used)),
                    "cap": pa.nulls(rows) if cap is None else in_units(name, np.full(rows, cap)),
                    "remaining": pa.nulls(rows) if cap is None else in_units(name, np.maximum(0, cap - used)),
                }


def _events(db: Database) -> Rows:
    """Iterate over the journal, whatever kinds of events it holds."""
    releases, entries = db.contents.latest().releases, db.journal.entries()
    while rows := [{**entry.facts, **entry._asdict()} for entry in islice(entries, EVENTS)]:
        for row in rows:
            dataset, release = None, row.get("release")
            if not isinstance(release, str):
                numbers = [number for number, _ in row.get("releases", ())] if release is None else [release]
                about = {(releases[number].dataset, releases[number].release) for number in numbers}
                dataset, release = about.pop() if len(about) == 1 else (None, None)
            row |= {"event": row["seq"], "event_hash": row["hash"].hex(), "written_at": _time(row)}
            row |= {"dataset": row.get("dataset", dataset), "release": release}
        yield rows


def _releases(db: Database) -> Rows:
    contents, rows = db.contents.latest(), list[dict[str, Any]]()
    for key, item in keys_of_releases(contents):
        facts, tally = item.facts, contents.count(key)
        row = {
            **_named(contents, key),
            "mechanism": facts["mechanism"],
            "guarantee": facts["class"],
            "protects": facts["unit"],
            "disclosures": ", ".join(facts["disclosures"]),
            "assumptions": ", ".join(facts["assumptions"]),
            "cfg": item.cfg,
            "publishable": item.publishable,
            "revoked_by": contents.revoked.get((item.dataset, item.release)),
            **{name: tally[name] for name in COUNTS},
            f"largest_{PURE}": in_units(PURE, np.array([charges(db, key)[0][PURE]])).item(),
        }
        rows.append(row)
    yield rows


def _publications(db: Database) -> Rows:
    contents, rows = db.contents.latest(), list[dict[str, Any]]()
    for key, versions in sorted(contents.publications.items()):
        retired = db.releases.retired(contents.releases[key[0]].ref(key[1]))
        for version, item in sorted(versions.items()):
            about = {"version": version, "manifest": item.manifest, "rows": item.rows, "event": item.seq}
            about |= {"retired": item.manifest in retired, "published_at": datetime.fromisoformat(item.ts)}
            rows.append(_named(contents, key) | about)
    yield rows


_ROWS: Mapping[str, Callable[[Database], Rows]] = {
    "record": _records,
    "balance": _balances,
    "event": _events,
    "release": _releases,
    "publication": _publications,
}


def in_units(component: str, amounts: I64) -> Floats:
    """Return counted amounts in units of epsilon, rho or delta; infinite where no bound is known.

    A float is the nearest to its amount, and the next larger one where the amount has more than 52 bits.
    """
    nearest = amounts / steps(component)
    upper = np.where(amounts > _EXACT, np.nextafter(nearest, np.inf), nearest)
    return np.where(amounts == INFINITE, np.inf, upper)


def _scope(pinned: Pinned) -> dict[str, str]:
    return {"scope": pinned.name, "period": pinned.period}


def _named(contents: Contents, key: Key) -> dict[str, Any]:
    item = contents.releases[key[0]]
    names = {"dataset": item.dataset, "text_column": item.column, "release": item.release}
    return {"release_id": item.id, "nonce": key[1], **names}


def _time(facts: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(facts["ts"])


def _hex(rows: Bytes, valid: Mask | None = None) -> pa.Array:
    digits = np.frombuffer(np.ascontiguousarray(rows).tobytes().hex().encode(), f"S{2 * rows.shape[1]}")
    return pa.array(digits.astype(str), pa.string(), mask=None if valid is None else ~valid)
