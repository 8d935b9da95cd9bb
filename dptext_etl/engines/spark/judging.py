"""Judge a staged run on the executors: rows of one bucket meet in one task, and the driver gets counts.

A row of the exchange is a pack: cells of one kind, name, and bucket, or anything else for the driver. Digests of one
bucket and name meet in one task, so the counts of all tasks add up (`checks.comparison`).

Each task shows a staged shard to every gate, and compares its cells with the ledger. The states of the gates come back,
with digests that other tasks count.
"""

from __future__ import annotations

import json
import pickle
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl.checks import Verdict
from dptext_etl.checks.canaries import plans_as_dicts, plans_of
from dptext_etl.checks.comparison import ByteRows, Counted, Repeats, counted
from dptext_etl.checks.gate import (
    Candidate,
    Gate,
    batches,
    count,
    feed,
    feed_rewritten,
    merge,
    portable_state,
    staged_gates,
    values_of,
    verdicts_of,
)
from dptext_etl.device import drops_with_gpu, threads
from dptext_etl.engines.spark.tasks import (
    SCHEMA,
    Pack,
    TaskMessages,
    batches_of,
    collected,
    computed,
    facts_pack,
    policies,
    policy_json,
    watched,
)
from dptext_etl.engines.spark.worker_policy import worker_columns
from dptext_etl.errors import GateError, InputError, bare, seam
from dptext_etl.files import literal
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.storage.store import wait_for_ledger
from dptext_etl.parallel import map_in_order
from dptext_etl.runner.shard.staging import StagedRun, StagedShard, Staging
from dptext_etl.runner.source.examine import FEW
from dptext_etl.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


DIGESTS, COUNTS, SIZES, SINGLED_OUT = "digests", "counts", "sizes", "singled out"
"""Kinds of packs: digests to count, counts of them; hashes of 8 bytes, counts of the rare ones."""


def packed(name: str, rows: ByteRows, kind: str = DIGESTS) -> Iterator[Pack]:
    """Pack digests by their first byte."""
    order = np.argsort(rows[:, 0], kind="stable")
    ordered, buckets = rows[order], rows[order, 0]
    edges = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(rows)]
    for begin, end in pairwise(edges):
        if begin < end:
            yield Pack(kind, name, int(buckets[begin]), rows.shape[1], ordered[begin:end].tobytes())


def exchanged(frame: DataFrame) -> DataFrame:
    """Bring the packs of a bucket together in one task, which counts digests."""
    return frame.repartition("bucket").sortWithinPartitions("kind", "name", "bucket").mapInArrow(exchange, SCHEMA)


def totals(packs: Iterable[Pack], kind: str = COUNTS) -> dict[str, Any]:
    """Add up the counts in packs of a kind, by name: of digests, or of rows whose hash no other or few rows have."""
    total = dict[str, Any]()
    for pack in packs:
        if pack.kind == kind:
            counts = json.loads(pack.cells)
            total[pack.name] = tuple(map(sum, zip(counts, total.get(pack.name, [0] * len(counts)), strict=True)))
    return total


