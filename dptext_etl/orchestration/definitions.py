"""Build the Dagster definitions of a policy, or materialize them in this process; `dagster dev` does so by a click."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import dagster as dg

from dptext_etl import files
from dptext_etl.errors import DPTextError, InputError, PolicyError, bare, seam
from dptext_etl.orchestration.assets import raw_asset, schedule_of, source_sensor, step_assets
from dptext_etl.orchestration.gates import gate_checks, ledger_check, published_checks
from dptext_etl.orchestration.lineage import check_lineage
from dptext_etl.orchestration.resources import (
    Backfill,
    KeyResource,
    LedgerResource,
    Maintenance,
    Partitions,
    PolicyTranslator,
    PublishedTable,
    Settings,
    names,
    partitions_definition,
)
from dptext_etl.policy import Policy, PolicyLike, resolve


class Report(Protocol):
    """A report on a release, which another package measures and Dagster keeps as an asset."""

    def asset(self, policy: Policy, settings: Settings) -> dg.AssetsDefinition:
        """Return the asset that makes the report; it counts as raw if it reads raw texts (`names.RAW_TAG`)."""


@bare
def build_definitions(
    policy: PolicyLike,
    *,
    partitions: Partitions | None = None,
    backfill: Backfill = "multi_run",
    pool: str | None = None,
    automation_condition: dg.AutomationCondition[Any] | None = None,
    executor: dg.ExecutorDefinition | None = None,
    key_prefix: Sequence[str] | str | None = None,
    source_asset: dg.CoercibleToAssetKey | dg.AssetsDefinition | dg.AssetSpec | None = None,
    op_tags: Mapping[str, Any] | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    freshness_policy: dg.FreshnessPolicy | None = None,
    group_name: str | None = None,
    owners: Sequence[str] | None = None,
    translator: PolicyTranslator | None = None,
    schedule: str | None = None,
    watch_source: bool = False,
    ledger: LedgerResource | None = None,
    key: KeyResource | None = None,
    maintenance: Maintenance | None = None,
    reports: Sequence[Report] = (),
) -> dg.Definitions:
    """Return the definitions of one dataset.

    The assets are `raw_<dataset>`, `staged_<dataset>`, and `published_<dataset>`; the last one is missing if the policy
    says `publish = false`. The staged asset has one blocking check per gate, and warnings; the published asset has
    blocking checks. The job is `run_<dataset>`, and the resources are `ledger_<dataset>`, `key_<dataset>`, and
    `table_<dataset>`. Definitions of several datasets can be merged. Steps share only files, so no I/O manager holds a
    frame. Events, metadata and logs hold counts, names and spends. The spends are exact, so a Dagster instance belongs
    inside the boundary.

    Args:
        policy: The policy or its TOML file.
        partitions: Values of "{partition}": names, or a definition of Dagster such as
            `dg.MonthlyPartitionsDefinition("2026-01", fmt="%Y-%m")`; None uses the names of the existing files.
        backfill: "multi_run" starts a run per partition, "single_run" one run for all of them.
        pool: Pool in which staging uses a slot; None means "gpu" if a mechanism's models run on a GPU, otherwise no
            pool.
        automation_condition: Condition under which Dagster stages automatically; None never does. If automation is
            switched on, rows that were staged automatically and pass their gates are published automatically.
        executor: Executor of the job and of the whole code location. None runs the steps of the job in one process, and
            leaves everything else to the code location, so that the definitions can be merged with any other.
        key_prefix: Prefix of the keys of all assets; steps, job, and resources use it, too. With it, several releases
            of a dataset fit into one code location.
        source_asset: An asset of yours that writes the source; it replaces `raw_<dataset>`, and counts as raw
            for `check_lineage`.
        op_tags: Tags of the staging step, such as "dagster-k8s/config"; None uses the tags of the policy (`[dagster]
            tags`). The job's runs have them, too. But if the executor starts a pod per step, the runs have none that
            request resources: the process of the run only starts the steps.
        retry_policy: How often a failed step is tried again; committed records are neither drawn nor charged again.
        freshness_policy: How old the last publication may be before Dagster warns; every run that publishes counts,
            also one that found nothing new.
        group_name: Group of the assets; None means the dataset's name.
        owners: Owners of the assets: e-mail addresses, or "team:NAME".
        translator: Names the assets in your way, in place of `key_prefix`, `group_name`, and `owners`.
        schedule: Cron of a schedule of the job, off at first; partitions by time bring their own times.
        watch_source: Add a sensor that starts the job for new files, off at first.
        ledger: The ledger of this deployment; None uses the policy's.
        key: Reference to the noise key of this deployment; None uses the policy's.
        maintenance: Add the check `ledger_intact` and the job `maintain_<dataset>`, which verify the ledger, store its
            anchor, and make a backup; with a schedule, off at first.
        reports: Reports on the release, such as `dptext_etl_eval.orchestration.EvidenceReport`. Each makes an asset
            outside the job, and nothing waits for it.

    Returns:
        The definitions of the dataset, whose asset graph `check_lineage` has checked.

    Raises:
        PolicyError: The policy cannot be read, or its partitions cannot be found or cannot be part of a path; or a
            schedule, sensor or freshness has nothing to go by.

    Example:
        ```python
        from dptext_etl.orchestration import build_definitions

        defs = build_definitions("privacy.toml")
        ```
    """
    policy = resolve(policy)
    if freshness_policy is not None and not policy.publish:
        msg = "freshness is checked on the published asset, and the policy says publish = false"
        raise PolicyError(msg, "publish, or leave freshness_policy out")
    if translator is None:
        translator = PolicyTranslator(key_prefix, group_name, owners)
    elif any(option is not None for option in (key_prefix, group_name, owners)):
        raise PolicyError("a translator names the assets, so nothing else can", "give key_prefix and the like to it")
    if isinstance(source_asset, (dg.AssetsDefinition, dg.AssetSpec)):
        source_asset = source_asset.key
    name = names(policy, translator, source_asset)
    parts = partitions_definition(policy, partitions)
    tags = dict(policy.dagster.tags if op_tags is None else op_tags)
    settings = Settings(
        names=name,
        partitions=parts,
        discovered=partitions is None and parts is not None,
        # one run for all partitions is sound: each is judged as in a separate run, and none is published if one fails
        backfill=dg.BackfillPolicy.single_run() if backfill == "single_run" and parts is not None else None,
        pool=pool,
        automation_condition=automation_condition,
        op_tags=tags or None,
        retry_policy=retry_policy,
        freshness_policy=freshness_policy,
    )
    steps = step_assets(policy, settings)
    checks = [gate_checks(policy, settings), *([published_checks(policy, settings)] if policy.publish else [])]
    extra = [report.asset(policy, settings) for report in reports]
    keeping = dg.Definitions()
    if maintenance is not None:  # the check, the job, and the schedule that maintain the ledger
        check, upkeep = ledger_check(policy, settings, maintenance), name.job.replace("run_", "maintain_", 1)
        chore = dg.define_asset_job(upkeep, dg.AssetSelection.checks(check), executor_def=dg.in_process_executor)
        times = [] if maintenance.schedule is None else [maintenance.schedule]
        cron = [dg.ScheduleDefinition(job=chore, cron_schedule=time) for time in times]
        keeping = dg.Definitions(asset_checks=[check], jobs=[chore], schedules=cron)
    # a run that only starts the pods of its steps must not hold a GPU that they wait for
    in_the_run = executor is None or executor.name in _IN_THE_RUN
    run_tags = {tag: value for tag, value in tags.items() if in_the_run or not tag.startswith(_PLACES)}
    job = dg.define_asset_job(
        name.job,
        selection=dg.AssetSelection.assets(*steps) - dg.AssetSelection.checks(*(keeping.asset_checks or ())),
        description=_JOB,
        executor_def=executor or dg.in_process_executor,
        tags=run_tags or None,
    )
    definitions = dg.Definitions(
        assets=[*([raw_asset(policy, settings)] if source_asset is None else []), *steps, *extra],
        asset_checks=checks,
        jobs=[job],
        schedules=[schedule_of(schedule, job, settings)] if schedule else [],
        sensors=[source_sensor(policy, job, settings)] if watch_source else [],
        resources={
            name.ledger: ledger or LedgerResource(**policy.ledger.model_dump()),
            name.key: key or KeyResource(reference=policy.key),
            name.table: PublishedTable(policy),
        },
        executor=executor,
    )
    return check_lineage(dg.Definitions.merge(definitions, keeping))


_IN_THE_RUN = frozenset({"in_process", "multiprocess", "multi_or_in_process_executor"})
"""Names of the executors whose steps compute in the pod of the run; all others bring a pod or a worker per step."""
_PLACES = ("dagster-k8s/", "ecs/", "dagster-celery/queue")
"""Beginnings of the tags that say where something computes, and with which resources."""


_JOB = "Reserve, draw, stage, commit, check, publish. The same release again costs nothing and gives the same bytes."


_INSTANCE = """\
# Written by dptext_etl: runs, events and logs of this Dagster instance are kept next to this file.
telemetry:
  enabled: false
