"""Publish other ids than the records' own, or none, and keep the records' own ids inside, part by part.

A file in staging lists the canonical ids of the rows of a published part, in their order. It is found by the hash of
the part. Two parts of equal bytes have a list each, and either fits either; lists of earlier versions go. A null stands
for a record that was forgotten in another table, and still stands in this one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl
import pyarrow as pa

from dptext_etl import _kernel, keys
from dptext_etl.artifacts import canon
from dptext_etl.errors import InputError, counted, seam
from dptext_etl.files import sha256
from dptext_etl.policy import Policy
from dptext_etl.storage import Storage

_LABEL = b"dptext/published-id/v1\0"
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

    @classmethod
    def of(cls, policy: Policy) -> HiddenIds | None:
        if policy.ids == "keep":
            return None
        return cls(policy.ids, policy.id, policy.key, policy.dataset, policy.release)

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
        mark = hashlib.sha256("\0".join(ids).encode()).hexdigest()[:16]
        name = f"ids-{digest[:32]}-{mark}.ids"
        staging.write(name, ids.alias("id").to_frame().write_parquet, action="keeping the ids of a part")
        return name


def lists_of(staging: Storage, digests: Iterable[str]) -> list[str]:
    """Return the names of the lists of published parts, given by their hashes, in row order."""
    parts = list(digests)
    found = {digest: _lists(staging, digest) for digest in parts}
    for digest, count in Counter(parts).items():
        if len(found[digest]) > count:  # of a run that was killed: another list may name other people
            raise InputError("staging holds more lists of ids than parts of equal bytes are published", _AGAIN)
    return [_next(found[digest]) for digest in parts]


def _lists(staging: Storage, digest: str) -> list[str]:
    return staging.glob(f"ids-{digest[:32]}-*.ids")


def _next(lists: list[str]) -> str:
    if not lists:
        raise InputError("the records' own ids of a published part are not in staging", _AGAIN)
    return lists.pop(0)


def of_parts(staging: Storage, digests: Iterable[str]) -> list[pl.Series]:
    """Return the records' own ids of published parts, given by their hashes, in row order; null where forgotten."""
    return [_read(staging, name) for name in lists_of(staging, digests)]


def _read(staging: Storage, name: str) -> pl.Series:
    with seam("reading the ids of a published part", InputError, _AGAIN):
        return pl.read_parquet(staging.local_path(name, fresh=True))["id"]


def finder(staging: Storage) -> Callable[[Path], pl.Series]:
    """Return what finds the records' own ids of published files, each of which is asked for once."""
    lists = dict[str, list[str]]()

    def find(path: Path) -> pl.Series:
        digest = sha256(path)
        ids = _read(staging, _next(lists.setdefault(digest, _lists(staging, digest))))
        if ids.null_count():
            whose = counted(ids.null_count(), "row of a published part is", "rows of a published part are")
            msg = f"{whose} of people who were forgotten in another table"
            raise InputError(msg, "`dptext forget` takes them out of this one: name the same people")
        return ids

    return find


def keep_only(staging: Storage, digests: Iterable[str], written: Collection[str]) -> None:
    """Remove the lists of all other parts; lists just written come before older ones of parts of equal bytes."""
    left = Counter(digest[:32] for digest in digests)
    for name in sorted(staging.glob("ids-*.ids"), key=lambda name: name not in written):
        digest = name.split("-")[1]
        left[digest] -= 1
        if left[digest] < 0:
            staging.delete(name)


def blank(staging: Storage, is_forgotten: Callable[[pl.Series], pl.Series]) -> int:
    """Take forgotten ids out of the lists of other releases, and return how many lists held one; rows stay in order."""
    changed = 0
    for list_name in staging.glob("ids-*.ids"):
        with seam("taking records out of staging", InputError, "call this again: it goes on from here"):
            ids = pl.read_parquet(staging.local_path(list_name, fresh=True))["id"]
        known = ids.drop_nulls()
        forgotten = set(known.filter(is_forgotten(known)))
        if forgotten:
            left = pl.Series("id", [None if name in forgotten else name for name in ids], dtype=pl.String)
            staging.write(list_name, left.to_frame().write_parquet, action="taking records out of staging")
            changed += 1
    return changed