def exchange(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches_of(_counted_packs(Pack(**row) for batch in batches for row in batch.to_pylist()))


def _counted_packs(packs: Iterable[Pack]) -> Iterator[Pack]:
    for (kind, name), group in groupby(packs, key=lambda pack: pack[:2]):
        if kind == SIZES:
            hashed = np.frombuffer(b"".join(pack.cells for pack in group), "<u8")
            _, sizes = np.unique(hashed, return_counts=True)
            few = int(sizes[sizes < FEW].sum())
            yield facts_pack(SINGLED_OUT, [int((sizes == 1).sum()), few], name)
        else:
            yield from [_counted(name, group)] if kind == DIGESTS else group  # noqa: B031  (only one of them)


def _counted(name: str, packs: Iterable[Pack]) -> Pack:
    total = Counted()
    for (_, width), group in groupby(packs, key=lambda pack: pack[2:4]):
        total = total.plus(counted(np.frombuffer(b"".join(pack.cells for pack in group), np.uint8).reshape(-1, width)))
    return facts_pack(COUNTS, total, name)


Item = TypeVar("Item")


def over_items(spark: SparkSession, items: Sequence[Item], do: Callable[[int, Item], Iterable[Pack]]) -> DataFrame:
    """Do something with each item and its place in a task; items travel with the function: nothing is exchanged."""
    return spark.range(0, len(items), 1, len(items)).mapInArrow(partial(_done, do, items), SCHEMA)


@bare
def _done(
    do: Callable[[int, Item], Iterable[Pack]], items: Sequence[Item], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    places = (place for batch in batches for place in batch.column(0).to_pylist())
    packs = (pack for place in places for pack in do(place, items[place]))
    yield from batches_of(computed("reading staged rows on an executor", packs))


_HINT = "nothing was published, and no gate has fired; the executors' logs say more"


def judge(
    spark: SparkSession, staged: StagedRun, candidate: Candidate, seen: Callable[[int], object]
) -> tuple[Verdict, ...]:
    policy, staging, staging_there = staged.policy, Staging(staged.layout.staging), staged.layout.staging.absolute()
    with seam("reading staged files", InputError, _HINT):
        footers = [*map_in_order(staging.footer, staged.shards, threads())]
    config = GateTaskConfig(
        policy=policy_json(policy),
        columns=worker_columns(spark, policy.column_policies()),
        refs=tuple(staged.refs.items()),
        partition=staged.partition,
        staging=staging_there,
        messages=TaskMessages(staging_there, f"{secrets.token_hex(16)}-gates"),
        canaries=json.dumps(plans_as_dicts(staged.canaries)),
        id_type=staged.canaries[0].id_dtype,
        rows=sum(rows for _, rows in footers),
    )
    candidate = replace(candidate, counted=config.rows)
    with seam("evaluating the gates", GateError, _HINT):
        gates = keyed(staged_gates(candidate, [schema for schema, _ in footers]))
        staged.profile.count("gates", rows=sum(shard.counts["rows"] for shard in staged.shards))
        with watched(config.messages, seen):
            tasks = over_items(spark, staged.shards, partial(show, config))
            packs = collected(exchanged(tasks))
        states = {pack.bucket: pickle.loads(pack.cells) for pack in packs if pack.kind == STATES}  # noqa: S301  (ours)
        for place in range(len(staged.shards)):
            for name, gate in gates.items():
                merge(gate, states[place].get(name, {}))
        digests = totals(packs)
        for name, repeats in all_repeats(gates).items():
            repeats.add_counted(Counted(*digests.get(name, ())))
        return tuple(verdict for gate in gates.values() for verdict in verdicts_of(gate))


@dataclass(frozen=True)
class GateTaskConfig:
    """Instructions for executors that make the gates of a run: names, places, and references, but no key."""

    policy: str  # the run's policy as JSON, without storage options
    columns: tuple[str, ...]  # the policies of its text columns, each in the JSON of `WorkerPolicy`
    refs: tuple[tuple[str, ReleaseRef], ...]  # pinned release of each text column, by name
    partition: str | None  # name of the partition, or None
    staging: Storage
    messages: TaskMessages
    canaries: str  # the canary rows of all shards, as `plans_as_dicts` writes them, in JSON
    id_type: pl.DataType
    rows: int  # rows of all shards, canary rows included


def keyed(gates: Iterable[Gate]) -> dict[str, Gate]:
    """Name gates, so that a gate of one process finds its equal in another."""
    by_key: dict[str, Gate] = {}
    for gate in gates:
        by_key[f"{gate.name}/{sum(name.partition('/')[0] == gate.name for name in by_key)}"] = gate
    return by_key


def all_repeats(gates: dict[str, Gate]) -> dict[str, Repeats]:
    """Return the digests that gates hold for others to count, by the names of gate and digests."""
    return {
        f"{name}:{what}": repeats for name, gate in gates.items() for what, repeats in values_of(gate, Repeats).items()
    }


def show(config: GateTaskConfig, place: int, shard: StagedShard) -> Iterator[Pack]:
    with config.staging.with_own_copies() as storage:
        gates, states = wait_for_ledger(partial(_fed, config, shard, Staging(storage)))
    yield Pack(STATES, "", place, 0, pickle.dumps(states))
    for name, repeats in all_repeats(gates).items():
        for rows in repeats.drain():
            yield from packed(name, rows)


def _fed(
    config: GateTaskConfig, shard: StagedShard, staging: Staging
) -> tuple[dict[str, Gate], dict[str, dict[str, Any]]]:
    run = _candidate(config)
    staging.require(shard)
    part = staging.path(shard)
    columns = pl.Schema(pl.read_parquet_schema(literal(part)))
    spec = run.policy.ledger
    with Ledger.open(spec.url, spec.id_key, create=False) as ledger:
        gates = keyed(staged_gates(replace(run, parts=(part,), ledger=ledger), [columns]))
        feed(gates.values(), batches(part))
        if shard.post:
            feed_rewritten(gates.values(), staging.post(shard))
        states = {name: portable_state(gate) for name, gate in gates.items()}
    config.messages.done(shard.index, count(part))
    return gates, states


@drops_with_gpu
@lru_cache(maxsize=2)
def _candidate(config: GateTaskConfig) -> Candidate:  # planning the canary rows again is slow
    policy, columns = policies(config.policy, config.columns)
    policy = policy.placed(columns)
    canaries = plans_of(json.loads(config.canaries), policy, config.partition, config.id_type)
    return Candidate(policy, (), canaries, None, dict(config.refs), counted=config.rows)


STATES = "states"
"""The kind of packs that hold states of gates."""
