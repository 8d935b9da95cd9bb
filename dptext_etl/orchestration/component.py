"""Define a Dagster component that makes definitions of a policy from a few lines of YAML (`defs.yaml`).

`dg scaffold defs dptext_etl.orchestration.PolicyComponent NAME` writes such a file and, if needed, a policy.
"""

# No `from __future__ import annotations`: Dagster derives the YAML schema from annotations when the class is made.
import os
import tomllib
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Annotated, Any, Literal

import dagster as dg
from dagster.components.component_scaffolding import scaffold_component
from pydantic import BaseModel, ConfigDict, Field

from dptext_etl.errors import InputError, seam
from dptext_etl.orchestration.resources import Backfill, KeyResource, LedgerResource, Maintenance

_CALENDAR = {
    "hourly": (dg.HourlyPartitionsDefinition, "%Y-%m-%dT%H"),
    "daily": (dg.DailyPartitionsDefinition, "%Y-%m-%d"),
    "weekly": (dg.WeeklyPartitionsDefinition, "%Y-%m-%d"),
    "monthly": (dg.MonthlyPartitionsDefinition, "%Y-%m"),
}
_CONVERTED = frozenset({"policy", "executor", "source_asset", "max_retries", "ledger", "key"})
"""Fields of the component whose arguments of `build_definitions` have another form; all others are equal."""
_EXECUTORS = {"in_process": dg.in_process_executor, "multiprocess": dg.multiprocess_executor}


def _described(description: str, **options: Any) -> dg.Resolver:
    resolver: dg.Resolver = dg.Resolver.default(description=description, **options)
    return resolver


class TimePartitions(dg.Model):
    """Partitions by time; their names replace "{partition}" in the policy."""

    type: Literal["hourly", "daily", "weekly", "monthly"]
    start_date: str = Field(description="Name of the first partition.")
    end_date: str | None = Field(
        None, description="Name of the first partition after the end; by default there is no end."
    )
    fmt: str | None = Field(
        None, description="Format of names for strftime; by default 2026-01, 2026-01-31 or 2026-01-31T23."
    )
    timezone: str | None = Field(None, description="Time zone in which a day begins; UTC by default.")


def _partitions(context: dg.ResolutionContext, partitions: Any) -> Sequence[str] | dg.PartitionsDefinition | None:
    def filled(text: str) -> str:
        """Fill in a template and keep all other text unchanged (Dagster would turn 202601 into a number)."""
        return str(context.resolve_value(text)) if "{{" in text else text

    if partitions is None:
        return None
    if isinstance(partitions, str):
        resolved: Sequence[str] | dg.PartitionsDefinition = context.resolve_value(partitions)
        return resolved
    if not isinstance(partitions, TimePartitions):
        return list(map(filled, partitions))
    options = {field: filled(value) for field, value in partitions.model_dump(exclude_none=True).items()}
    kind, fmt = _CALENDAR[options.pop("type")]
    definition: dg.PartitionsDefinition = kind(**{"fmt": fmt, **options})
    return definition


class LedgerAttributes(dg.Model, dg.Resolvable):
    """The ledger of a deployment."""

    url: Annotated[str, _described('"sqlite:///path" or a path: absolute, or from the folder in which Dagster runs.')]
    id_key: Annotated[
        str | None, _described("Reference to the key of stored ids; by default a file next to the ledger.")
    ] = None
    anchors: Annotated[
        str | None,
        _described(
            "Folder or prefix of an object store for the ledger's anchors; by default this user's state folder."
        ),
    ] = None
    require_anchors: Annotated[
        bool | None, _described("Refuse to charge if no such place is named; by default true for PostgreSQL.")
    ] = None


_ROOT = "{{ context.project_root }}"


class ScaffoldOptions(BaseModel):
    """Options of the command."""

    source: str | None = Field(default=None, description="A table (Parquet, CSV, NDJSON) to guess a policy for.")
    policy: str | None = Field(default=None, description="An existing policy file, or the path of one to write.")
    id: str | None = Field(default=None, description="Column of record ids; otherwise guessed.")
    subject: str | None = Field(default=None, description="Column of the person of a record; otherwise guessed.")
    text: str | None = Field(default=None, description="The text column; otherwise guessed.")
    form: Literal["rows", "shuffled", "synthetic"] | None = Field(
        default=None, description="The form of the release; by default synthetic with labels, and shuffled without."
    )
    labels: str | None = Field(default=None, description='Public labels, "COLUMN=A,B,C"; or "none".')


