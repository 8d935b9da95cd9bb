"""Start the job of a dataset by itself: by a schedule, or by a sensor that sees new files in the source.

Both are off in Dagster until someone switches them on, because a run spends budget.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of a sensor's parameters when it is made.
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from dptext_etl.errors import PolicyError
from dptext_etl.orchestration.failures import as_failure
from dptext_etl.orchestration.settings import Settings
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.source.table import Files

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
