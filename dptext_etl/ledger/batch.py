"""Prepare a batch for the ledger: hash its ids under the id key, read its amounts as whole numbers, encode its rows.

The ledger stores keyed hashes of record and subject ids, never the ids (docs/spec/stream.md#ledger-ids).
"""

from __future__ import annotations

import operator
import os
import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import arrow_kind, to_arrow, to_numpy
from dptext_etl.column import INFINITE
from dptext_etl.errors import InputError, KeyReferenceError, LedgerError, counted
from dptext_etl.guarantee import ADDITIVE
from dptext_etl.ledger.storage.hashed_ids import WIDTH, Bytes, HashedIds, Index, WantedIds, hashed_ids, matrix
from dptext_etl.ledger.storage.segments import Blob, seal
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import I64, Charge, Event, Mask, ReleaseRef, Unit

RECENT = 4
"""Batches whose hashes are kept: as many as are under way at a time, between their reservation and their commit."""
LOSS = "without this key no balance can continue: restore it from a copy, or revoke the releases and start a new ledger"


class RecordIds:
    def __init__(self, ids: pa.Array, canary: Mask, hashes: Bytes) -> None:
        self._source, self._canary = ids, canary
        self.hashes = hashes
        self.ids = hashed_ids(hashes)

    def is_of(self, ids: pa.Array, canary: Mask) -> bool:
        return self._source.equals(ids) and np.array_equal(self._canary, canary)

    @cached_property
    def distinct(self) -> WantedIds:
        """The records as ids to look for; repeated ids are refused (docs/spec/stream.md#record-id)."""
        wanted = WantedIds(self.ids)
        if wanted.repeated:
            msg = counted(wanted.repeated, "record id of the batch is", "record ids of the batch are") + " repeated"
            raise InputError(msg, "every record needs an id of its own")
        return wanted

    @property
    def as_units(self) -> tuple[Bytes, HashedIds, Index]:
        """The hashes of records that have a budget each, and an order of them; canary rows have zeros."""
        order = np.arange(self.ids.size)  # no two rows share a budget
        if not self._canary.any():
            return self.hashes, self.ids, order
        return np.where(self._canary[:, None], np.uint8(0), self.hashes), self.unit_ids, order

    @property
    def unit_ids(self) -> HashedIds:
        """The hashed ids of records that have a budget each; canary rows have zeros."""
        return HashedIds(*(np.where(self._canary, np.uint64(0), half) for half in self.ids))


