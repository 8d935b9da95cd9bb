"""Prepare a batch for the ledger: hash its ids, read its amounts as whole numbers, encode rows, refuse mistakes."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.arrays import to_numpy
from dptext_etl.column import INFINITE
from dptext_etl.errors import InputError
from dptext_etl.guarantee import ADDITIVE
from dptext_etl.ledger.id_key import IdKey, RecordIds, canary_mask
from dptext_etl.ledger.storage.hashed_ids import Bytes, HashedIds, Index, hashed_ids, matrix
from dptext_etl.ledger.storage.segments import Blob, seal
from dptext_etl.ledger.types import I64, Charge, Event, Mask, ReleaseRef, Unit


class BatchIds(NamedTuple):
    """The hashed ids of a batch, shape (records, 32) and (records,), and their places in ascending order of id."""

    records: Bytes
    units: Bytes
    canary: Mask
    record_ids: HashedIds
    record_order: Index
    unit_ids: HashedIds
    unit_order: Index

    @property
    def size(self) -> int:
        return len(self.records)


class SealedRows(NamedTuple):
    """Rows of a batch in one column, encoded: what the event states of them, and blobs."""

    facts: Mapping[str, Any]
    blobs: Mapping[str, Blob]


class ColumnCharge(NamedTuple):
    """What a batch takes in one column: identities, positions and amounts, shape (records, 32) and (records,).

    `sealed` holds all its rows, encoded, where that was done ahead.
    """

    ref: ReleaseRef
    idem_keys: Bytes
    identities: HashedIds
    n_worst: I64
    spends: Mapping[str, I64]
    sealed: SealedRows | None = None


@dataclass(frozen=True)
class PreparedBatch:
    unit: Unit
    ids: pa.Array = field(repr=False)
    subjects: pa.Array | None = field(repr=False)
    charges: tuple[Charge, ...] = field(repr=False)
    batch: BatchIds = field(repr=False)
    columns: list[ColumnCharge] = field(repr=False)

    def require_of(
        self, unit: Unit, ids: pa.Array, subjects: pa.Array | None, charges: Sequence[Charge], canary: Mask | None
    ) -> None:
        """Refuse another batch than that which this was made of; arrays must be the very same ones."""
        same = self.ids is ids and self.subjects is subjects and self.unit == unit
        same &= len(charges) == len(self.charges) and all(map(operator.is_, charges, self.charges))
        if not (same and np.array_equal(canary_mask(canary, len(ids)), self.batch.canary)):
            raise InputError("what was made ready is of another batch than the one that is to be reserved")


def hash_batch(
    id_key: IdKey, unit: Unit, ids: pa.Array, subjects: pa.Array | None, canary: Mask | None, *, own: bool = False
) -> BatchIds:
    """Hash the ids of a batch; with `own`, a record without a subject is a unit of its own."""
    marked = canary_mask(canary, len(ids))
    records = id_key.records(ids, marked)
    order = records.distinct_order
    if unit == "record":
        units, unit_ids, unit_order = records.as_units
    else:
        units = hash_subjects(id_key, records, subjects, marked, own=own)
        unit_ids = hashed_ids(units)
        unit_order = unit_ids.order()
    return BatchIds(records.hashes, units, marked, records.ids, order, unit_ids, unit_order)


def hash_ids(
    id_key: IdKey, unit: Unit, ids: pa.Array, subjects: pa.Array | None, canary: Mask | None, *, own: bool
) -> tuple[HashedIds, HashedIds]:
    """Hash the ids of records and units, as `hash_batch` does."""
    marked = canary_mask(canary, len(ids))
    records = id_key.records(ids, marked)
    if unit == "record":
        return records.ids, records.unit_ids
    return records.ids, hashed_ids(hash_subjects(id_key, records, subjects, marked, own=own))


def hash_subjects(id_key: IdKey, records: RecordIds, subjects: pa.Array | None, canary: Mask, *, own: bool) -> Bytes:
    """Hash the subjects of records; with `own`, a record without one is a unit of its own."""
    alone = ~canary & to_numpy(subjects.is_null()) if own and subjects is not None else np.zeros_like(canary)
    units = id_key.subjects(subjects, canary | alone)
    return np.where(alone[:, None], records.hashes, units) if alone.any() else units


def read_charge(charge: Charge, size: int) -> ColumnCharge:
    idem_keys = matrix(charge.idem_keys, "idem keys")
    if len(idem_keys) != size:
        raise InputError(f"{size} records and {len(idem_keys)} idem keys: one per record")
    spends = {name: whole_numbers(charge.spends.get(name, INFINITE), size, name) for name in ADDITIVE}
    n_worst = whole_numbers(charge.n_worst, size, "n_worst")
    if size and n_worst.max() >= 1 << 32:
        raise InputError("n_worst must be below 2^32")
    return ColumnCharge(charge.ref, idem_keys, hashed_ids(idem_keys), n_worst, spends)


def whole_numbers(values: npt.ArrayLike | pa.Array, size: int, name: str) -> I64:
    array: npt.NDArray[Any] = np.asarray(to_numpy(values) if isinstance(values, pa.Array) else values)
    if array.dtype.kind == "f":
        finite = np.where(array >= INFINITE, 0, array)
        if not (finite == np.floor(finite)).all():
            raise InputError(f"{name} must be whole millionths", "round up with dptext_etl.guarantee.micro")
        array = np.where(array >= INFINITE, INFINITE, finite.astype(np.int64))
    elif array.dtype.kind not in "iu" and not all(type(value) is int for value in array.flat):
        raise InputError(f"{name} must be whole numbers, got {array.dtype}")
    elif array.dtype.kind != "i":  # whole numbers that may be beyond 64 bits
        array = np.clip(array, 0 if array.dtype.kind == "u" else -1, INFINITE)
    amounts = array.astype(np.int64, copy=False)
    if not array.ndim:
        amounts = np.broadcast_to(amounts, (size,))
    if amounts.shape != (size,):
        raise InputError(f"{size} records and {len(amounts)} values of {name}: one per record")
    if size and amounts.min() < 0:
        raise InputError(f"{name} must not be negative")
    return amounts


def seal_rows(batch: BatchIds, column: ColumnCharge, rows: Index | None = None) -> SealedRows:
    """Encode some or all rows of a column, unless all were encoded ahead."""
    if rows is None or len(rows) == batch.size:
        rows = None
        if column.sealed is not None:
            return column.sealed
    values: dict[str, npt.NDArray[Any]] = {
        "record": batch.records,
        "unit": batch.units,
        "idem_key": column.idem_keys,
        "canary": batch.canary.astype(np.int64),
        "n_worst": column.n_worst,
        **column.spends,
    }
    return SealedRows(*seal(Event.RESERVE, values if rows is None else {key: v[rows] for key, v in values.items()}))
