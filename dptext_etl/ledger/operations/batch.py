"""Prepare a batch for the ledger: hash its ids, read its amounts as whole numbers, refuse mistakes."""

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
from dptext_etl.ledger.idkey import IdKey, RecordIds
from dptext_etl.ledger.operations.foresight import Sealed
from dptext_etl.ledger.storage.keyed_ids import Bytes, Index, KeyedIds, keyed_ids, matrix
from dptext_etl.ledger.terms import I64, Charge, Mask, ReleaseRef, Unit


class BatchIds(NamedTuple):
    """The hashed ids of a batch, shape (records, 32) and (records,), and their places in ascending order of id."""

    records: Bytes
    units: Bytes
    canary: Mask
    record_ids: KeyedIds
    record_order: Index
    unit_ids: KeyedIds
    unit_order: Index

    @property
    def size(self) -> int:
        """The number of records."""
        return len(self.records)


class ColumnCharge(NamedTuple):
    """What a batch takes in one column: identities, positions and amounts, shape (records, 32) and (records,).

    `sealed` holds all its rows, encoded, where that was done ahead.
    """

    ref: ReleaseRef
    idem_keys: Bytes
    identities: KeyedIds
    n_worst: I64
    spends: Mapping[str, I64]
    sealed: Sealed | None = None


@dataclass(frozen=True)
class Ready:
    """A batch that is ready to be judged.

    Attributes:
        unit: Who has the budget, "subject" or "record".
        ids: The record ids that it was made of.
        subjects: The subject ids that it was made of, or None.
        charges: The charges that it was made of.
        batch: Its hashed ids.
        columns: What it takes, one entry per charge.
    """

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
        if not (same and np.array_equal(_mask(canary, len(ids)), self.batch.canary)):
            raise InputError("what was made ready is of another batch than the one that is to be reserved")


def identify(
    id_key: IdKey, unit: Unit, ids: pa.Array, subjects: pa.Array | None, canary: Mask | None, *, own: bool = False
) -> BatchIds:
    """Hash the ids of a batch; with `own`, a record without a subject is a unit of its own."""
    marked = _mask(canary, len(ids))
    found = id_key.records(ids, marked)
    order = found.distinct_order()
    if unit == "record":
        units, unit_ids, unit_order = found.as_units()
    else:
        alone = ~marked & to_numpy(subjects.is_null()) if own and subjects is not None else np.zeros_like(marked)
        units = id_key.subjects(subjects, marked | alone)
        units = np.where(alone[:, None], found.hashed, units) if alone.any() else units
        unit_ids = keyed_ids(units)
        unit_order = unit_ids.order()
    return BatchIds(found.hashed, units, marked, found.keyed, order, unit_ids, unit_order)


def record_ids(id_key: IdKey, ids: pa.Array, canary: Mask | None) -> RecordIds:
    """Hash record ids."""
    return id_key.records(ids, _mask(canary, len(ids)))


def column(charge: Charge, size: int) -> ColumnCharge:
    """Read a charge."""
    idem_keys = matrix(charge.idem_keys, "idem keys")
    if len(idem_keys) != size:
        raise InputError(f"{size} records and {len(idem_keys)} idem keys: one per record")
    spends = {name: whole(charge.spends.get(name, INFINITE), size, name) for name in ADDITIVE}
    n_worst = whole(charge.n_worst, size, "n_worst")
    if size and n_worst.max() >= 1 << 32:
        raise InputError("n_worst must be below 2^32")
    return ColumnCharge(charge.ref, idem_keys, keyed_ids(idem_keys), n_worst, spends)


def whole(values: npt.ArrayLike | pa.Array, size: int, name: str) -> I64:
    """Read amounts as int64, shape (size,). Infinity becomes `column.INFINITE`."""
    array: npt.NDArray[Any] = np.asarray(to_numpy(values) if isinstance(values, pa.Array) else values)
    if array.dtype.kind == "f":
        finite = np.where(np.isposinf(array), 0, array)
        if not ((finite == np.floor(finite)) & (finite < 1 << 62)).all():
            raise InputError(f"{name} must be whole millionths", "round up with dptext_etl.guarantee.micro")
        array = np.where(np.isposinf(array), INFINITE, finite.astype(np.int64))
    elif array.dtype.kind not in "iu":
        raise InputError(f"{name} must be whole numbers, got {array.dtype}")
    amounts = array.astype(np.int64, copy=False)
    if not array.ndim:
        amounts = np.broadcast_to(amounts, (size,))
    if amounts.shape != (size,):
        raise InputError(f"{size} records and {len(amounts)} values of {name}: one per record")
    if size and amounts.min() < 0:
        raise InputError(f"{name} must not be negative")
    return amounts


def _mask(canary: Mask | None, size: int) -> Mask:
    if canary is None:
        return np.zeros(size, np.bool_)
    marked = np.asarray(canary, np.bool_)
    if marked.shape != (size,):
        raise InputError(f"{size} records and {len(marked)} canary marks: one per record")
    return marked