nux:
  enabled: false
"""


@dataclass(frozen=True)
class RunFacts:
    """Facts about one Dagster run, which covers one partition."""

    partition: str | None  # name of the partition, or None
    run_id: str  # Dagster's name of the run
    success: bool  # True if all steps succeeded, publication included
    exit_code: int  # exit code that the command line would return
    message: str  # reason of a failure in our words; empty after a success
    assets: dict[str, dict[str, Any]]  # metadata by asset key as plain values, without Markdown


@dataclass(frozen=True)
class CheckFacts:
    """Facts about one asset check of one run."""

    partition: str | None  # name of the partition, or None
    asset: str  # key of the asset that was judged
    name: str
    passed: bool
    severity: str  # "ERROR" blocks later steps, "WARN" only informs
    counts: dict[str, Any]
    message: str  # one sentence for people


@dataclass(frozen=True)
class MaterializationSummary:
    """The results of the runs.

    Attributes:
        runs: One run per partition, in order.
        checks: All asset checks of all runs: gates, reports, and the gates over published tables.
    """

    runs: tuple[RunFacts, ...]
    checks: tuple[CheckFacts, ...]

    @property
    def success(self) -> bool:
        """Return True if every run succeeded."""
        return bool(self.runs) and all(run.success for run in self.runs)

    @property
    def gates(self) -> tuple[CheckFacts, ...]:
        """Return the checks that decided about a publication."""
        staged = [item for item in self.checks if item.asset.startswith("staged_")]
        return tuple(item for item in staged if item.severity == "ERROR")

    @property
    def exit_code(self) -> int:
        """Return the exit code of the first run that failed, otherwise 0."""
        return next((run.exit_code for run in self.runs if not run.success), 0)

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as plain data for JSON."""
        return {"success": self.success, "exit_code": self.exit_code, **asdict(self)}


