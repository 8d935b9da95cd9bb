"""Make the three assets of a dataset, and the triggers of their job: a schedule, or a sensor for new source files.

The assets are the source, the staged rows in quarantine, and the published table.

Steps share files and never frames. The runner writes and reads these files. So no I/O manager sees a row, a step can be
repeated without the others, and every step may be a separate process. Schedule and sensor are off in Dagster until
someone switches them on, because a run spends budget.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of a step's parameters when it is made.
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import dagster as dg

from dptext_etl import engines, keys, runner
from dptext_etl._kernel import Secret
from dptext_etl.artifacts import canon
from dptext_etl.errors import PolicyError, counted
from dptext_etl.file_formats import format_of
from dptext_etl.orchestration import steps
from dptext_etl.orchestration.resources import (
    PUBLISHED_TAG,
    RAW_TAG,
    STAGED_TAG,
    Names,
    Settings,
    after_gates,
    deployed,
    discovered,
    in_run,
)
from dptext_etl.orchestration.steps import as_failure, progress_logger
from dptext_etl.policy import PARTITION, Policy
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.publish.publication import reports
from dptext_etl.runner.report import Observed, observed, remaining, summarize
from dptext_etl.runner.shard.attempt import Attempt
from dptext_etl.runner.source.examine import NoRowsError
from dptext_etl.runner.source.table import Files
from dptext_etl.runner.unchanged import INPUT_LABEL, note, recognized

Result = dg.MaterializeResult[Any]
Step = Callable[[Policy, str | None, Observed, dg.AssetKey], steps.Metadata]


def raw_asset(policy: Policy, settings: Settings) -> dg.AssetSpec:
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


def step_assets(policy: Policy, settings: Settings) -> list[dg.AssetsDefinition]:
    """Return the step that reserves, draws, stages, and commits, and the step that publishes after all gates."""
    name = settings.names
    shared: dict[str, Any] = {
        "metadata": steps.claims(policy),
        "group_name": name.group,
        "owners": name.owners,
        "partitions_def": settings.partitions,
        "backfill_policy": settings.backfill,
        "code_version": steps.code_version(policy),
        "required_resource_keys": name.resources,
        "retry_policy": settings.retry_policy,
    }

    @dg.asset(  # type: ignore[untyped-decorator]
        key=name.staged,
        deps=[name.raw],
        description="Released rows in staging, inside the boundary: charged, committed and not yet checked.",
        kinds={"polars"},
        tags=name.tag(STAGED_TAG),
        pool=settings.pool_of(policy),
        op_tags=settings.op_tags,
        automation_condition=settings.automation_condition,
        **shared,
    )
    def staged(context: dg.AssetExecutionContext) -> Result:
        return _each_partition(context, policy, name, "staging", _stage)

    @dg.asset(  # type: ignore[untyped-decorator]
        key=name.published,
        deps=[name.staged],
        description="The published table: one version per release, under a manifest that is replaced atomically.",
        kinds={"parquet"},
        tags=name.tag(PUBLISHED_TAG),
        io_manager_key=name.table,
        automation_condition=after_gates(),
        freshness_policy=settings.freshness_policy,
        **shared,
    )
    def published(context: dg.AssetExecutionContext) -> Result:
        return _each_partition(context, policy, name, "publishing", _publish)

    return [staged, published] if policy.publish else [staged]


def _each_partition(
    context: dg.AssetExecutionContext, policy: Policy, name: Names, action: Literal["staging", "publishing"], step: Step
) -> Result:
    """Carry out a step for every partition of the run, and attach its facts to that partition.

    Partitions without rows are excluded, unless all are.
    """
    empty = list[str | None]()
    with as_failure(action):
        policy, partitions = deployed(policy, context, name), in_run(context) or [None]
    for partition in partitions:
        with as_failure(action, partition):
            try:
                with observed(policy, progress_logger(context.log, partition), action) as seen:
                    metadata = step(policy, partition, seen, name.raw)
            except NoRowsError:
                empty.append(partition)
                if len(empty) == len(partitions):
                    raise
                steps.save_empty(policy, partition)
                metadata = {"notes": "the source has no rows, so this partition was skipped"}
                context.log.warning(f"partition {partition}: {metadata['notes']}")
        context.add_asset_metadata(metadata, partition_key=partition)
    return dg.MaterializeResult()


def _stage(policy: Policy, partition: str | None, seen: Observed, raw: dg.AssetKey) -> steps.Metadata:
    run = engines.stage(policy, partition=partition, progress=seen.progress, recognize=True)
    steps.save_run(run)
    return steps.of_staged(run, raw)


def _publish(policy: Policy, partition: str | None, seen: Observed, raw: dg.AssetKey) -> steps.Metadata:
    began = time.monotonic()
    if steps.is_empty(policy, partition):
        raise NoRowsError("the source had no rows when it was staged", "no budget used, nothing published")
    staged = steps.load_run(policy, partition)
    verdicts = steps.load_verdicts(staged)
    if staged.input is not None and "recognized" in staged.input:
        summary = recognized(Attempt.of(policy, partition), staged.input["recognized"], staged.input["id_type"])
    else:
        publication = runner.publish(staged, verdicts, progress=seen.progress)
        seconds = staged.seconds + time.monotonic() - began
        summary = summarize(staged, verdicts, publication, seconds, reported=reports(staged), left=remaining(policy))
        note(staged.layout.staging, staged.staging_key, summary, staged.input)
    seen.done(summary)
    steps.remove_files(staged)
    return steps.of_published(staged, summary, raw)


_LOOK_EVERY = 60
_MOST_NAMES = 3


def schedule_of(cron: str, job: Any, settings: Settings) -> Any:
    """Return a schedule of the job: for partitions by time, of the partition that has ended."""
    name = settings.names.schedule
    if settings.partitions is None:
        return dg.ScheduleDefinition(name=name, job=job, cron_schedule=cron)
    if isinstance(settings.partitions, dg.TimeWindowPartitionsDefinition):
        return dg.build_schedule_from_partitioned_job(job, name=name)
    msg = "a schedule cannot say which of the named partitions it means"
    raise PolicyError(msg, "use partitions by time, or a sensor (watch_source)")


def source_sensor(policy: Policy, job: Any, settings: Settings) -> dg.SensorDefinition:
    """Return a sensor that starts the job when the files of the source, or of a partition, are new or have changed."""
    if is_remote(policy.source) and not _is_version(policy):
        msg = f"no sensor watches a source in an object store: {policy.source}"
        raise PolicyError(msg, "use a schedule, or write a sensor on `" + settings.names.job + "`")

    name = settings.names

    @dg.sensor(
        name=name.sensor,
        job=job,
        minimum_interval_seconds=_LOOK_EVERY,
        description=_SENSOR,
        required_resource_keys={name.key},
    )
    def watch(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        cursor = context.cursor or ""
        before: dict[str, str] = json.loads(cursor) if cursor.startswith("{") else {}
        names, later = [""], list[str]()
        if settings.partitions is not None:
            names = list(settings.partitions.get_partition_keys(dynamic_partitions_store=context.instance))
        with as_failure("looking at the source"):
            secret = keys.resolve(getattr(context.resources, name.key).reference)
            now = {part: _fingerprint(policy, part or None, secret) for part in names}
            if settings.discovered:
                later = sorted({*discovered(policy)} - {*names})
        seen = "the files of the source are those that were seen before"
        new = {part: fingerprint for part, fingerprint in now.items() if fingerprint not in {"", before.get(part)}}
        if later:
            listed = ", ".join(later[:_MOST_NAMES]) + (", …" if later[_MOST_NAMES:] else "")
            seen = f"reload the code location: it does not know {counted(len(later), 'new partition')} ({listed})"
            context.log.warning(seen)
        if len(new) > 1 and cursor not in {ALL, SKIP} and not cursor.startswith("{"):
            yield dg.SkipReason(_HISTORY.format(count=len(new), sensor=name.sensor))
            return
        if cursor == SKIP:
            seen = f"{counted(len(new), 'partition')} with files that are there now count as seen"
            before, new = {**before, **new}, {}
        if not new:
            yield dg.SkipReason(seen)
        for part, fingerprint in new.items():
            yield dg.RunRequest(run_key=f"{part} {fingerprint}", partition_key=part or None)
        context.update_cursor(json.dumps({**before, **new}))

    return watch


ALL, SKIP = "all", "skip"
"""Cursors that a person sets before the first tick: start the partitions of history, or count them as seen."""
_HISTORY = (
    "{count} partitions have files, and each of their runs spends budget. To start them all: `dagster sensor cursor "
    "{sensor} --set all`; to start only those that come or change later: `--set skip`"
)


def _is_version(policy: Policy) -> bool:
    """Return whether the source is a table with a log, whose version shows new rows."""
    if PARTITION in policy.source or format_of(policy.source) is not None:
        return False
    try:
        return Files.find(Layout.of(policy)).version is not None
    except PolicyError:
        return False


_SENSOR = (
    "Starts the job when files of the source are new or have changed; it reads only names, sizes, and times; of a "
    "Delta Lake or Iceberg table, it reads the log. Its cursor holds hashes of these under the noise key."
)


def _fingerprint(policy: Policy, partition: str | None, secret: Secret) -> str:
    """Return a keyed hash of the names, sizes and times of the source's files; an empty string where there are none.

    Sizes follow from raw texts, so Dagster's database gets no hash that others could compute.
    """
    try:
        files = Files.find(Layout.of(policy, partition))
        version = None if files.version is None else files.version.digest
    except PolicyError:
        return ""
    stats = [(Path(path), Path(path).stat()) for path in files.paths] if version is None else []
    marks = sorted([path.name, stat.st_size, stat.st_mtime_ns] for path, stat in stats)
    return secret.derive("seal", INPUT_LABEL + canon({"watched": version or marks})).hex()[:32]
