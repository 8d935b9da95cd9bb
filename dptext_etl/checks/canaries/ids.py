"""Make ids for canary rows, of the id column's own type, so that they pass wherever a real id passes."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import polars as pl

from dptext_etl.errors import InputError, seam
from dptext_etl.keys import id_type

_LAST_DAY = date.max.toordinal()
_MICROSECONDS = 2**62 // 1_000
"""Largest timestamp: nanoseconds can still hold it."""


def ids_from(seeds: Sequence[bytes], dtype: pl.DataType) -> pl.Series:
    """Make one id of type `dtype` from each seed of 32 bytes; equal seeds give equal ids."""
    with seam(f"making canary ids of type {dtype}"):
        if isinstance(dtype, pl.Enum):
            raise InputError(
                "an Enum takes no canary ids, because its values are fixed", "cast the id column to String"
            )
        id_type(pl.Series([], dtype=dtype).to_arrow().type)
        if isinstance(dtype, pl.Datetime):
            instants = [_instant(int.from_bytes(seed, "little") % _MICROSECONDS, dtype.time_unit) for seed in seeds]
            return pl.Series(instants, dtype=pl.Int64).cast(dtype)
        return pl.Series([_value(seed, dtype) for seed in seeds], dtype=dtype)


def _value(seed: bytes, dtype: pl.DataType) -> Any:
    number = int.from_bytes(seed, "little")
    if isinstance(dtype, (pl.String, pl.Categorical)):
        return str(uuid.UUID(bytes=seed[:16], version=4))
    if isinstance(dtype, pl.Binary):
        return seed[:16]
    if isinstance(dtype, pl.Date):
        return date.fromordinal(1 + number % _LAST_DAY)
    if isinstance(dtype, pl.Decimal):
        return Decimal(f"{number % 10**dtype.precision}e-{dtype.scale}")
    if isinstance(dtype, pl.Struct):
        return {field.name: _field(seed, field) for field in dtype.fields}
    low, high = pl.select(low=dtype.min(), high=dtype.max()).row(0)  # type: ignore[attr-defined]
    return low + number % (high - low + 1)


def _instant(microseconds: int, unit: str) -> int:
    return {"ms": microseconds // 1_000, "us": microseconds, "ns": microseconds * 1_000}[unit]


def _field(seed: bytes, field: pl.Field) -> Any:
    own = hashlib.sha256(seed + field.name.encode()).digest()
    return ids_from([own], field.dtype).item() if isinstance(field.dtype, pl.DataType) else None
