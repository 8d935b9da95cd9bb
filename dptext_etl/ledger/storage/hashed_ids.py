"""Hash ids under the id key of a ledger, look for the hashes, and add up values by id.

The ledger stores keyed hashes of record and subject ids, never the ids (docs/spec/stream.md#ledger-ids). Segments keep
all 32 bytes of an HMAC; lookups use the first 16, as sortable 128-bit numbers. Without the id key no one can aim at a
collision. Among n ids a collision by chance has probability below n^2 / 2^129, which is 1e-21 for 10^9 ids.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import arrow_kind, to_arrow, to_numpy
from dptext_etl.errors import InputError, KeyReferenceError, LedgerError, counted
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import I64, Mask, Unit

U64 = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Index = npt.NDArray[np.intp]
Values = I64  # whole numbers per id, shape (values, ids)
WIDTH = 32
SATURATED = 1 << 62
"""A sum that reaches this stays at it, whatever is given back later: none wraps, and none is less than it should be."""
_LOW, _BOUND = (1 << 32) - 1, SATURATED >> 32
RECENT = 4
"""Batches whose hashes are kept: as many as are under way at a time, between their reservation and their commit."""
LOSS = "without this key no balance can continue: restore it from a copy, or revoke the releases and start a new ledger"


class HashedIds(NamedTuple):
    """Keyed hashes as pairs of 64-bit numbers (big-endian, the first 8 bytes and the next 8), which sort like bytes."""

    hi: U64
    lo: U64

    @property
    def size(self) -> int:
        return len(self.hi)

    def take(self, where: Index | Mask | slice) -> HashedIds:
        return HashedIds(self.hi[where], self.lo[where])

    def order(self) -> Index:
        """Return the places in ascending order of id; equal ids keep the order of their rows."""
        places = np.argsort(self.hi)
        hi = self.hi[places]
        if not (hi[1:] == hi[:-1]).any():
            return places
        places = np.argsort(self.hi, kind="stable")  # which is less than half as fast
        lo = self.lo[places]
        if ((hi[1:] == hi[:-1]) & (lo[1:] != lo[:-1])).any():  # two ids share their first half
            places = np.lexsort((self.lo, self.hi))
        return places

    def starts(self) -> Index:
        """Return where each distinct id begins; the ids must be sorted."""
        if not self.size:
            return np.zeros(0, np.intp)
        changes = (self.hi[1:] != self.hi[:-1]) | (self.lo[1:] != self.lo[:-1])
        return np.flatnonzero(np.concatenate([[True], changes]))

    def equal(self, other: HashedIds) -> Mask:
        """Return where two lists of one length hold the same id."""
        same: Mask = (self.hi == other.hi) & (self.lo == other.lo)
        return same

    def are_real(self) -> Mask:
        """Return which ids are not zero, as the units of canary rows are."""
        real: Mask = (self.hi != 0) | (self.lo != 0)
        return real

    def as_bytes(self) -> Bytes:
        """Return the ids as bytes, shape (ids, 16)."""
        return np.stack([self.hi, self.lo], axis=1).astype(">u8").view(np.uint8)


def hashed_ids(rows: Bytes) -> HashedIds:
    """Read hashed ids from bytes, shape (ids, 16 or more)."""
    pairs = np.ascontiguousarray(rows[:, :16]).view(">u8")
    return HashedIds(pairs[:, 0].astype(np.uint64), pairs[:, 1].astype(np.uint64))


def concatenated(ids: Iterable[HashedIds]) -> HashedIds:
    lists = [HashedIds(np.zeros(0, np.uint64), np.zeros(0, np.uint64)), *ids]
    return HashedIds(np.concatenate([item.hi for item in lists]), np.concatenate([item.lo for item in lists]))


def matrix(array: pa.Array | pa.ChunkedArray, what: str) -> Bytes:
    """View fixed-size binaries as bytes, shape (rows, 32), without a copy."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.type != pa.binary(WIDTH):
        msg = f"{what} are binaries of {WIDTH} bytes, got {arrow_kind(array.type)}"
        raise InputError(msg, "pass SHA-256 digests as fixed-size binary (32)")
    if array.null_count:
        raise InputError(f"{array.null_count:,} {what} are null", "pass one value per record")
    if not len(array):
        return np.zeros((0, WIDTH), np.uint8)
    return np.frombuffer(array.buffers()[1], np.uint8).reshape(-1, WIDTH)[array.offset : array.offset + len(array)]


def binaries(rows: Bytes, mask: Mask | None = None) -> pa.Array:
    """Wrap bytes as fixed-size binaries, without a copy."""
    data = pa.py_buffer(np.ascontiguousarray(rows))
    valid = None if mask is None else to_arrow(mask).buffers()[1]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.shape[1]), len(rows), [valid, data])


class UnitSums(NamedTuple):
    """Distinct ids with their values."""

    ids: HashedIds
    values: Values


