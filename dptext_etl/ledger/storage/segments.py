"""Seal the records of a batch as columns, with a Merkle root over their rows.

Specification: docs/spec/privacy.md#segments.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dptext_etl import _kernel
from dptext_etl.guarantee import ADDITIVE, PURE
from dptext_etl.ledger.storage import units
from dptext_etl.ledger.storage.columns import Column, Rule, decode, encode
from dptext_etl.ledger.storage.keyed_ids import WIDTH, binaries
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.terms import Event

Layout = tuple[tuple[str, int], ...]

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
PLACES: Layout = (("batch", 8), ("row", 4))
"""A reserved row."""

SETTLED: Layout = (*PLACES, (PURE, 8))
"""A reserved row, and what stays charged of its worst case."""

POSTED: Layout = (*PLACES, ("digest", WIDTH))
"""A committed row, and the digest of what post-processing made of its released text."""

FORGOTTEN: Layout = (("record", WIDTH),)
"""A record that is forgotten, or admitted again."""

LAYOUTS: Mapping[str, Layout] = {
    Event.RESERVE: CHARGES,
    Event.COMMIT: OUTPUTS,
    Event.DIVERGED: OUTPUTS,
    Event.SETTLE: SETTLED,
    Event.EXPIRE: PLACES,
    Event.ABORT: PLACES,
    Event.POST: POSTED,
    Event.FORGET: FORGOTTEN,
    Event.READMIT: FORGOTTEN,
}
"""Events that seal a batch, and the bytes of one row: column by column, whole numbers little-endian."""


def seal(layout: Layout, columns: Mapping[str, Column]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Encode a batch."""
    rules: dict[str, Rule] = {}
    blobs: dict[str, bytes] = {}
    known: dict[str, Column] = {}
    for name, _ in layout:
        rules[name], blob = encode(columns[name], known)
        if blob is not None:
            blobs[name] = blob
        known[name] = columns[name]
    rows = len(columns[layout[0][0]])
    return {"rows": rows, "root": root(layout, columns).hex(), "columns": rules, **units.stated(columns)}, blobs


def root(layout: Layout, columns: Mapping[str, Column]) -> bytes:
    """Return the Merkle root over the rows of a batch."""
    rows = len(columns[layout[0][0]])
    packed = np.empty(rows, [(name, _FORMATS[width]) for name, width in layout])
    for name, width in layout:
        column = columns[name]
        packed[name] = column if column.ndim == 1 else np.ascontiguousarray(column).view(_FORMATS[width])[:, 0]
    return _kernel.merkle_root(binaries(packed.view(np.uint8).reshape(rows, -1)))


_FORMATS = {1: "<u1", 4: "<u4", 8: "<i8", WIDTH: f"V{WIDTH}"}


class Segments:
    """Write and read the sealed batches of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, seq: int, blobs: Mapping[str, bytes]) -> None:
        """Store the blobs of an event."""
        for name, blob in blobs.items():
            self._store.execute("insert into segment values(?,?,?)", (seq, name, blob))

    def send(self, blobs: Mapping[str, bytes]) -> int:
        """Store the blobs of an event that has no number yet, and return the number to `adopt` or `drop` them by."""
        number = -secrets.randbits(62)
        self.write(number, blobs)
        return number

    def adopt(self, sent: int, seq: int) -> None:
        """Give blobs that were sent to their event; no byte of them moves."""
        self._store.execute("update segment set seq=? where seq=?", (seq, sent))

    def drop(self, sent: int) -> None:
        """Remove blobs that were sent and are not wanted."""
        self._store.execute("delete from segment where seq=?", (sent,))

    def read(
        self, seq: int, facts: Mapping[str, Any], names: Sequence[str], *, sealed: bool = False
    ) -> dict[str, Column]:
        """Return some columns of a batch, amounts in the steps of today, or as they were sealed."""
        columns: dict[str, Column] = {}
        for name in names:
            self._read(seq, facts, name, columns)
        found = {name: columns[name] for name in names}
        return found if sealed else {name: units.converted(name, found[name], facts) for name in names}

    def _read(self, seq: int, facts: Mapping[str, Any], name: str, columns: dict[str, Column]) -> None:
        if name in columns:
            return
        rule: Rule = facts["columns"][name]
        needed = rule.get("same", rule.get("of"))
        if needed is not None:
            self._read(seq, facts, needed, columns)
        data = None
        if "bytes" in rule or "raw" in rule:
            found = self._store.row("select data from segment where seq=? and name=?", (seq, name))
            data = None if found is None else found[0]
        columns[name] = decode(rule, data, facts["rows"], columns)
