"""Run a policy from source to published table: stage, check, publish."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from dptext_etl.device import threads
from dptext_etl.engines.engine import Engine
from dptext_etl.engines.local.engine import LocalEngine
from dptext_etl.engines.staging import staged
from dptext_etl.errors import bare
from dptext_etl.policy import Policy, PolicyLike, resolve
from dptext_etl.runner.observing import observed
from dptext_etl.runner.progress import Checkpoint, Listener, WholeRun, nothing
from dptext_etl.runner.publish.gating import check, reports
from dptext_etl.runner.publish.publication import publish
from dptext_etl.runner.shard.attempt import Attempt
from dptext_etl.runner.summary import RunSummary, remaining, summarize
from dptext_etl.runner.unchanged import Input
from dptext_etl.side_by_side import both


@bare
def run(
    policy: PolicyLike,
    *,
    engine: Engine[Any] | None = None,
    partition: str | None = None,
    accept_lower_cap: bool = False,
    progress: Listener | None = None,
    checkpoint: Checkpoint = nothing,
) -> RunSummary:
    """Release the text columns of a table: charge, compute, stage, commit, check, publish.

    A second run with the same policy over the same data costs nothing and gives the same bytes. If its files are those
    of the run before, byte for byte, it computes nothing (`runner.unchanged`). A run that was killed continues where it
    stopped.

    Args:
        policy: The policy, or the path of its file.
        engine: Engine that computes the shards; None computes in this process.
        partition: Name of the partition, if the policy has a place for one.
        accept_lower_cap: Lower the pinned cap to that of the policy; otherwise a lower cap is refused.
        progress: Called with counts, rate and remaining time, of every phase and of the whole run.
        checkpoint: Called after every step, for tests.

    Returns:
        Counts, spends, verdicts and the place of the published table.

    Raises:
        PolicyError: The policy cannot be carried out as written (exit code 5); nothing is lost.
        BudgetError: Records are over the cap and on_cap is "refuse", or fewer rows than `min_released` would be
            published (exit code 3).
        GateError: A gate failed (exit code 4): nothing is published, charges stay, and the release name is revoked.
    """
    policy, engine = resolve(policy), engine or LocalEngine()
    with observed(policy, progress) as seen:
        return seen.done(_run(policy, engine, partition, seen.progress, checkpoint, accept_lower_cap=accept_lower_cap))


def _run(
    policy: Policy,
    engine: Engine[Any],
    partition: str | None,
    progress: Listener | None,
    checkpoint: Checkpoint,
    *,
    accept_lower_cap: bool,
) -> RunSummary:
    attempt: Attempt
    if policy.synthetic is None:
        attempt = Attempt.of(policy, partition, accept_lower_cap=accept_lower_cap)
        every_step = partial(_every_step, attempt, engine, progress, checkpoint)
    else:
        from dptext_etl.engines.synthetic import run_synthetic
        from dptext_etl.runner.synthetic.attempt import SyntheticAttempt

        attempt = table = SyntheticAttempt.of(policy, partition, accept_lower_cap=accept_lower_cap)
        every_step = partial(run_synthetic, table, engine, progress, checkpoint)
    files = engine.files(attempt.layout) if policy.publish else None
    if files is None:
        return every_step()
    source = Input.of(attempt, files)
    return source.recognize(lambda: engine.open(policy, attempt.layout).id_type) or source.run(every_step)


def _every_step(attempt: Attempt, engine: Engine[Any], progress: Listener | None, checkpoint: Checkpoint) -> RunSummary:
    began, whole_run = time.monotonic(), None if progress is None else WholeRun(progress)
    with staged(attempt, engine, whole_run, checkpoint) as (found, ledger):
        verdicts, _ = both(
            lambda: check(found, judge=engine.judge, progress=whole_run, checkpoint=checkpoint),
            ledger.fold_log,
            threads(),
        )
        published, (reported, left) = both(
            lambda: publish(found, verdicts, write=engine.write, progress=whole_run, checkpoint=checkpoint),
            lambda: (reports(found), remaining(attempt.policy)),
            threads(),
        )
    return summarize(found, verdicts, published, time.monotonic() - began, reported=reported, left=left)
