"""The id key: record and subject ids enter the ledger as keyed hashes only (docs/spec/stream.md#ledger-ids).

The key is the ledger's own and outlives every noise key. Under another key the same person would have another hash and
an untouched balance, so a ledger stores a check value and refuses any other key.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import numpy as np
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.errors import InputError, KeyReferenceError, LedgerError
from dptext_etl.ledger.storage.keyed_ids import WIDTH, Bytes, matrix
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.terms import Mask

LOSS = "without it balances cannot be continued: restore it from a copy, or revoke the releases and start a new ledger"


class IdKey:
    """The id key of one ledger, read when it is first needed.

    Args:
        store: The ledger's place.
        reference: "env:NAME" or "file:PATH"; None takes the file beside the ledger.
        ledger_id: What the check value is made from.
    """

    def __init__(self, store: Store, reference: str | None, ledger_id: str) -> None:
        self._store = store
        self._reference = reference
        self._ledger_id = ledger_id
        self._secret: _kernel.Secret | None = None

    @property
    def secret(self) -> _kernel.Secret:
        """The key, checked against the ledger.

        Raises:
            KeyReferenceError: It is missing, malformed, readable by others, or printed in documents.
            LedgerError: It is not the key of this ledger.
        """
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

    def records(self, ids: pa.Array, canary: Mask) -> Bytes:
        """Hash record ids, shape (records, 32); canary rows have hashes of their own kind.

        Raises:
            InputError: Ids that are no strings, or null.
        """
        ids = _strings(ids, "record ids")
        if ids.null_count:
            raise InputError(f"{ids.null_count} record ids are null", "every record needs an id of its own")
        if not canary.any():
            return self._hashed("rec", ids)
        hashed = np.empty((len(ids), WIDTH), np.uint8)
        for kind, chosen in (("rec", ~canary), ("canary", canary)):
            hashed[chosen] = self._hashed(kind, ids.filter(pa.array(chosen)))
        return hashed

    def subjects(self, ids: pa.Array | None, canary: Mask) -> Bytes:
        """Hash subject ids, shape (records, 32); zeros for canary rows, which belong to nobody.

        Raises:
            InputError: No subjects, or a null that is not a canary's.
        """
        hint = 'name the subject column, or declare unit = "record"'
        if ids is None:
            raise InputError("a scope per subject needs the subject of every record", hint)
        ids = _strings(ids, "subject ids")
        if len(ids) != len(canary):
            raise InputError(f"{len(canary)} records and {len(ids)} subjects: one subject per record")
        chosen = ~canary
        known = ids if chosen.all() else ids.filter(pa.array(chosen))
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
    """Return an id key, read anew: a ledger and its key may be made again under the names of earlier ones.

    Raises:
        KeyReferenceError: It is missing, malformed, readable by others, or printed in documents.
    """
    secret = _kernel.Secret.resolve(reference, reread=True)
    if secret.published:
        raise KeyReferenceError("this id key is printed in documents", "run `dptext key new PATH` and name that file")
    return secret


def ensure(path: Path) -> None:
    """Make the id key of a new ledger, readable by its owner alone; whoever comes second uses the first one's."""
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
    """Return the value by which a ledger recognises its id key."""
    probe = pa.array([f"dptext/ledger/check/{ledger_id}"])
    return matrix(pa.array(_kernel.hash_ids(secret, "canary", probe)), "check values").tobytes().hex()


def _strings(ids: pa.Array | pa.ChunkedArray, what: str) -> pa.Array:
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if not (pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type) or pa.types.is_string_view(ids.type)):
        raise InputError(
            f"{what} are canonical strings, got {ids.type}", "pass them through dptext_etl.keys.canonical_ids"
        )
    return ids
