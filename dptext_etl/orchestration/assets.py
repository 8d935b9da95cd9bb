"""Make the three assets of a dataset, and what starts their job: a schedule, or a sensor that sees new source files.

The assets are the source, the staged rows in quarantine, and the published table.

Steps share files and never frames. The runner writes and reads these files. So no I/O manager sees a row, a step can be
run again alone, and every step may be a process of its own.
Schedule and sensor are off in Dagster until someone switches them on, because a run spends budget.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of a step's parameters when it is made.
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import dagster as dg

from dptext_etl import engines, runner
from dptext_etl.errors import PolicyError
from dptext_etl.orchestration import facts, handover, synthetic
from dptext_etl.orchestration.failures import as_failure, progress_logger
from dptext_etl.orchestration.names import PUBLISHED_TAG, RAW_TAG, STAGED_TAG, Names, in_run
from dptext_etl.orchestration.resources import Settings, after_gates, deployed, needed
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.observing import Observed, observed
from dptext_etl.runner.publish.gating import reports
from dptext_etl.runner.source.table import Files
from dptext_etl.runner.summary import remaining, summarize

Result = dg.MaterializeResult[Any]
Step = Callable[[Policy, str | None, Observed, dg.AssetKey], facts.Metadata]


def raw_asset(policy: Policy, settings: Settings) -> dg.AssetSpec:
    """Return the source, of which Dagster knows name and place but reads nothing."""
    name = settings.names
    return dg.AssetSpec(
        name.raw,
        description="The raw table, inside the boundary. Dagster knows where it is and reads nothing of it.",
        metadata={"dagster/uri": policy.source, "text columns": ", ".join(policy.text_columns)},
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


def _each_partition(
    context: dg.AssetExecutionContext,
    policy: Policy,
    name: Names,
    action: Literal["staging", "publishing"],
    step: Step,
) -> Result:
    """Take a step for every partition of the run, and attach its facts to that partition."""
    with as_failure(action):
        policy = deployed(policy, context, name)
        for partition in in_run(context) or [None]:
            with observed(policy, progress_logger(context.log, partition), action) as seen:
                found = step(policy, partition, seen, name.raw)
            context.add_asset_metadata(found, partition_key=partition)
    return dg.MaterializeResult()


def _stage(policy: Policy, partition: str | None, seen: Observed, raw: dg.AssetKey) -> facts.Metadata:
    if policy.synthetic is not None:
        return synthetic.stage(policy, seen.progress, raw)
    run = engines.stage(policy, partition=partition, progress=seen.progress)
    handover.save_run(run)
    return facts.of_staged(run, raw)


def _publish(policy: Policy, partition: str | None, seen: Observed, raw: dg.AssetKey) -> facts.Metadata:
    if policy.synthetic is not None:
        return synthetic.publish(policy, seen, raw)
    began = time.monotonic()
    staged = handover.load_run(policy, partition)
    verdicts = handover.load_verdicts(staged)
    done = runner.publish(staged, verdicts, progress=seen.progress)
    seconds = staged.seconds + time.monotonic() - began
    summary = summarize(staged, verdicts, done, seconds, reported=reports(staged), left=remaining(policy))
    seen.done(summary)
    handover.clear(staged)
    return facts.of_published(staged, summary, raw)


_LOOK_EVERY = 60


def schedule_of(cron: str, job: Any, settings: Settings) -> Any:
    """Return a schedule of the job: for partitions by time, of the partition that has ended."""
    name = settings.names.schedule
    if settings.partitions is None:
        return dg.ScheduleDefinition(name=name, job=job, cron_schedule=cron)
    if isinstance(settings.partitions, dg.TimeWindowPartitionsDefinition):
        return dg.build_schedule_from_partitioned_job(job, name=name)
    msg = "a schedule cannot say which of the named partitions it means"
    raise PolicyError(msg, "take partitions by time, or a sensor (watch_source)")


def source_sensor(policy: Policy, job: Any, settings: Settings) -> dg.SensorDefinition:
    """Return a sensor that starts the job when the files of the source, or of a partition, are new or have changed.

    It looks at names, sizes and times of files, opens none of them, and keeps only hashes of these.
    """
    if is_remote(policy.source):
        msg = f"no sensor watches a source in an object store: {policy.source}"
        raise PolicyError(msg, "take a schedule, or a sensor of your own on `" + settings.names.job + "`")

    @dg.sensor(name=settings.names.sensor, job=job, minimum_interval_seconds=_LOOK_EVERY, description=_SENSOR)
    def watch(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        seen: dict[str, str] = json.loads(context.cursor) if context.cursor else {}
        with as_failure("looking at the source"):
            found = {name: _looks(policy, name or None) for name in _partitions(context, settings)}
        new = [name for name, looks in found.items() if looks and looks != seen.get(name)]
        if not new:
            yield dg.SkipReason("the files of the source are those that were seen before")
        for name in new:
            yield dg.RunRequest(run_key=f"{name} {found[name]}", partition_key=name or None)
        context.update_cursor(json.dumps({**seen, **{name: found[name] for name in new}}))

    return watch


_SENSOR = "Starts the job when files of the source are new or have changed; it reads names, sizes and times alone."


def _partitions(context: dg.SensorEvaluationContext, settings: Settings) -> list[str]:
    if settings.partitions is None:
        return [""]
    return list(settings.partitions.get_partition_keys(dynamic_partitions_store=context.instance))


def _looks(policy: Policy, partition: str | None) -> str:
    """Return a hash of the names, sizes and times of the source's files; an empty string where there are none."""
    try:
        files = Files.find(Layout.of(policy, partition)).paths
    except PolicyError:
        return ""
    facts = [(Path(path).name, Path(path).stat().st_size, Path(path).stat().st_mtime_ns) for path in files]
    return hashlib.sha256(json.dumps(sorted(facts)).encode()).hexdigest()[:16]
