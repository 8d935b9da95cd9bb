"""Materialize a policy in this process, for scripts, the demo and tests; `dagster dev` does the same by a click."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from dptext_etl.errors import DPTextError, InputError, bare, seam
from dptext_etl.orchestration.definitions import build_definitions
from dptext_etl.orchestration.lineage import check_lineage
from dptext_etl.orchestration.names import Partitions, names
from dptext_etl.orchestration.resources import KeyResource, LedgerResource
from dptext_etl.policy import PolicyLike, resolve

_INSTANCE = """\
# Written by dptext_etl: runs, events and logs of this Dagster instance are kept beside this file.
telemetry:
  enabled: false
nux:
  enabled: false
"""


@dataclass(frozen=True)
class RunFacts:
    """Facts about one Dagster run, which covers one partition.

    Attributes:
        partition: Name of the partition, or None.
        run_id: Dagster's name of the run.
        success: True if all steps succeeded, publication included.
        exit_code: Exit code that the command line would return.
        message: Reason of a failure in our words; empty after a success.
        assets: Metadata by asset key as plain values, without pictures.
    """

    partition: str | None
    run_id: str
    success: bool
    exit_code: int
    message: str
    assets: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class CheckFacts:
    """Facts about one asset check of one run.

    Attributes:
        partition: Name of the partition, or None.
        asset: Key of the asset that was judged.
        name: Name of the check.
        passed: True if the check passed.
        severity: "ERROR" blocks later steps, "WARN" only informs.
        counts: Counts by name.
        message: One sentence for people.
    """

    partition: str | None
    asset: str
    name: str
    passed: bool
    severity: str
    counts: dict[str, Any]
    message: str


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
    ledger: LedgerResource | None = None,
    key: KeyResource | None = None,
    also: Sequence[dg.AssetsDefinition] = (),
    quiet: bool = True,
) -> MaterializationSummary:
    """Run the job of a policy once per partition, in this process.

    Args:
        policy: The policy or its TOML file.
        partitions: The partitions, as for `build_definitions`; None takes all of them.
        home: Folder of a Dagster instance (DAGSTER_HOME), created if missing; `dagster dev` then shows these runs. None
            keeps nothing.
        ledger: The ledger of this deployment; None takes the policy's.
        key: The noise key of this deployment; None takes the policy's.
        also: Assets of the same partitions that read published tables, to be materialized in the same run.
        quiet: Keep Dagster's own log off the terminal; the instance holds it.

    Returns:
        Runs, checks and metadata: counts and names only. A failed run is reported here and raises nothing.

    Raises:
        PolicyError: The policy cannot be read, or its partitions cannot be found.
        GateError: An asset in `also` is made from raw text (`check_lineage`).
    """
    policy = resolve(policy)
    defs = build_definitions(policy, partitions=partitions, ledger=ledger, key=key)
    if also:
        defs = check_lineage(dg.Definitions.merge(defs, dg.Definitions(assets=also)))
    job = defs.resolve_implicit_global_asset_job_def() if also else defs.resolve_job_def(names(policy).job)
    keys: Sequence[str | None] = job.partitions_def.get_partition_keys() if job.partitions_def else [None]
    with _instance(home) as instance:
        done = [_run(job, partition, instance, quiet=quiet) for partition in keys]
    return MaterializationSummary(tuple(run for run, _ in done), tuple(check for _, checks in done for check in checks))


def _run(
    job: dg.JobDefinition, partition: str | None, instance: dg.DagsterInstance, *, quiet: bool
) -> tuple[RunFacts, list[CheckFacts]]:
    logger = {"loggers": {"console": {"config": {"log_level": "CRITICAL" if quiet else "INFO"}}}}
    with seam("running the Dagster job", DPTextError):
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
            told = event.step_failure_data.user_failure_data
            if told is not None:
                return int(_plain(told.metadata)["exit_code"]), told.description or ""
            return DPTextError.exit_code, f"step {event.step_key} failed"
    return DPTextError.exit_code, "the run failed before its first step"


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Turn metadata into plain data for JSON: numbers, sentences, lists; pictures and tables stay in Dagster."""
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
        folder.mkdir(parents=True, exist_ok=True)
        if not settings.exists():
            settings.write_text(_INSTANCE, encoding="utf-8")
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        yield instance