class IdKey:
    """Hash ids under the id key of one ledger; read the key when it is first needed.

    A ledger keeps its id key when noise keys change: under another key the same person would get another hash and an
    untouched balance. So a ledger stores a check value of its key and refuses every other key.
    """

    def __init__(self, store: Store, reference: str | None, ledger_id: str) -> None:
        self._store, self._reference, self._ledger_id = store, reference, ledger_id
        # any thread appends and iterates over a copy, so that a commit in another thread need not hash again
        self._recent: deque[RecordIds] = deque(maxlen=RECENT)

    @cached_property
    def secret(self) -> _kernel.Secret:
        """The key, after it was checked against the ledger."""
        reference, file = self._reference, self._store.key_file
        if reference is None and file is not None and file.exists():
            reference = f"file:{file}"
        if reference is None:
            msg = f"the id key of the ledger {self._store.name} is neither given{f' nor at {file}' if file else ''}"
            raise KeyReferenceError(msg, f"give ledger.id_key; {LOSS}")
        secret = resolve_id_key(reference)
        if self._store.meta("id_check") != check_value(secret, self._ledger_id):
            raise LedgerError(f"this is not the id key of the ledger {self._store.name}", f"name the right key; {LOSS}")
        return secret

    def records(self, ids: pa.Array, canary: Mask | None = None) -> RecordIds:
        """Hash record ids. Canary rows are hashed apart, so no canary meets a real id.

        The ids of a commit are equal to the ids of its reservation, and are not hashed again. Threads other than the
        ledger's may call this once the key was read (`secret`).
        """
        marked = canary_mask(canary, len(ids))
        ids = _strings(ids, "record ids")
        if ids.null_count:
            msg = counted(ids.null_count, "record id is null", "record ids are null")
            raise InputError(msg, "every record needs an id of its own")
        for recent in tuple(self._recent):
            if recent.is_of(ids, marked):
                return recent
        if marked.any():
            hashes = np.empty((len(ids), WIDTH), np.uint8)
            for kind, chosen in (("rec", ~marked), ("canary", marked)):
                hashes[chosen] = self._hash(kind, ids.filter(to_arrow(chosen)))
        else:
            hashes = self._hash("rec", ids)
        hashes.setflags(write=False)  # several threads read them
        records = RecordIds(ids, marked.copy(), hashes)
        self._recent.append(records)
        return records

    def subjects(self, ids: pa.Array | None, canary: Mask | None = None) -> Bytes:
        """Hash subject ids, shape (records, 32). Canary rows get zeros, because they belong to no one."""
        hint = 'name the subject column, or declare unit = "record"'
        if ids is None:
            raise InputError("a scope per subject needs the subject of every record", hint)
        ids = _strings(ids, "subject ids")
        canary = np.zeros(len(ids), np.bool_) if canary is None else canary
        if len(ids) != len(canary):
            msg = f"{len(canary)} records and {len(ids)} subjects: one subject per record"
            raise InputError(msg, "pass arrays of the same length")
        person_ids = ids.filter(to_arrow(~canary)) if canary.any() else ids
        if person_ids.null_count:
            raise InputError(counted(person_ids.null_count, "record has no subject", "records have no subject"), hint)
        if not canary.any():
            return self._hash("sub", person_ids)
        hashes = np.zeros((len(ids), WIDTH), np.uint8)
        hashes[~canary] = self._hash("sub", person_ids)
        return hashes

    def sink(self, place: str) -> str:
        """Hash the place of a published table, 64 hex digits."""
        return self._hash("canary", to_arrow([f"dptext/ledger/sink/{place}"])).tobytes().hex()

    def _hash(self, kind: str, ids: pa.Array) -> Bytes:
        return matrix(pa.array(_kernel.hash_ids(self.secret, kind, ids)), "hashed ids")


def canary_mask(canary: Mask | None, size: int) -> Mask:
    if canary is None:
        return np.zeros(size, np.bool_)
    marked = np.asarray(canary, np.bool_)
    if marked.shape != (size,):
        msg = f"{size} records and {len(marked)} canary marks: one per record"
        raise InputError(msg, "pass `canary` with one boolean per record")
    return marked


def resolve_id_key(reference: str) -> _kernel.Secret:
    """Read an id key anew, because a ledger and its key may be made again at the same place."""
    secret = _kernel.Secret.resolve(reference, reread=True)
    if secret.published:
        raise KeyReferenceError("this id key is printed in documents", "run `dptext key new PATH` and name that file")
    return secret


def ensure_key_file(path: Path) -> None:
    """Make the id key of a new ledger, readable only by its owner. If two processes do so, both use the first key."""
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    _kernel.Secret().write(str(draft))
    try:
        # A link fails where the file exists; a rename would replace the key of the faster process.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def check_value(secret: _kernel.Secret, ledger_id: str) -> str:
    probe = to_arrow([f"dptext/ledger/check/{ledger_id}"])
    return matrix(pa.array(_kernel.hash_ids(secret, "canary", probe)), "check values").tobytes().hex()


def _strings(ids: pa.Array | pa.ChunkedArray, what: str) -> pa.Array:
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if not (pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type) or pa.types.is_string_view(ids.type)):
        msg = f"{what} are canonical strings, got {arrow_kind(ids.type)}"
        raise InputError(msg, "pass them through dptext_etl.keys.canonical_ids")
    return ids


class BatchIds(NamedTuple):
    """The hashed ids of a batch, shape (records, 32) and (records,).

    `wanted` are the record ids as ids to look for, and `unit_order` brings the records of one unit together.
    """

    records: Bytes
    units: Bytes
    canary: Mask
    record_ids: HashedIds
    wanted: WantedIds
    unit_ids: HashedIds
    unit_order: Index

    @property
    def size(self) -> int:
        return len(self.records)


