"""Judge a staged run on the executors: they read the files, and the driver gets counts and canary rows.

Each task shows a staged shard to every gate, and compares its cells with the ledger. What the gates have seen comes
back, and digests for other tasks to count.
"""

from __future__ import annotations

import json
import pickle
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import polars as pl

from dptext_etl.checks import Verdict
from dptext_etl.checks.candidate import Candidate, batches, count
from dptext_etl.checks.comparison import Counted, Repeats
from dptext_etl.checks.gate import (
    Gate,
    feed,
    feed_rewritten,
    merge,
    portable_state,
    staged_gates,
    values_of,
    verdicts_of,
)
from dptext_etl.device import drops_with_gpu, threads
from dptext_etl.engines.spark.exchange import Pack, collected, exchanged, over_shards, packed, totals
from dptext_etl.engines.spark.task_messages import TaskMessages, watched
from dptext_etl.engines.spark.tasks import policies, policy_json
from dptext_etl.engines.spark.worker_policy import worker_columns
from dptext_etl.errors import GateError, InputError, seam
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.storage.store import wait_for_ledger
from dptext_etl.parallel import map_in_order
from dptext_etl.runner.shard.canaries import plans_as_dicts, plans_of
from dptext_etl.runner.shard.records import StagedShard
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.staged import StagedRun
from dptext_etl.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_HINT = "nothing was published, and no gate has fired; the executors' logs say more"


def judge(
    spark: SparkSession, staged: StagedRun, candidate: Candidate, seen: Callable[[int], object]
) -> tuple[Verdict, ...]:
    config = _gate_config(spark, staged)
    candidate = replace(candidate, counted=config.rows)
    with seam("evaluating the gates", GateError, _HINT):
        staging = Staging(staged.layout.staging)
        gates = keyed(staged_gates(candidate, map_in_order(partial(_columns, staging), staged.shards, threads())))
        staged.profile.count("gates", rows=sum(shard.counts["rows"] for shard in staged.shards))
        with watched(config.messages, seen):
            shown = over_shards(spark, staged.shards, partial(show, config))
            packs = collected(exchanged(shown))
        states = {pack.bucket: pickle.loads(pack.cells) for pack in packs if pack.kind == STATES}  # noqa: S301  (ours)
        for place in range(len(staged.shards)):
            for name, gate in gates.items():
                merge(gate, states[place].get(name, {}))
        digests = totals(packs)
        for name, repeats in all_repeats(gates).items():
            repeats.add_counted(digests.get(name, Counted()))
        return tuple(verdict for gate in gates.values() for verdict in verdicts_of(gate))


def _gate_config(spark: SparkSession, staged: StagedRun) -> GateTaskConfig:
    policy, staging = staged.policy, staged.layout.staging.absolute()
    return GateTaskConfig(
        policy=policy_json(policy),
        columns=worker_columns(spark, policy.column_policies()),
        refs=tuple(staged.refs.items()),
        partition=staged.partition,
        staging=staging,
        messages=TaskMessages(staging, f"{secrets.token_hex(16)}-gates"),
        canaries=json.dumps(plans_as_dicts(staged.canaries)),
        id_type=staged.canaries[0].id_dtype,
        rows=sum(_rows(staged)),
    )


def _rows(staged: StagedRun) -> Iterator[int]:
    """Read from the footers of staged files how many rows there are; of a damaged one, say what `Staging` says.

    Of files in a store, go by their records.
    """
    staging = Staging(staged.layout.staging)
    if staging.storage.remote:
        yield from (shard.counts["rows"] for shard in staged.shards)
        yield from (len(plan.rows) for plan in staged.canaries)
        return
    for shard in staged.shards:
        with seam("reading what was staged", InputError):
            try:
                yield count(staging.path(shard))
            except (OSError, ValueError):
                staging.require(shard)
                raise


def _columns(staging: Staging, shard: StagedShard) -> pl.Schema:
    """Return the columns of a staged shard; of a damaged one, say what `Staging` says."""
    try:
        return staging.columns(shard)
    except (OSError, ValueError):
        staging.require(shard)
        raise


@dataclass(frozen=True)
class GateTaskConfig:
    """What executors need to make the gates of a run: names, places, references and ids of canary rows, but no key."""

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
    """Name gates, so that those of one process find their equals in another."""
    found: dict[str, Gate] = {}
    for gate in gates:
        found[f"{gate.name}/{sum(name.partition('/')[0] == gate.name for name in found)}"] = gate
    return found


def all_repeats(gates: dict[str, Gate]) -> dict[str, Repeats]:
    """Return the digests that gates hold for others to count, by the names of gate and digests."""
    return {f"{name}:{what}": held for name, gate in gates.items() for what, held in values_of(gate, Repeats).items()}


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
    columns = pl.Schema(pl.read_parquet_schema(part))
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
def _candidate(config: GateTaskConfig) -> Candidate:  # planning the canary rows again takes time
    policy, columns = policies(config.policy, config.columns)
    policy = policy.placed(columns)
    canaries = plans_of(json.loads(config.canaries), policy, config.partition, config.id_type)
    return Candidate(policy, (), canaries, None, dict(config.refs), counted=config.rows)


STATES = "states"
"""The kind of packs that hold states of gates."""
