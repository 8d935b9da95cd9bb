"""Append events and sealed batches to the journal, chain them by hashes, and read them (docs/spec/privacy.md#lanes).

The body of an event is canonical JSON and holds the Merkle root of the batch, if there is one. The hash of an event is
SHA-256(tag || hash of the event before || body). So an edited, removed, moved, or inserted event breaks the chain. The
chain does not show that someone rewrote all of it; an anchor that was kept elsewhere does.

The rows of a batch are encoded as columns. Most follow a rule: one value, a multiple of the positions, a range, a copy
of another column. The event holds the rule; other columns are blobs. The Merkle root always hashes the decoded rows. No
batch is empty. The rule of a blob also holds its SHA-256, because a reader of one column cannot compute the root: 50 ms
per million ids, of 0.6 s.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow
from dptext_etl.artifacts import canon
from dptext_etl.column import INFINITE
from dptext_etl.errors import LedgerError, file_failure
from dptext_etl.files import flush, temporary_folder
from dptext_etl.guarantee import ADDITIVE, PURE
from dptext_etl.ledger.storage.hashed_ids import WIDTH, HashedIds, Index, binaries, hashed_ids
from dptext_etl.ledger.storage.store import COLUMNS, POSTGRES, SqliteStore, Store, resolve_url, sqlite_path
from dptext_etl.ledger.types import DECISIONS, I64, Anchor, Event

CONCURRENT_EVENTS = (Event.RESERVE, Event.REPLAY, Event.COMMIT, Event.DIVERGED, Event.SETTLE, Event.POST)
"""Events that writers append next to each other; every other event waits until all writers are done."""
APPEND = "append"  # the name of the lock for appending events; a transaction acquires it last
_TAG = b"dptext/ledger/event/v1\0"  # so that the hash of an event is the hash of nothing else
_GENESIS = b"dptext/ledger/genesis/v1\0"
EDITED = "`dptext ledger verify` lists what differs; find out who changed the ledger, and treat it as lost"
SCAN_ROWS = 1 << 22  # rows whose ids a scan holds at a time, at most about

Column = npt.NDArray[Any]
Layout = tuple[tuple[str, int], ...]
Rule = dict[str, Any]
Blob = bytes | memoryview

CHARGES: Layout = (
    ("record", WIDTH),
    ("unit", WIDTH),
    ("idem_key", WIDTH),
    ("canary", 1),
    ("n_worst", 4),
    *((name, 8) for name in ADDITIVE),
)
"""A reserved record: who, whose budget (zeros for a canary), which text, and the worst case in every component."""
OUTPUTS: Layout = (("batch", 8), ("row", 4), ("positions", 4), ("digest", WIDTH))
"""A computed record: the reserved row it belongs to, draws made, digest of the released text."""
ROWS: Layout = (("batch", 8), ("row", 4))
RECORDS: Layout = (("record", WIDTH),)
LAYOUTS: Mapping[str, Layout] = {
    Event.RESERVE: CHARGES,
    Event.COMMIT: OUTPUTS,
    Event.DIVERGED: OUTPUTS,
    Event.SETTLE: (*ROWS, (PURE, 8)),  # what stays charged of the worst case
    Event.EXPIRE: ROWS,
    Event.ABORT: ROWS,
    Event.POST: (*ROWS, ("digest", WIDTH)),  # of the post-processed text
    Event.FORGET: RECORDS,
    Event.READMIT: RECORDS,
}
"""Events that seal a batch, and the bytes of one row: column by column, whole numbers little-endian."""


class Entry(NamedTuple):
    seq: int
    kind: str
    body: str
    hash: bytes

    @property
    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self.body)
        return facts


class Head(NamedTuple):
    seq: int
    hash: bytes


def event_hash(before: bytes, body: str) -> bytes:
    return hashlib.sha256(_TAG + before + body.encode()).digest()


class IdRange(NamedTuple):
    """The ids that begin with the bits `prefix`. Scans go over batches once per range, to bound their memory."""

    bits: int
    prefix: int


ALL_IDS = IdRange(0, 0)


class ScannedRows(NamedTuple):
    """The rows of a batch whose ids lie in a range: their places in the batch, ids, and other columns."""

    batch: int
    rows: Index
    ids: HashedIds
    columns: dict[str, Column]


def id_ranges(rows: int) -> Iterator[IdRange]:
    """Iterate over the ranges of ids in which `rows` rows are scanned."""
    bits = max(0, (rows - 1).bit_length() - (SCAN_ROWS - 1).bit_length()) if rows else 0
    return (IdRange(bits, prefix) for prefix in range(1 << bits))


def encode(column: Column, columns: Mapping[str, Column]) -> tuple[Rule, Blob | None]:
    """Return the rule of a column, and its blob if it needs one, which shares the memory of the column if it can."""
    if column.ndim == 1:
        return _encode_numbers(column.astype(np.int64, copy=False), columns)
    for name, other in columns.items():
        if other.shape == column.shape and (other is column or np.array_equal(other, column)):
            return {"same": name}, None
    if not column.any():
        return {"zero": column.shape[1]}, None
    return {"bytes": column.shape[1]}, np.ascontiguousarray(column).reshape(-1).data


def _encode_numbers(values: I64, columns: Mapping[str, Column]) -> tuple[Rule, Blob | None]:
    first = int(values[0])
    # From the shortest rule to the longest: most columns of a batch are a constant, a range, or a multiple.
    if (values == first).all():
        return {"all": "inf" if first == INFINITE else first}, None
    if first < 1 << 62 and np.array_equal(values, np.arange(first, first + len(values))):
        return {"from": first}, None
    for name, other in columns.items():
        if (factor := _factor(values, other)) is not None:
            return {"times": factor, "of": name}, None
    low, high = int(values.min()), int(values.max())
    dtype = next((dtype for dtype in ("<u1", "<u2", "<u4") if low >= 0 and high <= np.iinfo(dtype).max), "<i8")
    return {"raw": dtype}, np.ascontiguousarray(values, dtype).view(np.uint8).data


def _factor(values: I64, other: Column) -> int | None:
    """Return k if values = k * other exactly and without overflow, else None."""
    if other.ndim != 1:
        return None
    base = other.astype(np.int64, copy=False)
    at = int(base.argmax())
    top, value = int(base[at]), int(values[at])
    if top <= 0 or base.min() < 0 or value % top or value < int(values.max()) or value == INFINITE:
        return None
    factor = value // top
    return factor if np.array_equal(values, base * factor) else None


def decode(rule: Rule, data: bytes, rows: int, columns: Mapping[str, Column]) -> Column:
    if "same" in rule:
        return columns[rule["same"]]
    if "bytes" in rule:
        return np.frombuffer(data, np.uint8).reshape(rows, rule["bytes"])
    if "raw" in rule:
        return np.frombuffer(data, rule["raw"]).astype(np.int64)
    if "zero" in rule:
        return np.zeros((rows, rule["zero"]), np.uint8)
    if "times" in rule:
        return columns[rule["of"]].astype(np.int64, copy=False) * int(rule["times"])
    first = rule.get("from")
    value = INFINITE if rule.get("all") == "inf" else rule.get("all")
    return np.full(rows, value, np.int64) if first is None else np.arange(first, first + rows, dtype=np.int64)


def seal(kind: Event, columns: Mapping[str, Column]) -> tuple[dict[str, Any], dict[str, Blob]]:
    """Encode the rows of an event: facts for its body, and blobs."""
    layout = LAYOUTS[kind]
    rules: dict[str, Rule] = {}
    blobs: dict[str, Blob] = {}
    encoded: dict[str, Column] = {}
    for name, _ in layout:
        rules[name], blob = encode(columns[name], encoded)
        # The event names the hash of each blob, so the chain of events covers the blobs.
        if blob is not None:
            blobs[name] = blob
            rules[name]["sha256"] = hashlib.sha256(blob).hexdigest()
        encoded[name] = columns[name]
    facts: dict[str, Any] = {"rows": len(columns[layout[0][0]]), "root": root(kind, columns).hex(), "columns": rules}
    facts |= {"canaries": int(columns["canary"].sum())} if "canary" in columns else {}
    facts |= {"batches": np.unique(columns["batch"]).tolist()} if "batch" in columns else {}
    return facts, blobs


def root(kind: Event, columns: Mapping[str, Column]) -> bytes:
    layout = LAYOUTS[kind]
    rows = len(columns[layout[0][0]])
    sealed = []
    for name, width in layout:
        column = columns[name]
        # one number represents many equal ones that share their memory
        numbers = column if column.ndim > 1 or column.strides[0] else column[:1]
        sealed.append((binaries(column) if column.ndim > 1 else to_arrow(numbers.astype(np.int64, copy=False)), width))
    return _kernel.merkle_root(sealed, rows)


class Journal:
    def __init__(self, store: Store, ledger_id: str, writer: str) -> None:
        self._store, self._ledger_id = store, ledger_id
        self.genesis = hashlib.sha256(_GENESIS + ledger_id.encode()).digest()
        self._writer = writer
        self._intact = set[tuple[int, str]]()  # blobs whose hash was compared; the holder of the store's lock adds them
        self._rehearsed: list[Entry] | None = None  # events of a rehearsal, which the store never gets

    def anchor(self) -> Anchor:
        """Return the last event as an anchor: number 0 and the genesis hash for an empty ledger."""
        head = self.last()
        return Anchor(self._ledger_id, head.seq, head.hash.hex())

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Hold back all events of the block in memory, over one snapshot, and forget them at its end.

        Events are checked as in a transaction. No lock is held against writers, and no right to write is needed.
        """
        with self._store.snapshot():
            outer = self._rehearsed
            self._rehearsed = [] if outer is None else outer
            try:
                yield
            finally:
                self._rehearsed = outer

    def append(self, kind: Event, **facts: Any) -> int:
        """Append one event, and return its number.

        The lock is held until the transaction ends: numbers are in the order of commits, and readers see no gaps.
        """
        # Such an event binds every writer (releases, caps, freezes), so no other writer may be at work meanwhile.
        if kind not in CONCURRENT_EVENTS:
            self._store.require_exclusive()
        facts |= self._store.who() if kind in DECISIONS else {}
        if self._rehearsed is None:
            self._store.lock(APPEND)
        last = self.last()
        seq, now = last.seq + 1, datetime.now(UTC).isoformat(timespec="milliseconds")
        body = canon({"seq": seq, "event": kind.value, "ts": now, "writer": self._writer, **facts}).decode()
        entry = Entry(seq, kind.value, body, event_hash(last.hash, body))
        if self._rehearsed is None:
            self._store.execute("insert into event values(?,?,?,?)", entry)
        else:
            self._rehearsed.append(entry)
        return seq

    def last(self) -> Head:
        """Return the last event; number 0 and the genesis hash for an empty ledger."""
        if self._rehearsed:
            return Head(self._rehearsed[-1].seq, self._rehearsed[-1].hash)
        row = self._store.row("select seq, hash from event order by seq desc limit 1")
        return Head(0, self.genesis) if row is None else Head(row[0], bytes(row[1]))

    def has_head(self, head: Head) -> bool:
        """Return whether the event of a head is still there; so is the beginning of an empty ledger."""
        if not head.seq:
            return head.hash == self.genesis
        if any((entry.seq, entry.hash) == head for entry in self._rehearsed or ()):
            return True
        row = self._store.row("select hash from event where seq=?", (head.seq,))
        return row is not None and bytes(row[0]) == head.hash

    def entries(self, *kinds: Event, after: int | None = None) -> Iterator[Entry]:
        """Iterate over events in order: all, or only some kinds, and only those with larger numbers."""
        clauses = [f"kind in ({','.join('?' * len(kinds))})"] if kinds else []
        clauses += [] if after is None else ["seq>?"]
        where = f" where {' and '.join(clauses)}" if clauses else ""
        values = kinds if after is None else (*kinds, after)
        for row in self._store.execute(f"select seq, kind, body, hash from event{where} order by seq", values):  # noqa: S608
            yield Entry(*row)
        for entry in self._rehearsed or ():
            if (not kinds or entry.kind in kinds) and (after is None or entry.seq > after):
                yield entry

    def facts(self, seq: int) -> dict[str, Any]:
        """Return the body of one event; empty if there is no such event."""
        row = self._store.row("select body from event where seq=?", (seq,))
        return {} if row is None else json.loads(row[0])

    def append_rows(self, kind: Event, columns: Mapping[str, Column], **facts: Any) -> int:
        return self.append_sealed(kind, *seal(kind, columns), **facts)

    def append_sealed(
        self, kind: Event, sealed: Mapping[str, Any], blobs: Mapping[str, Blob], staged: int | None = None, **facts: Any
    ) -> int:
        """Append an event and its blobs, which may be `staged` already.

        Where several writers may write, blobs are stored before the event gets its number, for which the others wait;
        the rows that a writer of a server may change are those without a number.
        """
        if staged is None:
            staged = self.stage(blobs)
        seq = self.append(kind, **facts, **sealed)
        if staged is None:
            self._write(seq, blobs)
        else:  # no byte of them moves
            self._store.execute("update segment set seq=? where seq=?", (seq, staged))
        return seq

    def stage(self, blobs: Mapping[str, Blob]) -> int | None:
        """Store the blobs of an event that has no number yet, if other writers may wait; return what finds them."""
        if not self._store.concurrent:
            return None
        # Below 0, where no event is, and random, so that writers need not agree on numbers.
        number = -secrets.randbits(62)
        self._write(number, blobs)
        return number

    def discard(self, staged: int) -> None:
        self._store.execute("delete from segment where seq=?", (staged,))

    def _write(self, seq: int, blobs: Mapping[str, Blob]) -> None:
        for name, blob in blobs.items():
            self._store.execute("insert into segment values(?,?,?)", (seq, name, blob))

    def read(self, seq: int, names: Sequence[str], facts: Mapping[str, Any] | None = None) -> dict[str, Column]:
        """Return some columns of an event."""
        facts = self.facts(seq) if facts is None else facts
        columns: dict[str, Column] = {}
        for name in names:
            self._decode(seq, facts, name, columns)
        return {name: columns[name] for name in names}

    def scan(
        self, batches: Iterable[int], key: str, names: Sequence[str], within: IdRange = ALL_IDS
    ) -> Iterator[ScannedRows]:
        """Iterate over the rows of batches whose id in the column `key` lies in a range."""
        for batch in batches:
            columns = self.read(batch, [key, *names])
            ids = hashed_ids(columns[key])
            here = ids.hi >> np.uint64(64 - within.bits) == np.uint64(within.prefix) if within.bits else slice(None)
            rows = np.arange(ids.size)[here]
            yield ScannedRows(batch, rows, ids.take(rows), {name: columns[name][rows] for name in names})

    def _decode(self, seq: int, facts: Mapping[str, Any], name: str, columns: dict[str, Column]) -> None:
        if name in columns:
            return
        rule: Rule = facts["columns"][name]
        if (needed := rule.get("same", rule.get("of"))) is not None:
            self._decode(seq, facts, needed, columns)
        blob = b""
        if "sha256" in rule:
            row = self._store.row("select data from segment where seq=? and name=?", (seq, name))
            known = (seq, name) in self._intact  # the hash is compared once
            if row is None or not (known or hashlib.sha256(row[0]).hexdigest() == rule["sha256"]):
                raise LedgerError(f"batch {seq}: the column {name} was edited or removed after it was sealed", EDITED)
            self._intact.add((seq, name))
            blob = row[0]
        columns[name] = decode(rule, blob, facts["rows"], columns)


