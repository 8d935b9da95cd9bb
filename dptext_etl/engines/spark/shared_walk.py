"""Walk over the ledger's index once for all shards of a run, by range of hashed ids (`ledger.shared_walk`).

One job reads the ids of the frame. Those of one range meet in a task, which looks them up; what it finds of one shard
meets in another, which writes it to a file in staging. The task that reserves the shard reads this file.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl import keys
from dptext_etl.buckets import ByteRows
from dptext_etl.checks.comparison import range_bits
from dptext_etl.engines.engine import Work
from dptext_etl.engines.spark.exchange import (
    SCHEMA,
    Buckets,
    Pack,
    batch_of,
    collected,
    computed,
    exchanged,
    grouped,
    packed,
    tasks_for,
)
from dptext_etl.engines.spark.frames import named, numbered, numbers
from dptext_etl.engines.spark.tasks import policy_json
from dptext_etl.errors import DPTextError, InputError, bare, seam
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.shared_walk import SharedIdsError, WalkTerms
from dptext_etl.ledger.storage.part_cache import MissingPartError
from dptext_etl.ledger.storage.store import wait_for_ledger
from dptext_etl.policy import Policy
from dptext_etl.runner.seals import opened_bytes, sealed_bytes, staging_key
from dptext_etl.runner.shard.charging import subjects_of
from dptext_etl.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("dptext_etl.runner")

ASKED, ANSWERED, USELESS = "asked", "answered", "useless"
"""Kinds of packs: cells by range, answers by shard, and why a walk is of no use."""
_FOLDER = "walk"
_ROWS = 1 << 19
"""Rows of which a task collects the cells before it packs them."""
_ATTEMPTS = 2
"""Writers that merge runs while a walk goes through them make it useless."""


@dataclass(frozen=True)
class SharedWalk:
    """What tasks need to know of the walk of a run."""

    policy: str  # the run's policy as JSON, without storage options
    terms: WalkTerms
    files: Storage
    bits: int  # by how many leading bits the index is cut into ranges
    shards: range

    def open(self) -> Ledger:
        spec = Policy.parse(json.loads(self.policy)).ledger
        return wait_for_ledger(partial(Ledger.open, spec.url, spec.id_key, create=False))

    @property
    def key(self) -> bytes:
        """The key that seals the files: another task relies on them for what people have used."""
        return _key(self.policy, self.files)

    def follow(self, ledger: Ledger, number: int) -> None:
        """Take up what was found of the shard that some rows are of, unless it is not there."""
        shard = self.shards[(number - self.shards.start) % len(self.shards)]

        def answers() -> ByteRows | None:
            name = f"of-{shard}"
            found = opened_bytes(self.key, name, self.files.read(name))
            return None if found is None else np.frombuffer(found, np.uint8).reshape(-1, self.terms.width)

        ledger.follow(self.terms, shard, answers, Notes(self.files, self.key))


@lru_cache(maxsize=4)
def _key(policy: str, files: Storage) -> bytes:
    made = Policy.parse(json.loads(policy))
    return staging_key(keys.resolve(made.key), made.dataset, files)


@dataclass(frozen=True)
class Notes:
    """Notes on runs of the index, as files in staging. Without a note, a run is looked up."""

    files: Storage
    key: bytes = field(repr=False)

    def write(self, run: int, content: bytes) -> None:
        name = f"run-{run}"
        with suppress(InputError):
            self.files.put(name, sealed_bytes(self.key, name, content))

    def read(self, run: int) -> bytes | None:
        name = f"run-{run}"
        with suppress(InputError):
            return opened_bytes(self.key, name, self.files.read(name))
        return None


@contextmanager
def shared_walk(work: Work[DataFrame]) -> Iterator[SharedWalk | None]:
    """Make a walk before shards are looked at or reserved, if this takes less than to look them up one by one.

    Its files go with the block, and with the next walk those of runs that were killed.
    """
    staging, policy = work.attempt.layout.staging.absolute(), work.attempt.policy
    files = staging.child(_FOLDER).child(work.attempt.job)
    try:
        yield _walked(work, policy, files)
    finally:
        with suppress(OSError, InputError):
            staging.delete_folder(_FOLDER)


def _walked(work: Work[DataFrame], policy: Policy, files: Storage) -> SharedWalk | None:
    spec, refs, shards = policy.ledger, list(work.refs.values()), numbers(work.source, policy)
    for _ in range(_ATTEMPTS):
        with Ledger.open(spec.url, spec.id_key, create=False) as ledger:
            terms = ledger.plan_walk(Scope.of(policy), refs, work.source.wanted, policy.shard_rows)
        if terms is None:
            return None
        if policy.cap is None:  # rows of one person are in several shards
            terms = terms._replace(runs=terms.runs[: len(terms.refs)], components=0)
        files.prepare()
        bits = range_bits(max(terms.entries, work.source.wanted))
        walk = SharedWalk(policy_json(policy), terms, files, bits, shards)
        with seam("walking over the ledger's index on Spark", DPTextError, "nothing was charged; run it again"):
            packs = collected(_packs(work, walk))
        useless = {pack.name for pack in packs if pack.kind == USELESS}
        if not useless:
            return walk
        log.info("the ledger is looked up shard by shard: %s", ", ".join(sorted(useless)))
        if useless != {MissingPartError.__name__}:
            return None
    return None


def _packs(work: Work[DataFrame], walk: SharedWalk) -> DataFrame:
    policy, tasks = work.attempt.policy, tasks_for(work.source.wanted)
    rows = numbered(work.source.rows, work.plans, walk.shards, policy)
    ids = [policy.id] if policy.unit == "record" or policy.subject is None else [policy.id, policy.subject]
    asked = rows.select(*map(named, ids), *rows.columns[-2:]).mapInArrow(partial(_asked, walk, tuple(ids)), SCHEMA)
    answered = exchanged(asked, tasks, **{ASKED: partial(_answered, walk)})
    return exchanged(answered, tasks, **{ANSWERED: partial(_written, walk)})


@bare
def _asked(walk: SharedWalk, names: tuple[str, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack the hashed ids of rows by range."""
    yield from map(batch_of, computed("hashing ids on an executor", _hashed(walk, names, _gathered(batches))))