class SealedRows(NamedTuple):
    """Encoded rows of a batch in one column: facts of the event, and blobs."""

    facts: Mapping[str, Any]
    blobs: Mapping[str, Blob]


class ColumnCharge(NamedTuple):
    """The charge of a batch in one column: identities, positions, and amounts, shape (records, 32) and (records,).

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
        """Refuse a batch other than the prepared one; arrays must be the same objects."""
        same = self.ids is ids and self.subjects is subjects and self.unit == unit
        same &= len(charges) == len(self.charges) and all(map(operator.is_, charges, self.charges))
        if not (same and np.array_equal(canary_mask(canary, len(ids)), self.batch.canary)):
            msg = "the prepared batch is not the batch that is to be reserved"
            raise InputError(msg, "call `make_ready` with the arrays that you pass to `reserve`")


def hash_batch(
    id_key: IdKey, unit: Unit, ids: pa.Array, subjects: pa.Array | None, canary: Mask | None, *, own: bool = False
) -> BatchIds:
    """Hash the ids of a batch; with `own`, a record without a subject is its own unit."""
    marked = canary_mask(canary, len(ids))
    records = id_key.records(ids, marked)
    wanted = records.distinct
    if unit == "record":
        units, unit_ids, unit_order = records.as_units
    else:
        units = hash_subjects(id_key, records, subjects, marked, own=own)
        unit_ids = hashed_ids(units)
        unit_order = unit_ids.order()
    return BatchIds(records.hashes, units, marked, records.ids, wanted, unit_ids, unit_order)


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
    """Hash the subjects of records; with `own`, a record without one is its own unit."""
    without_subject = ~canary & to_numpy(subjects.is_null()) if own and subjects is not None else np.zeros_like(canary)
    units = id_key.subjects(subjects, canary | without_subject)
    return np.where(without_subject[:, None], records.hashes, units) if without_subject.any() else units


def read_charge(charge: Charge, size: int) -> ColumnCharge:
    idem_keys = matrix(charge.idem_keys, "idem keys")
    if len(idem_keys) != size:
        msg = f"{size} records and {len(idem_keys)} idem keys: one per record"
        raise InputError(msg, "pass one idem key per record")
    spends = {name: whole_numbers(charge.spends.get(name, INFINITE), size, name) for name in ADDITIVE}
    n_worst = whole_numbers(charge.n_worst, size, "n_worst")
    if size and n_worst.max() >= 1 << 32:
        raise InputError("n_worst must be below 2^32", "lower n_max")
    return ColumnCharge(charge.ref, idem_keys, hashed_ids(idem_keys), n_worst, spends)


def whole_numbers(values: npt.ArrayLike | pa.Array, size: int, name: str) -> I64:
    array: npt.NDArray[Any] = np.asarray(to_numpy(values) if isinstance(values, pa.Array) else values)
    if array.dtype.kind == "f":
        finite = np.where(array >= INFINITE, 0, array)
        if not (finite == np.floor(finite)).all():
            raise InputError(f"{name} must be whole millionths", "round up with dptext_etl.guarantee.micro")
        array = np.where(array >= INFINITE, INFINITE, finite.astype(np.int64))
    elif array.dtype.kind not in "iu" and not all(type(value) is int for value in array.flat):
        raise InputError(f"{name} must be whole numbers, got {array.dtype}", "round up with dptext_etl.guarantee.micro")
    elif array.dtype.kind not in "iu" or array.dtype == np.uint64:  # whole numbers that may be beyond 63 bits
        array = np.clip(array, 0 if array.dtype.kind == "u" else -1, INFINITE)  # -1 is refused below
    amounts = array.astype(np.int64, copy=False)
    if not array.ndim:
        amounts = np.broadcast_to(amounts, (size,))
    if amounts.shape != (size,):
        msg = f"{size} records and {len(amounts)} values of {name}: one per record"
        raise InputError(msg, "pass arrays of the same length")
    if size and amounts.min() < 0:
        raise InputError(f"{name} must not be negative", "pass amounts from 0")
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
