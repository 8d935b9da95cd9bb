"""A whole run over a Spark data frame: reserve, compute, stage and commit on the executors, gates and publication here.

    from dptext_etl.spark import privatize_frame

    privatize_frame(spark.table("reviews"), "privacy.toml")

The driver sees counts and hashes; rows never come to it. Staging folder and sink lie on storage that driver and
executors share under one path.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from dptext_etl.errors import DPTextError, LedgerError, seam
from dptext_etl.ledger import Ledger, Outcome
from dptext_etl.policy import Policy, PolicyLike
from dptext_etl.runner import RunSummary, StagedRun, check, publish
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.shard.attempt import Attempt, refuse_other_rows, refuse_over_cap, row_counts
from dptext_etl.runner.shard.planting import plan_canaries
from dptext_etl.runner.shard.shard import Checkpoint
from dptext_etl.runner.shard.stage import nothing
from dptext_etl.runner.source.roles import wanted_columns
from dptext_etl.runner.summary import summarise
from dptext_etl.spark.board import Board
from dptext_etl.spark.carried import Carried
from dptext_etl.spark.examining import examine
from dptext_etl.spark.ledger_url import require_reach
from dptext_etl.spark.profile import gpu_profile
from dptext_etl.spark.sharding import planted, shard_numbers
from dptext_etl.spark.shipping import ship
from dptext_etl.spark.tasks import SCHEMA, Done, Order, read, refused_first, task, written
from dptext_etl.spark.whole import whole_policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOOKS = 0.5
"""Seconds between two looks at how far the tasks are."""
_AGAIN = "the executors' logs say more. What is charged is charged once: run again, it goes on from what is committed"


def privatize_frame(
    df: DataFrame,
    policy: PolicyLike,
    *,
    id: str | None = None,  # noqa: A002  (the argument's name is the column's role)
    subject: str | None = None,
    gpus_per_task: int = 0,
    partition: str | None = None,
    progress: Listener | None = None,
    **entries: Any,
) -> RunSummary:
    """Release the text columns of a Spark frame as a whole run: charge, compute, stage, commit, check, publish.

    Every record gets the text that `dptext_etl.run` would give it, at the same charge. Task retries, speculation and a
    second call change nothing; a run that was killed goes on where it was.

    Args:
        df: The raw table; it must give the same rows whenever it is evaluated. Classic or Spark Connect.
        policy: A policy, the path of one, or the policy of one column with the rest of a run in `entries`; its source
            is not read.
        id: Column of the record ids, where the frame calls it other than the policy.
        subject: Column of the subjects, likewise.
        gpus_per_task: GPUs that every task gets; they come from the cluster's resource scheduling.
        partition: Which partition, where the policy has a place for one.
        progress: Called with counts, rate and what is left, from a thread of its own.
        entries: Entries of the policy to set: `sink`, `ledger`, `cap`, `keep`, `unit`, …

    Returns:
        Counts, spends, verdicts and where the published table is.

    Raises:
        PolicyError: Something that cannot be carried out as written; nothing is lost.
        LedgerError: A SQLite ledger and executors on other machines.
        BudgetError: Records over the cap with on_cap = "refuse".
        GateError: A gate fired: nothing is published, what is charged stays charged, the name is revoked.
    """
    began = time.monotonic()
    named = {"id": id, "subject": subject, **entries}
    whole = whole_policy(policy, {name: value for name, value in named.items() if value is not None})
    staged = stage_frame(df, whole, gpus_per_task=gpus_per_task, partition=partition, progress=progress)
    verdicts = check(staged)
    published = publish(staged, verdicts, progress=progress)
    return summarise(staged, verdicts, published, time.monotonic() - began)


def stage_frame(
    df: DataFrame,
    policy: Policy,
    *,
    gpus_per_task: int = 0,
    partition: str | None = None,
    progress: Listener | None = None,
    checkpoint: Checkpoint = nothing,
) -> StagedRun:
    """Charge, compute, stage and commit a frame on the executors; `check` and `publish` come next.

    Args:
        df: The raw table.
        policy: The run's policy.
        gpus_per_task: GPUs that every task gets.
        partition: Which partition, where the policy has a place for one.
        progress: Called with counts, rate and what is left, from a thread of its own.
        checkpoint: Called after every step, on the executors too, for tests.

    Raises:
        InputError: The frame is not as the policy says; nothing was spent.
        BudgetError: Records over the cap with on_cap = "refuse"; what was reserved is given back.
        LedgerError: The ledger contradicts the policy, is out of reach, or holds other bytes for a record.
    """
    spark = df.sparkSession
    require_reach(spark, policy.ledger.url)
    profile = gpu_profile(spark, gpus_per_task)
    attempt = Attempt.of(policy, partition)
    with attempt.alone() as staging:
        source = examine(df, policy, attempt.layout)
        checkpoint("checked")
        numbers = shard_numbers(source.first, source.wanted, policy.shard_rows) if source.wanted else range(0)
        plans = plan_canaries(policy, source.id_dtype, source.present, attempt.secret, numbers, partition)
        with Ledger.open(policy.ledger.url, policy.ledger.id_key) as ledger:
            refs = attempt.register(ledger, source.roles.id_type)
        checkpoint("registered")
        done: list[Done] = []
        said: Counter[str] = Counter()
        if plans:
            carried = (Carried.of(item, ship(spark, item.mechanism.artifacts())).written() for item in attempt.columns)
            order = Order(
                policy=written(policy),
                columns=tuple(carried),
                names=wanted_columns(policy),
                refs=refs,
                job=attempt.job,
                staging=staging.folder.absolute(),
                step=len(numbers),
                most=policy.shard_rows + max(len(plan.rows) for plan in plans),
                phase="release",
                checkpoint=checkpoint,
            )
            rows = planted(source.rows, plans, policy)
            if attempt.refusing:
                said = _reserve_all(rows, order, attempt, Meter("reserve", source.wanted, progress))
            done = _computed(rows, order, profile, Meter("release", source.wanted, progress))
            refuse_other_rows(source.wanted, sum(item.rows for item in done))
        staged = sorted((item.staged for item in done), key=lambda shard: shard.index)
        staging.keep_only(staged)
    said = said or _outcomes(done)
    counts = row_counts(source.total, source.wanted, said, staged)
    seconds = time.monotonic() - attempt.began
    dropped = source.roles.dropped
    return StagedRun(policy, partition, tuple(staged), tuple(plans), refs, counts, dropped, source.base, seconds)


def _reserve_all(rows: DataFrame, order: Order, attempt: Attempt, meter: Meter) -> Counter[str]:
    """Charge a whole run before any of it is computed, or give everything back."""

    def give_back() -> None:
        ledger = attempt.policy.ledger
        with Ledger.open(ledger.url, ledger.id_key) as book, suppress(LedgerError):  # then another run goes by them
            book.abort(attempt.job, compute_never_started=True)

    try:
        said = _outcomes(_computed(rows, order.only_reserve(), None, meter))
    except BaseException:
        give_back()
        raise
    refuse_over_cap(said[Outcome.OVER_CAP.name], give_back)
    return said


def _computed(rows: DataFrame, order: Order, profile: Any, meter: Meter) -> list[Done]:
    """Have the executors do what an order says, and collect what became of the shards."""
    function = task(order)
    made = rows.mapInArrow(function, SCHEMA) if profile is None else rows.mapInArrow(function, SCHEMA, profile=profile)
    order.board.put_up()
    try:
        with _watched(order.board, meter), seam("computing on Spark", DPTextError, _AGAIN):
            found = [row[0] for row in made.collect()]
    finally:
        order.board.take_down()
    return [read(record) for record in sorted(found, key=refused_first)]


@contextmanager
def _watched(board: Board, meter: Meter) -> Iterator[None]:
    """Report how far the tasks are while the block runs."""
    over = Event()

    def watch() -> None:
        seen = 0
        while True:
            last = over.wait(_LOOKS)
            now = board.rows_done()
            if now > seen:
                meter.add(now - seen)
                seen = now
            if last:
                return

    thread = Thread(target=watch, name="dptext-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _outcomes(done: list[Done]) -> Counter[str]:
    total: Counter[str] = Counter()
    for item in done:
        total.update(item.outcomes)
    return total