def _hashed(walk: SharedWalk, names: tuple[str, ...], tables: Iterable[pa.Table]) -> Iterator[Pack]:
    with ExitStack() as stack:
        ledger: Ledger | None = None
        for table in tables:
            ledger = stack.enter_context(walk.open()) if ledger is None else ledger
            yield from _cells(walk, ledger, names, table)


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    held, rows = list[pa.RecordBatch](), 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if rows:
        yield pa.Table.from_batches(held)


def _cells(walk: SharedWalk, ledger: Ledger, names: tuple[str, ...], table: pa.Table) -> Iterator[Pack]:
    policy = Policy.parse(json.loads(walk.policy))
    frame = pl.DataFrame(table)
    canary, shards = frame.to_series(-2).to_numpy(), frame.to_series(-1).to_numpy()
    frame = frame[:, :-2].rename(dict(zip(frame.columns, names, strict=False)))
    ids, own = canonical_ids(frame[policy.id].to_arrow()), policy.on_null_subject == "own"
    asked = ledger.walked_cells(walk.terms, ids, subjects_of(frame, policy), canary, shards, own=own)
    for what, cells in asked:
        yield from packed(what, cells, ASKED, walk.bits)


def _answered(walk: SharedWalk, what: str, buckets: Buckets) -> Iterator[Pack]:
    """Look up range by range, and pack what is found by shard."""
    yield from computed("looking up ids on an executor", _found(walk, what, buckets))


def _found(walk: SharedWalk, what: str, buckets: Buckets) -> Iterator[Pack]:
    try:
        with walk.open() as ledger:
            for _, cells in buckets:
                found = wait_for_ledger(partial(ledger.range_answers, walk.terms, what, cells))
                yield from grouped("", *found, ANSWERED)
    except (SharedIdsError, MissingPartError) as useless:
        yield Pack(USELESS, type(useless).__name__, -1, 0, b"")


def _written(walk: SharedWalk, _: str, buckets: Buckets) -> Iterator[Pack]:
    """Write what was found of shards to files."""

    def write(shard: int, cells: ByteRows) -> tuple[Pack, ...]:
        with walk.files.with_own_copies() as files:
            name = f"of-{shard}"
            files.write(name, sealed_bytes(walk.key, name, cells.tobytes()))
        return ()

    packs = (pack for bucket in buckets for pack in write(*bucket))
    yield from computed("writing what was found of shards", packs)