def fold(ids: HashedIds, values: Values) -> UnitSums:
    """Add up the values of entries with the same id, in the order in which each id came first."""
    wanted = WantedIds(ids)
    if not wanted.repeated:
        return UnitSums(ids, values)
    totals = np.zeros((len(values), len(wanted)), np.int64)
    add_at(totals, wanted.places_as_passed, values)
    return UnitSums(ids.take(np.unique(wanted.places_as_passed, return_index=True)[1]), totals)


def add_at(totals: Values, at: Index, amounts: Values) -> None:
    """Add amounts, shape (values, rows), to totals at places, which may repeat; sums saturate, and never wrap."""
    most = int(totals.max(initial=0)) + len(at) * max(int(amounts.max(initial=0)), -int(amounts.min(initial=0)))
    for total, amount in zip(totals, amounts, strict=True):
        if most < SATURATED:
            np.add.at(total, at, amount)
            continue
        full = total >= SATURATED
        full[at[amount >= SATURATED]] = True
        high, low = total >> 32, total & _LOW  # sums of halves do not overflow
        np.add.at(high, at, amount >> 32)
        np.add.at(low, at, amount & _LOW)
        high += low >> 32
        exact = (np.clip(high, -_BOUND, _BOUND) << 32) + (low & _LOW)
        total[:] = np.where(full | (high >= _BOUND), SATURATED, np.where(high < -_BOUND, -SATURATED, exact))


def plus(left: Values, right: Values) -> Values:
    """Add two sums of the same shape; they saturate."""
    total = np.maximum(left, -SATURATED) + np.maximum(right, -SATURATED)
    full = (left >= SATURATED) | (right >= SATURATED) | (total >= SATURATED)
    return np.where(full, SATURATED, np.maximum(total, -SATURATED))


class WantedIds:
    """Distinct ids that are looked for among many others; each has a place, in the order in which it came first."""

    def __init__(self, ids: HashedIds) -> None:
        self._index, given = _kernel.IdIndex.of(*map(to_arrow, ids))
        self.places_as_passed: Index = to_numpy(pa.array(given))  # of the ids that these were made of, shape (ids,)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def repeated(self) -> int:
        """How many of the ids that these were made of came before."""
        return len(self.places_as_passed) - len(self)

    def find(self, ids: HashedIds) -> tuple[Index, Index]:
        """Return the rows of other ids that are wanted, in ascending order, and their places among these."""
        rows, places = self._index.find(*map(to_arrow, ids))
        return to_numpy(pa.array(rows)), to_numpy(pa.array(places))

    def places(self, ids: HashedIds) -> Index | None:
        """Return the places of other ids among these, shape (ids,), or None if one of them is not wanted."""
        if ids.size and not len(self.find(ids.take(slice(0, 1)))[0]):
            return None
        rows, places = self.find(ids)
        return places if len(rows) == ids.size else None


class RecordIds:
    """Hashed record ids of a batch, shape (records, 32), and the marks of its canary rows, shape (records,)."""

    def __init__(self, ids: pa.Array, canary: Mask, hashes: Bytes) -> None:
        self.source, self.canary = ids, canary
        self.hashes = hashes
        self.ids = hashed_ids(hashes)

    @cached_property
    def distinct(self) -> WantedIds:
        """The records as ids to look for; repeated ids are refused (docs/spec/stream.md#record-id)."""
        wanted = WantedIds(self.ids)
        if wanted.repeated:
            msg = counted(wanted.repeated, "record id of the batch is", "record ids of the batch are") + " repeated"
            raise InputError(msg, "every record needs an id of its own")
        return wanted


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
        marked = np.zeros(len(ids), np.bool_) if canary is None else np.asarray(canary, np.bool_)
        if marked.shape != (len(ids),):
            msg = f"{len(ids)} records and {len(marked)} canary marks: one per record"
            raise InputError(msg, "pass `canary` with one boolean per record")
        ids = _strings(ids, "record ids")
        if ids.null_count:
            msg = counted(ids.null_count, "record id is null", "record ids are null")
            raise InputError(msg, "every record needs an id of its own")
        for recent in tuple(self._recent):
            if recent.source.equals(ids) and np.array_equal(recent.canary, marked):
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

    def units(self, unit: Unit, records: RecordIds, subjects: pa.Array | None, *, own: bool) -> Bytes:
        """Return who has the budget of each record; with `own`, a record without a subject is its own unit."""
        canary = records.canary
        if unit == "record":
            return np.where(canary[:, None], np.uint8(0), records.hashes) if canary.any() else records.hashes
        without_subject = np.zeros_like(canary)
        if own and subjects is not None:
            without_subject = ~canary & to_numpy(subjects.is_null())
        units = self.subjects(subjects, canary | without_subject)
        return np.where(without_subject[:, None], records.hashes, units) if without_subject.any() else units

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
