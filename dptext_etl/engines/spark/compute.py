"""Let the executors take the shards of a run through a phase, and watch their progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dptext_etl.engines.engine import Work
from dptext_etl.engines.spark.shards import numbers, planted
from dptext_etl.engines.spark.tasks import SCHEMA, Order, read, refused_first, task, written
from dptext_etl.engines.spark.watching import watched
from dptext_etl.engines.spark.worker_policy import carried_columns
from dptext_etl.errors import DPTextError, seam
from dptext_etl.ledger import Ledger
from dptext_etl.runner.anchoring import take_in
from dptext_etl.runner.progress import Meter
from dptext_etl.runner.shard.attempt import Attempt
from dptext_etl.runner.shard.done import Done, Phase
from dptext_etl.runner.source.roles import wanted_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AGAIN = (
    "see the executors' logs. Every record is charged once: run it again, and it continues after the committed shards"
)


def compute(work: Work[DataFrame], phase: Phase, meter: Meter, profile: Any) -> list[Done]:
    """Take all shards through a phase (see `Engine.compute`)."""
    order = _order(work, phase)
    shards = numbers(work.source, work.attempt.policy)
    rows = planted(work.source.rows, work.plans, shards, work.attempt.policy)
    given = {} if profile is None or phase == "reserve" else {"profile": profile}
    made = rows.mapInArrow(task(order), SCHEMA, **given)
    with watched(order.board, meter.add), seam("computing on Spark", DPTextError, _AGAIN):
        found = [row[0] for row in made.collect()]
    _take_in(work.attempt)
    return [read(record) for record in sorted(found, key=refused_first)]


def _take_in(attempt: Attempt) -> None:
    """Remember the ledger's head in the place of what each task wrote into a store."""
    spec = attempt.policy.ledger
    if attempt.layout.memory.remote:
        with Ledger.open(spec.url, spec.id_key, create=False) as ledger:
            take_in(ledger, attempt.layout.memory.shelf(), attempt.policy, attempt.job)


def _order(work: Work[DataFrame], phase: Phase) -> Order:
    attempt, spark = work.attempt, work.source.table.frame.sparkSession
    policy = attempt.policy
    shards = len(numbers(work.source, policy))
    planted_rows = -(-len(work.plans) // shards) * max(len(plan.rows) for plan in work.plans)
    return Order(
        policy=written(policy),
        columns=carried_columns(spark, attempt.columns),
        names=wanted_columns(policy),
        refs=work.refs,
        job=attempt.job,
        staging=attempt.layout.inside.absolute(),
        memory=attempt.layout.memory.absolute(),
        step=shards,
        most=policy.shard_rows + planted_rows,
        phase=phase,
        checkpoint=work.checkpoint,
    )
