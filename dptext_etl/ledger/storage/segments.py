"""Encode the rows of a batch as columns under a Merkle root, and decode them.

Most columns follow a rule: one value, a multiple of the positions, a range, a copy of another column. The event holds
the rule; other columns are blobs. The Merkle root always hashes the decoded rows. No batch is empty. The rule of a blob
also holds its SHA-256, because a reader of one column cannot compute the root: 50 ms per million ids, of 0.6 s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow
from dptext_etl.column import INFINITE
from dptext_etl.guarantee import ADDITIVE, PURE
from dptext_etl.ledger.storage.hashed_ids import WIDTH, binaries
from dptext_etl.ledger.types import I64, Event

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
        factor = _factor(values, other)
        if factor is not None:
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
    return _kernel.merkle_root([(_sealed(columns[name]), width) for name, width in layout], rows)


def _sealed(column: Column) -> pa.Array:
    """Return a column as the kernel hashes it; one number represents many equal ones that share their memory."""
    if column.ndim > 1:
        return binaries(column)
    return to_arrow((column if column.strides[0] else column[:1]).astype(np.int64, copy=False))
