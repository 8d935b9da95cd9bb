"""Write the columns of a batch compactly: as a rule where one gives all values, else as one blob.

Most columns follow a rule: one value, a multiple of the positions, a range, a copy of another column. The event holds
the rule; the Merkle root always hashes the decoded rows. No batch is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl.column import INFINITE
from dptext_etl.errors import LedgerError

Column = npt.NDArray[Any]
Rule = dict[str, Any]
_SIZES = ((1 << 8, "<u1"), (1 << 16, "<u2"), (1 << 32, "<u4"))


def encode(column: Column, known: Mapping[str, Column]) -> tuple[Rule, bytes | None]:
    """Return the rule of a column, and its blob if it needs one."""
    return _bytes(column, known) if column.ndim == 2 else _numbers(column.astype(np.int64, copy=False), known)


def _bytes(column: Column, known: Mapping[str, Column]) -> tuple[Rule, bytes | None]:
    for name, other in known.items():
        if other.shape == column.shape and (other is column or np.array_equal(other, column)):
            return {"same": name}, None
    if not column.any():
        return {"zero": column.shape[1]}, None
    return {"bytes": column.shape[1]}, column.tobytes()


def _numbers(values: npt.NDArray[np.int64], known: Mapping[str, Column]) -> tuple[Rule, bytes | None]:
    first = int(values[0])
    if (values == first).all():
        return {"all": "inf" if first == INFINITE else first}, None
    if first < 1 << 62 and np.array_equal(values, np.arange(first, first + len(values))):
        return {"from": first}, None
    for name, other in known.items():
        factor = _factor(values, other)
        if factor is not None:
            return {"times": factor, "of": name}, None
    high = int(values.max())
    dtype = next((dtype for limit, dtype in _SIZES if values.min() >= 0 and high < limit), "<i8")
    return {"raw": dtype}, values.astype(dtype).tobytes()


def _factor(values: npt.NDArray[np.int64], other: Column) -> int | None:
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


def decode(rule: Rule, data: bytes | None, rows: int, known: Mapping[str, Column]) -> Column:
    """Return the column that `encode` wrote."""
    if "same" in rule:
        return known[rule["same"]]
    if "bytes" in rule or "raw" in rule:
        return _unpacked(rule, data, rows)
    if "zero" in rule:
        return np.zeros((rows, rule["zero"]), np.uint8)
    if "times" in rule:
        return known[rule["of"]].astype(np.int64, copy=False) * int(rule["times"])
    start = rule.get("from")
    if start is not None:
        return np.arange(start, start + rows, dtype=np.int64)
    return np.full(rows, INFINITE if rule["all"] == "inf" else rule["all"], np.int64)


def _unpacked(rule: Rule, data: bytes | None, rows: int) -> Column:
    width = rule["bytes"] if "bytes" in rule else np.dtype(rule["raw"]).itemsize
    if data is None or len(data) != rows * width:
        raise LedgerError("a batch has other rows than its event states", "run `dptext ledger verify`")
    if "bytes" in rule:
        return np.frombuffer(data, np.uint8).reshape(rows, width)
    return np.frombuffer(data, rule["raw"]).astype(np.int64)