_TAKEN = "there is something at the place of the copy already"
_OTHER_SCHEMA = "name another schema with ?schema=NAME"
_OTHER_FILE = "name a file that does not exist"


def copy(source: Store, to: str) -> Anchor:
    """Copy a ledger to a place where there is none, while others write.

    The copy has the same name, journal and head as the ledger at one moment, and no id key. Writing to it instead of
    the ledger means to continue with an old copy (docs/spec/privacy.md#lost-ledger).
    """
    to = resolve_url(to)
    if to.startswith(POSTGRES):
        from dptext_etl.ledger.storage.postgres import PostgresStore

        with closing(PostgresStore(to)) as target:
            return _copy(source, target)
    path = sqlite_path(to)
    if path.exists():
        raise LedgerError(_TAKEN, _OTHER_FILE)
    try:
        with temporary_folder(path.absolute().parent) as drafts:
            draft = drafts / path.name
            with closing(SqliteStore(draft)) as target:
                anchor = _copy(source, target)
            flush(draft)
            os.link(draft, path)
            flush(path.parent)
    except FileExistsError:
        raise LedgerError(_TAKEN, _OTHER_FILE) from None
    except OSError as exc:
        hint = "the folder must exist and have room"
        raise file_failure(exc, "the copy cannot be written", hint, LedgerError) from None
    return anchor


def _copy(source: Store, target: Store) -> Anchor:
    if isinstance(source, SqliteStore) and isinstance(target, SqliteStore):
        source.copy_pages(target)
    else:
        with target.transaction(), source.snapshot():
            if target.meta("ledger_id") is not None:
                raise LedgerError(_TAKEN, _OTHER_SCHEMA)
            # Row by row; the target knows its schema, which is the same.
            for table, names in COLUMNS.items():
                columns, marks = ", ".join(names), ", ".join("?" * len(names))
                select, insert = f"select {columns} from {table}", f"insert into {table}({columns}) values({marks})"  # noqa: S608
                keys = names[: 2 if table == "segment" else 1]
                where = " and ".join(f"{key}=?" for key in keys)
                for key in source.rows(f"select {', '.join(keys)} from {table}"):  # noqa: S608
                    for row in source.rows(f"{select} where {where}", key) if key != ("schema",) else ():
                        target.execute(insert, row)
    return Journal(target, target.meta("ledger_id") or "", "").anchor()