@bare
def materialize(
    policy: PolicyLike,
    *,
    partitions: Partitions | None = None,
    home: str | Path | None = None,
    also: Sequence[dg.AssetsDefinition] = (),
    quiet: bool = True,
) -> MaterializationSummary:
    """Run the job of a policy once per partition, in this process.

    Args:
        policy: The policy or its TOML file.
        partitions: The partitions, as for `build_definitions`; None means all of them.
        home: Folder of a Dagster instance (DAGSTER_HOME), created if missing; `dagster dev` then shows these runs. None
            keeps nothing.
        also: Assets of the same partitions that read published tables, to be materialized in the same run.
        quiet: Keep Dagster's own log off the terminal; the instance holds it.

    Returns:
        Runs, checks and metadata: counts and names only. A failed run is reported here and raises nothing.

    Raises:
        PolicyError: The policy cannot be read, or its partitions cannot be found.
        GateError: An asset in `also` is made from raw text (`check_lineage`).
    """
    policy = resolve(policy)
    defs = build_definitions(policy, partitions=partitions)
    if also:
        defs = check_lineage(dg.Definitions.merge(defs, dg.Definitions(assets=also)))
    job = defs.resolve_implicit_global_asset_job_def() if also else defs.resolve_job_def(names(policy).job)
    keys: Sequence[str | None] = job.partitions_def.get_partition_keys() if job.partitions_def else [None]
    with _instance(home) as instance:
        runs = [_run(job, partition, instance, quiet=quiet) for partition in keys]
    return MaterializationSummary(tuple(run for run, _ in runs), tuple(check for _, checks in runs for check in checks))


def _run(
    job: dg.JobDefinition, partition: str | None, instance: dg.DagsterInstance, *, quiet: bool
) -> tuple[RunFacts, list[CheckFacts]]:
    logger = {"loggers": {"console": {"config": {"log_level": "CRITICAL" if quiet else "INFO"}}}}
    with seam(
        "running the Dagster job", DPTextError, "the log of the Dagster instance says more: quiet=False shows it"
    ):
        result = job.execute_in_process(
            run_config=logger, instance=instance, partition_key=partition, raise_on_error=False
        )
    code, message = _failure(result)
    materialized = [
        event.step_materialization_data.materialization for event in result.get_asset_materialization_events()
    ]
    assets = {item.asset_key.to_user_string(): _plain(item.metadata) for item in materialized}
    checks = [
        CheckFacts(
            partition,
            check.asset_key.to_user_string(),
            check.check_name,
            check.passed,
            check.severity.value,
            _plain(check.metadata),
            check.description or "",
        )
        for check in result.get_asset_check_evaluations()
    ]
    return RunFacts(partition, result.run_id, result.success, code, message, assets), checks


def _failure(result: dg.ExecuteInProcessResult) -> tuple[int, str]:
    """Return the exit code and our sentence about a failed run."""
    if result.success:
        return 0, ""
    for event in result.all_events:
        if event.is_step_failure:
            failure = event.step_failure_data.user_failure_data
            if failure is not None:
                return int(_plain(failure.metadata)["exit_code"]), failure.description or ""
            return DPTextError.exit_code, f"step {event.step_key} failed"
    return DPTextError.exit_code, "the run failed before its first step"


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Turn metadata into plain data for JSON: numbers, sentences, lists; Markdown and tables stay in Dagster."""
    values = {name: value.value for name, value in metadata.items() if not isinstance(value, dg.MarkdownMetadataValue)}
    return {
        name: value
        for name, value in values.items()
        if value is None or isinstance(value, (str, int, float, bool, dict, list))
    }


@contextmanager
def _instance(home: str | Path | None) -> Iterator[dg.DagsterInstance]:
    if home is None:
        with dg.DagsterInstance.ephemeral() as instance:
            yield instance
        return
    folder = Path(home).absolute()
    settings = folder / "dagster.yaml"
    with seam(f"making the Dagster home {folder}", InputError, "the folder must be writable by you"):
        files.make_folders(folder)
        if not settings.exists():
            settings.write_text(_INSTANCE, encoding="utf-8")
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        yield instance