class PolicyScaffolder(dg.Scaffolder[ScaffoldOptions]):
    """Write `defs.yaml` and, at the root of the project, a policy that people read and correct."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldOptions]:
        return ScaffoldOptions

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldOptions]) -> None:
        from dptext_etl import runner

        root, options = (request.project_root or request.target_path).absolute(), request.params
        policy = Path(options.policy or root / f"{request.target_path.stem}.toml").absolute()
        if not policy.exists():
            if options.source is None:
                raise InputError(f"there is no policy {policy}", "name a table to guess one for: --source TABLE")
            if not policy.parent.is_dir():
                raise InputError(f"there is no folder for the policy {policy}", "make it, or name another place")
            table = os.path.relpath(Path(options.source).absolute(), policy.parent)
            texts = () if options.text is None else (options.text,)
            columns: dict[str, Any] = {"id": options.id, "subject": options.subject, "texts": texts}
            form: dict[str, Any] = {"form": options.form, "labels": options.labels}
            with chdir(policy.parent):
                text = runner.init(table, dataset=policy.stem, key=_KEY, **form, **columns)
            with seam(f"writing the policy {policy}", InputError, "the folder must be there and writable by you"):
                policy.write_text(text, encoding="utf-8")
        # relative to the project's root, so that the project can be moved
        path = f"{_ROOT}/{policy.relative_to(root).as_posix()}" if policy.is_relative_to(root) else str(policy)
        scaffold_component(request, {"policy": path, **_proposals(policy)})


SMALL = 64 << 20  # bytes of a source whose run is faster than the start of a process per step


def _proposals(policy: Path) -> dict[str, Any]:
    """Propose a sensor, a schedule where nothing has to name a partition, and one process (faster) for small files."""
    from dptext_etl.policy import PARTITION
    from dptext_etl.runner.source.table import existing_paths

    source = tomllib.loads(policy.read_text(encoding="utf-8-sig")).get("source", "")
    schedule = {} if PARTITION in source else {"schedule": "@daily"}
    if "://" in source:
        return schedule
    files = existing_paths(str(policy.parent / source.replace(PARTITION, "*")))
    sizes = [file.stat().st_size for file in files if file.is_file()]
    executor = {"executor": "in_process"} if sizes and max(sizes) <= SMALL else {}
    return {"watch_source": True, **schedule, **executor}


_KEY = "env:DPTEXT_SECRET"


@dg.scaffold_with(PolicyScaffolder)
class PolicyComponent(dg.Component, dg.Model, dg.Resolvable):
    """Differentially private release of the text columns of a table, from one policy file (dptext).

    It makes a source, a staged and a published asset, a blocking check per privacy gate, a job, and resources.
    """

    policy: Annotated[str, _described("The policy file (TOML): absolute, or from the folder of this component.")]
    partitions: Annotated[
        Sequence[str] | dg.PartitionsDefinition | None,
        dg.Resolver(
            _partitions,
            model_field_type=Sequence[str] | TimePartitions | str | None,
            description='Values of "{partition}": names, or time partitions; by default as existing files have it.',
        ),
    ] = None
    backfill: Annotated[Backfill, _described('"multi_run": a run per partition; "single_run": one run for all.')] = (
        "multi_run"
    )
    pool: Annotated[str | None, _described('Pool of the staging step; "gpu" by default if models run on one.')] = None
    automation_condition: Annotated[
        dg.AutomationCondition[Any] | None,
        _described(
            "Condition under which Dagster stages automatically; never by default.",
            model_field_type=str | None,
            examples=["{{ dg.AutomationCondition.eager() }}"],
        ),
    ] = None
    executor: Annotated[
        Literal["in_process", "multiprocess"] | None,
        _described("Executor of the job and its location; by default the job is one process."),
    ] = None
    key_prefix: Annotated[Sequence[str] | str | None, _described("Prefix of the keys of all assets.")] = None
    source_asset: Annotated[
        str | None, _described('Key of your asset that writes the source, with "/"; it replaces the raw asset.')
    ] = None
    op_tags: Annotated[
        dict[str, Any] | None, _described("Tags of the staging step and of the job's runs; by default the policy's.")
    ] = None
    max_retries: Annotated[int | None, _described("How often a failed step is tried again; by default never.")] = None
    freshness_policy: Annotated[
        dg.FreshnessPolicy | None,
        _described(
            "How old the last publication may be; by default Dagster does not ask.",
            model_field_type=str | None,
            examples=["{{ dg.FreshnessPolicy.time_window(fail_window=datetime.timedelta(days=31)) }}"],
        ),
    ] = None
    group_name: Annotated[str | None, _described("Group of the assets; by default the dataset.")] = None
    owners: Annotated[Sequence[str] | None, _described('Owners of the assets: e-mail addresses, or "team:NAME".')] = (
        None
    )
    schedule: Annotated[
        str | None, _described("Cron of a schedule of the job, off at first; partitions by time bring their own times.")
    ] = None
    watch_source: Annotated[bool, _described("Add a sensor that starts the job for new files, off at first.")] = False
    ledger: Annotated[LedgerAttributes | None, _described("Ledger of this deployment; by default the policy's.")] = None
    key: Annotated[str | None, _described('Noise key, "env:NAME" or "file:PATH"; by default the policy\'s.')] = None

    maintenance: Annotated[
        Maintenance | None, _described("Verify and back up the ledger in a separate job; by default there is none.")
    ] = None

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(
            tags=["privacy", "text"], produces=["asset", "asset_check", "job", "resource", "schedule", "sensor"]
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Make the definitions.

        Args:
            context: Dagster's context of the component; the policy's path is relative to its folder.

        Returns:
            The definitions of `build_definitions`.

        Raises:
            PolicyError: The policy cannot be read, or its partitions cannot be found or cannot be part of a path.
        """
        from dptext_etl.orchestration.definitions import build_definitions

        return build_definitions(
            context.path / self.policy,
            **{name: getattr(self, name) for name in PolicyComponent.model_fields if name not in _CONVERTED},
            executor=_EXECUTORS[self.executor] if self.executor else None,
            source_asset=dg.AssetKey.from_user_string(self.source_asset) if self.source_asset else None,
            retry_policy=dg.RetryPolicy(max_retries=self.max_retries) if self.max_retries else None,
            ledger=LedgerResource(**self.ledger.model_dump()) if self.ledger else None,
            key=KeyResource(reference=self.key) if self.key else None,
        )
