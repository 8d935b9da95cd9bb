"""A whole run over a Spark data frame: reserve, compute, stage and commit on the executors, gates and publication here.

    from dptext_etl.spark import privatize_frame

    privatize_frame(spark.table("reviews"), "privacy.toml")

The driver sees counts and hashes; rows never come to it. Staging folder and sink lie on storage that driver and
executors share under one path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dptext_etl.engines import run, stage
from dptext_etl.engines.spark.engine import SparkEngine
from dptext_etl.policy import Policy, PolicyLike
from dptext_etl.runner import RunSummary
from dptext_etl.runner.checkpoint import Checkpoint, nothing
from dptext_etl.runner.progress import Listener
from dptext_etl.runner.staged import StagedRun
from dptext_etl.spark.whole import whole_policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def privatize_frame(
    df: DataFrame,
    policy: PolicyLike,
    *,
    id: str | None = None,  # noqa: A002  (the argument's name is the column's role)
    subject: str | None = None,
    gpus_per_task: int = 0,
    partition: str | None = None,
    accept_lower_cap: bool = False,
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
        accept_lower_cap: Lower the pinned cap to that of the policy; otherwise a lower cap is refused.
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
    named = {"id": id, "subject": subject, **entries}
    whole = whole_policy(policy, {name: value for name, value in named.items() if value is not None})
    return run(
        whole,
        engine=SparkEngine(df, gpus_per_task),
        partition=partition,
        accept_lower_cap=accept_lower_cap,
        progress=progress,
    )


def stage_frame(
    df: DataFrame,
    policy: Policy,
    *,
    gpus_per_task: int = 0,
    partition: str | None = None,
    accept_lower_cap: bool = False,
    progress: Listener | None = None,
    checkpoint: Checkpoint = nothing,
) -> StagedRun:
    """Charge, compute, stage and commit a frame on the executors; `check` and `publish` come next.

    Args:
        df: The raw table.
        policy: The policy of the run.
        gpus_per_task: GPUs that every task gets.
        partition: Name of the partition, where the policy has a place for one.
        accept_lower_cap: Lower the pinned cap to that of the policy; otherwise a lower cap is refused.
        progress: Called with counts, rate and the time that is left, from a thread of its own.
        checkpoint: Called after every step, on the executors too, for tests.

    Raises:
        InputError: The frame is not as the policy says; nothing was spent.
        BudgetError: Records over the cap with on_cap = "refuse"; what was reserved is given back.
        LedgerError: The ledger contradicts the policy, is out of reach, or holds other bytes for a record.
    """
    engine = SparkEngine(df, gpus_per_task)
    return stage(
        policy,
        engine=engine,
        partition=partition,
        accept_lower_cap=accept_lower_cap,
        progress=progress,
        checkpoint=checkpoint,
    )
