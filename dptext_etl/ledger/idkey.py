"""Hash record and subject ids under the key of a ledger (docs/spec/stream.md#ledger-ids).

The ledger stores keyed hashes of ids, never the ids. Each ledger has its own id key and keeps it when noise keys
change. Under another key the same person would get another hash and an untouched balance. So a ledger stores a check
value of its key and refuses every other key.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from pathlib import Path

import numpy as np
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow
from dptext_etl.errors import InputError, KeyReferenceError, LedgerError
from dptext_etl.ledger.storage.keyed_ids import WIDTH, Bytes, Index, KeyedIds, keyed_ids, matrix
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.terms import Mask

RECENT = 4
"""Batches whose hashes are kept: as many as are under way at a time, between their reservation and their commit."""
LOSS = "without this key no balance can go on: restore it from a copy, or revoke the releases and start a new ledger"


class RecordIds:
    """Hashed record ids of a batch.

    Attributes:
        hashed: The hashes.
        keyed: The same as the index has them.
    """

    def __init__(self, ids: pa.Array, canary: Mask, hashed: Bytes) -> None:
        self._ids, self._canary = ids, canary
        self.hashed = hashed
        self.keyed = keyed_ids(hashed)
        self._order: Index | None = None
        self._units: tuple[Bytes, KeyedIds, Index] | None = None

    @property
    def size(self) -> int:
        """The number of records."""
        return len(self.hashed)

    def are(self, ids: pa.Array, canary: Mask) -> bool:
        """Whether these are the hashes of these ids."""
        return self._ids.equals(ids) and np.array_equal(self._canary, canary)

    def distinct_order(self) -> Index:
        """Return the places of records in ascending order of id (docs/spec/stream.md#record-id)."""
        if self._order is None:
            order = self.keyed.order()
            repeated = self.size - len(self.keyed.take(order).starts())
            if repeated:
                msg = f"{repeated} record ids of the batch are repeated"
                raise InputError(msg, "every record needs an id of its own")
            self._order = order
        return self._order

    def as_units(self) -> tuple[Bytes, KeyedIds, Index]:
        """Return the hashes of records that have a budget each, and their places in order; canary rows are no one's."""
        if not self._canary.any():
            return self.hashed, self.keyed, self.distinct_order()
        if self._units is None:
            units = np.where(self._canary[:, None], np.uint8(0), self.hashed)
            keyed = keyed_ids(units)
            self._units = units, keyed, keyed.order()
        return self._units


class IdKey:
    """Hash ids under the id key of one ledger; read the key when it is first needed."""

    def __init__(self, store: Store, reference: str | None, ledger_id: str) -> None:
        self._store = store
        self._reference = reference
        self._ledger_id = ledger_id
        self._secret: _kernel.Secret | None = None
        self._recent: deque[RecordIds] = deque(maxlen=RECENT)

    @property
    def secret(self) -> _kernel.Secret:
        """The key, after it was checked against the ledger."""
        if self._secret is None:
            self._secret = self._resolved()
        return self._secret

    def _resolved(self) -> _kernel.Secret:
        reference = self._reference
        if reference is None and self._store.key_file is not None and self._store.key_file.exists():
            reference = f"file:{self._store.key_file}"
        if reference is None:
            place = f" nor at {self._store.key_file}" if self._store.key_file else ""
            msg = f"the id key of the ledger {self._store.name} is neither given{place}"
            raise KeyReferenceError(msg, f"give ledger.id_key; {LOSS}")
        secret = resolve(reference)
        stored = self._store.row("select value from meta where name='id_check'")
        if stored is None or stored[0] != check(secret, self._ledger_id):
            raise LedgerError(f"this is not the id key of the ledger {self._store.name}", f"name the right key; {LOSS}")
        return secret

    def records(self, ids: pa.Array, canary: Mask) -> RecordIds:
        """Hash record ids. Canary rows are hashed apart, so no canary meets a real id.

        The same ids again, as a commit brings what was reserved, are not hashed again. Threads other than the ledger's
        may call this once the key was read (`secret`).
        """
        ids = _strings(ids, "record ids")
        if ids.null_count:
            raise InputError(f"{ids.null_count} record ids are null", "every record needs an id of its own")
        for recent in tuple(self._recent):
            if recent.are(ids, canary):
                return recent
        hashed = self._hashed("rec", ids) if not canary.any() else self._apart(ids, canary)
        hashed.setflags(write=False)
        found = RecordIds(ids, canary.copy(), hashed)
        self._recent.append(found)
        return found

    def _apart(self, ids: pa.Array, canary: Mask) -> Bytes:
        hashed = np.empty((len(ids), WIDTH), np.uint8)
        for kind, chosen in (("rec", ~canary), ("canary", canary)):
            hashed[chosen] = self._hashed(kind, ids.filter(to_arrow(chosen)))
        return hashed

    def subjects(self, ids: pa.Array | None, canary: Mask) -> Bytes:
        """Hash subject ids, shape (records, 32). Canary rows get zeros, because they belong to no one."""
        hint = 'name the subject column, or declare unit = "record"'
        if ids is None:
            raise InputError("a scope per subject needs the subject of every record", hint)
        ids = _strings(ids, "subject ids")
        if len(ids) != len(canary):
            raise InputError(f"{len(canary)} records and {len(ids)} subjects: one subject per record")
        chosen = ~canary
        known = ids if chosen.all() else ids.filter(to_arrow(chosen))
        if known.null_count:
            raise InputError(f"{known.null_count} records have no subject", hint)
        if chosen.all():
            return self._hashed("sub", known)
        hashed = np.zeros((len(ids), WIDTH), np.uint8)
        hashed[chosen] = self._hashed("sub", known)
        return hashed

    def _hashed(self, kind: str, ids: pa.Array) -> Bytes:
        return matrix(pa.array(_kernel.hash_ids(self.secret, kind, ids)), "hashed ids")


def resolve(reference: str) -> _kernel.Secret:
    """Read an id key anew, because a ledger and its key may be made again at the same place."""
    secret = _kernel.Secret.resolve(reference, reread=True)
    if secret.published:
        raise KeyReferenceError("this id key is printed in documents", "run `dptext key new PATH` and name that file")
    return secret


def ensure(path: Path) -> None:
    """Make the id key of a new ledger, readable by its owner alone. If two processes do so, both use the first key."""
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    _kernel.Secret().write(str(draft))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def check(secret: _kernel.Secret, ledger_id: str) -> str:
    """Return the check value of an id key, 64 hex digits."""
    probe = to_arrow([f"dptext/ledger/check/{ledger_id}"])
    return matrix(pa.array(_kernel.hash_ids(secret, "canary", probe)), "check values").tobytes().hex()


def _strings(ids: pa.Array | pa.ChunkedArray, what: str) -> pa.Array:
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if not (pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type) or pa.types.is_string_view(ids.type)):
        raise InputError(
            f"{what} are canonical strings, got {ids.type}", "pass them through dptext_etl.keys.canonical_ids"
        )
    return ids
