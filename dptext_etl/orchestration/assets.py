"""Make the three assets of a dataset: the source, the staged rows in quarantine, and the published table.

Steps share files and never frames. The runner writes and reads these files. So no I/O manager sees a row, a step can be
run again alone, and every step may be a process of its own.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of a step's parameters when it is made.
import time
from collections.abc import Callable
from typing import Any

import dagster as dg

from dptext_etl import engines, runner
from dptext_etl.orchestration import facts, handover
from dptext_etl.orchestration.failures import as_failure
from dptext_etl.orchestration.names import PUBLISHED_TAG, RAW_TAG, STAGED_TAG, Names
from dptext_etl.orchestration.partitions import in_run
from dptext_etl.orchestration.resources import deployed, needed
from dptext_etl.orchestration.settings import Settings, after_gates
from dptext_etl.orchestration.telling import teller
from dptext_etl.policy import Policy
from dptext_etl.runner.progress import Listener
from dptext_etl.runner.publish.gating import reports
from dptext_etl.runner.summary import remaining, summarise

Result = dg.MaterializeResult[Any]
Step = Callable[[Policy, str | None, Listener, dg.AssetKey], facts.Metadata]


def raw_asset(policy: Policy, settings: Settings) -> dg.AssetSpec:
    """Return the source, of which Dagster knows name and place but reads nothing."""
    name = settings.names
    return dg.AssetSpec(
        name.raw,
        description="The raw table, inside the boundary. Dagster knows where it is and reads nothing of it.",
        metadata={"dagster/uri": policy.source, "text columns": ", ".join(column.name for column in policy.columns)},
        group_name=name.group,
        owners=name.owners,
        partitions_def=settings.partitions,
        kinds={"text"},
        tags=name.tag(RAW_TAG),
    )


def staged_asset(policy: Policy, settings: Settings) -> dg.AssetsDefinition:
    """Return the step that reserves, draws, stages and commits."""
    name = settings.names

    @dg.asset(
        key=name.staged,
        deps=[name.raw],
        description="Released rows in quarantine, inside the boundary: charged, committed and not yet checked.",
        kinds={"polars"},
        tags=name.tag(STAGED_TAG),
        pool=settings.pool_of(policy),
        op_tags=settings.op_tags,
        automation_condition=settings.automation_condition,
        metadata=facts.claims(policy),
        group_name=name.group,
        owners=name.owners,
        partitions_def=settings.partitions,
        backfill_policy=settings.backfill,
        code_version=facts.code_version(policy),
        required_resource_keys=needed(name),
        retry_policy=settings.retry_policy,
    )
    def staged(context: dg.AssetExecutionContext) -> Result:
        return _each_partition(context, policy, name, "staging", _stage)

    return staged


def published_asset(policy: Policy, settings: Settings) -> dg.AssetsDefinition:
    """Return the step that publishes a table that passed every gate; it publishes nothing without their verdicts."""
    name = settings.names

    @dg.asset(
        key=name.published,
        deps=[name.staged],
        description="The published table: one version per release, under a manifest that is replaced atomically.",
        kinds={"parquet"},
        tags=name.tag(PUBLISHED_TAG),
        io_manager_key=name.table,
        automation_condition=after_gates(),
        freshness_policy=settings.freshness_policy,
        metadata=facts.claims(policy),
        group_name=name.group,
        owners=name.owners,
        partitions_def=settings.partitions,
        backfill_policy=settings.backfill,
        code_version=facts.code_version(policy),
        required_resource_keys=needed(name),
        retry_policy=settings.retry_policy,
    )
    def published(context: dg.AssetExecutionContext) -> Result:
        return _each_partition(context, policy, name, "publishing", _publish)

    return published


def _each_partition(context: dg.AssetExecutionContext, policy: Policy, name: Names, action: str, step: Step) -> Result:
    """Take a step for every partition of the run, and attach its facts to that partition."""
    with as_failure(action):
        policy = deployed(policy, context, name)
        for partition in in_run(context) or [None]:
            found = step(policy, partition, teller(context.log, partition), name.raw)
            context.add_asset_metadata(found, partition_key=partition)
    return dg.MaterializeResult()


def _stage(policy: Policy, partition: str | None, listener: Listener, raw: dg.AssetKey) -> facts.Metadata:
    run = engines.stage(policy, partition=partition, progress=listener)
    handover.leave_run(run)
    return facts.of_staged(run, raw)


def _publish(policy: Policy, partition: str | None, listener: Listener, raw: dg.AssetKey) -> facts.Metadata:
    began = time.monotonic()
    staged = handover.find_run(policy, partition)
    verdicts = handover.find_verdicts(staged)
    done = runner.publish(staged, verdicts, progress=listener)
    seconds = staged.seconds + time.monotonic() - began
    summary = summarise(staged, verdicts, done, seconds, reported=reports(staged), left=remaining(policy))
    handover.clear(staged)
    return facts.of_published(staged, summary, raw)
