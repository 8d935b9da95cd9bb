"""Publish other ids than the records' own, or none, and keep the records' own ids inside, part by part.

A file in staging lists the canonical ids of the rows of a published part, in their order. Its name holds the hash of
the part, that of the ids, and a seal over both under the id key of the ledger (docs/spec/stream.md#id-lists). Two
parts of equal bytes have a list each, and either fits either; lists of earlier versions go. A null stands for a record
that was forgotten in another table, and still stands in this one.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import polars as pl
import pyarrow as pa

from dptext_etl import _kernel, keys
from dptext_etl.artifacts import canon
from dptext_etl.errors import InputError, counted, seam
from dptext_etl.files import sha256
from dptext_etl.ledger import Ledger
from dptext_etl.policy import LedgerSpec, Policy
from dptext_etl.storage import Storage

_LABEL = b"dptext/published-id/v1\0"
_LIST_LABEL = b"dptext/id-list/v1\0"
_DIGITS = 32
_AGAIN = (
    "they are in the staging folder of this release and partition, inside the boundary: is it that folder? A run of "
    "the same policy with incremental = false writes them again, at no cost"
)


@dataclass(frozen=True)
class HiddenIds:
    """How a release publishes ids in the place of the records' own."""

    mode: Literal["drop", "keyed"]  # "drop" publishes none, "keyed" a keyed hash
    column: str  # the column of ids
    key: str  # reference to the secret
    dataset: str
    release: str
    ledger: LedgerSpec  # the ledger whose id key seals lists

    @classmethod
    def of(cls, policy: Policy) -> HiddenIds | None:
        if policy.ids == "keep":
            return None
        return cls(policy.ids, policy.id, policy.key, policy.dataset, policy.release, policy.ledger)

    def schema(self, schema: pl.Schema) -> pl.Schema:
        if self.mode == "keyed":
            return pl.Schema({**schema, self.column: pl.String()})
        return pl.Schema({name: dtype for name, dtype in schema.items() if name != self.column})

    def shown(self, frame: pl.DataFrame) -> pl.DataFrame:
        if self.mode == "drop":
            return frame.drop(self.column)
        return frame.with_columns(self._hashed(frame).bin.encode("hex").alias(self.column))

    def arranged(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return rows in the order of the keyed hashes of their ids; this order says nothing of the source."""
        return frame[self._hashed(frame).arg_sort()]

    def _hashed(self, frame: pl.DataFrame) -> pl.Series:
        secret = keys.resolve(self.key).derive("seal", _LABEL + canon([self.dataset, self.release]))
        ids = keys.canonical_series(frame[self.column])
        hashed = pa.array(_kernel.hash_ids(_kernel.Secret.from_bytes(secret), "rec", ids.to_arrow()))
        return pl.Series(self.column, hashed).cast(pl.Binary)

    def keep(self, staging: Storage, digest: str, frame: pl.DataFrame) -> str:
        """Keep the records' own ids of a part inside, and return the name of the list."""
        ids = keys.canonical_series(frame[self.column])
        return _write(staging, self.ledger, digest[:_DIGITS], ids, action="keeping the ids of a part")


def _write(staging: Storage, spec: LedgerSpec, part: str, ids: pl.Series, *, action: str) -> str:
    whole = _hash(ids)
    with Ledger.open(spec.url, spec.id_key, create=False, read_only=True) as ledger:
        name = f"ids-{part}-{whole}-{_seal(ledger, part, whole)}.ids"
    staging.write(name, ids.alias("id").to_frame().write_parquet, action=action)
    return name


def _hash(ids: pl.Series) -> str:
    return hashlib.sha256(canon(ids.to_list())).hexdigest()[:_DIGITS]


def _seal(ledger: Ledger, part: str, whole: str) -> str:
    return ledger.seal(_LIST_LABEL + canon([part, whole]))[:_DIGITS]


def _lists(staging: Storage, spec: LedgerSpec) -> dict[str, list[str]]:
    """Return the names of all sealed lists, by the hash of their parts as names hold it."""
    found, names = dict[str, list[str]](), staging.glob("ids-*-*-*.ids")
    if names:
        with Ledger.open(spec.url, spec.id_key, create=False, read_only=True) as ledger:
            for name in names:
                _, part, whole, *seal = name.removesuffix(".ids").split("-")
                if hmac.compare_digest("-".join(seal), _seal(ledger, part, whole)):
                    found.setdefault(part, []).append(name)
    return found


def lists_of(staging: Storage, spec: LedgerSpec, digests: Iterable[str]) -> list[str]:
    """Return the names of the lists of published parts, given by their hashes, in row order."""
    parts, every = [digest[:_DIGITS] for digest in digests], _lists(staging, spec)
    found = {part: every.get(part, []) for part in parts}
    for part, count in Counter(parts).items():
        if len(found[part]) > count:  # of a run that was killed: another list may name other people
            raise InputError("staging holds more lists of ids than parts of equal bytes are published", _AGAIN)
    return [_next(found[part]) for part in parts]


def _next(lists: list[str]) -> str:
    if not lists:
        raise InputError("the records' own ids of a published part are not in staging", _AGAIN)
    return lists.pop(0)


def of_parts(staging: Storage, spec: LedgerSpec, digests: Iterable[str]) -> list[pl.Series]:
    """Return the records' own ids of published parts, given by their hashes, in row order; null where forgotten."""
    return [read(staging, name) for name in lists_of(staging, spec, digests)]


def read(staging: Storage, name: str) -> pl.Series:
    """Read a list, and refuse one that holds other ids than its name says."""
    with seam("reading the ids of a published part", InputError, _AGAIN):
        ids = pl.read_parquet(staging.local_path(name, fresh=True))["id"]
        if _hash(ids) != name.split("-")[2]:
            raise InputError("a list of the ids of a published part has changed since it was written", _AGAIN)
        return ids


def finder(staging: Storage, spec: LedgerSpec) -> Callable[[Path], pl.Series]:
    """Return what finds the records' own ids of published files, each of which is asked for once."""
    lists = cache(lambda: _lists(staging, spec))

    def find(path: Path) -> pl.Series:
        ids = read(staging, _next(lists().get(sha256(path)[:_DIGITS], [])))
        if ids.null_count():
            whose = counted(ids.null_count(), "row of a published part is", "rows of a published part are")
            msg = f"{whose} of people who were forgotten in another table"
            raise InputError(msg, "`dptext forget` takes them out of this one: name the same people")
        return ids

    return find


def keep_only(staging: Storage, digests: Iterable[str], written: Collection[str]) -> None:
    """Remove the lists of all other parts; lists just written come before older ones of parts of equal bytes."""
    left = Counter(digest[:_DIGITS] for digest in digests)
    for name in sorted(staging.glob("ids-*.ids"), key=lambda name: name not in written):
        digest = name.split("-")[1]
        left[digest] -= 1
        if left[digest] < 0:
            staging.delete(name)


def blank(staging: Storage, spec: LedgerSpec, is_forgotten: Callable[[pl.Series], pl.Series]) -> int:
    """Take forgotten ids out of the lists of other releases, and return how many lists held one; rows stay in order.

    Lists that no run sealed go: no one reads them.
    """
    sealed, changed = {name for names in _lists(staging, spec).values() for name in names}, 0
    staging.delete(*(name for name in staging.glob("ids-*.ids") if name not in sealed))
    for name in sorted(sealed):
        ids = read(staging, name)
        known = ids.drop_nulls()
        forgotten = set(known.filter(is_forgotten(known)))
        if forgotten:
            left = pl.Series("id", [None if one in forgotten else one for one in ids], dtype=pl.String)
            _write(staging, spec, name.split("-")[1], left, action="taking records out of staging")
            staging.delete(name)
            changed += 1
    return changed
