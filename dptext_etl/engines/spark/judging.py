"""Judge a staged run on the executors: they read the files, and the driver gets counts and canary rows."""

from __future__ import annotations

import json
import pickle
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from dptext_etl.checks import Candidate, Verdict
from dptext_etl.checks.gate import Gate
from dptext_etl.checks.judging import made, search
from dptext_etl.checks.ledger_comparison import LookedUp
from dptext_etl.checks.repeats import Counted
from dptext_etl.checks.staged_rows import count
from dptext_etl.device import threads
from dptext_etl.engines.spark.digest_counts import collected, counts_of, tasks_for
from dptext_etl.engines.spark.gate_tasks import STATES, GateOrder, keyed, show
from dptext_etl.engines.spark.ledger_join import LookUps, found_in, looked_up
from dptext_etl.engines.spark.ledger_url import for_workers
from dptext_etl.engines.spark.shard_jobs import over_shards, refuse
from dptext_etl.engines.spark.task_messages import Board
from dptext_etl.engines.spark.tasks import written
from dptext_etl.engines.spark.watching import watched
from dptext_etl.engines.spark.worker_policy import carried_columns
from dptext_etl.errors import GateError, InputError, seam
from dptext_etl.runner.reload import planted
from dptext_etl.runner.shard.records import StagedShard
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.staged import StagedRun
from dptext_etl.side_by_side import in_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HINT = "nothing was published, and no gate has fired; the executors' logs say more"


def judge(
    spark: SparkSession, staged: StagedRun, candidate: Candidate, seen: Callable[[int], object]
) -> tuple[Verdict, ...]:
    """Judge a staged run by every gate (see `Engine.judge`)."""
    order = _order(spark, staged)
    candidate = replace(candidate, counted=order.rows)
    with seam("evaluating the gates", GateError, _HINT):
        staging = Staging(staged.layout.shelf)
        gates = keyed(made(candidate, in_order(partial(_columns, staging), staged.shards, threads())))
        look_ups = LookUps.of(gates, for_workers(staged.policy.ledger))
        order = replace(order, bits=look_ups.bits)
        staged.profile.count("gates", rows=sum(shard.counts["rows"] for shard in staged.shards))
        with watched(order.board, seen):
            shown = over_shards(spark, staged.shards, partial(show, order))
            packs = collected(looked_up(shown, look_ups, tasks_for(order.rows * len(staged.refs))))
        refuse(packs)
        states = {pack.bucket: pickle.loads(pack.cells) for pack in packs if pack.name == STATES}  # noqa: S301  (ours)
        for place in range(len(staged.shards)):
            for name, gate in gates.items():
                gate.merge(states[place].get(name, {}))
        _add_counts(gates, counts_of(packs), found_in(packs))
        search(gates.values(), candidate)
        return tuple(gate.verdict() for gate in gates.values())


def _order(spark: SparkSession, staged: StagedRun) -> GateOrder:
    policy, staging = staged.policy, staged.layout.inside.absolute()
    return GateOrder(
        policy=written(policy),
        columns=carried_columns(spark, policy.column_policies()),
        refs=tuple(staged.refs.items()),
        partition=staged.partition,
        staging=staging,
        board=Board.of(staging, f"{secrets.token_hex(16)}-gates"),
        canaries=json.dumps(planted(staged.canaries)),
        id_type=staged.canaries[0].id_dtype,
        rows=sum(_rows(staged)),
    )


def _rows(staged: StagedRun) -> Iterator[int]:
    """Read from the footers of staged files how many rows there are; of a damaged one, say what `Staging` says.

    Of files in a store, go by their records.
    """
    staging = Staging(staged.layout.shelf)
    if staging.shelf.remote:
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


def _add_counts(gates: dict[str, Gate], counts: dict[str, Counted], found: dict[str, LookedUp]) -> None:
    for name, gate in gates.items():
        for what, repeats in gate.repeats().items():
            repeats.add_counted(counts.get(f"{name}:{what}", Counted()))
        for what, cells in gate.lookups().items():
            cells.add_counted(found.get(f"{name}:{what}", LookedUp()))
