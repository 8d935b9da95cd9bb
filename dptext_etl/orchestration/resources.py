"""Define the names, the resources, and the partitions of a dataset in Dagster, and the settings that no policy has.

A translator maps policies to your names. Names of partitions replace "{partition}" in the source.

Resources are the ledger and the key, both by reference, and the published table, which downstream assets read as a lazy
frame. The I/O managers of Dagster for frames log sampled rows. This one logs nothing and stores nothing.
"""

# No `from __future__ import annotations`: Dagster resolves the annotations of resources when the class is made.
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

import dagster as dg
import polars as pl
from pydantic import BeforeValidator, Field, field_validator

from dptext_etl import keys
from dptext_etl.errors import PolicyError
from dptext_etl.object_stores import holds_password
from dptext_etl.orchestration.steps import as_failure
from dptext_etl.policy import PARTITION, LedgerSpec, Policy
from dptext_etl.runner import scan_published
from dptext_etl.runner.layout import Layout, check_partition, is_remote
from dptext_etl.runner.source.table import partitions_of_source

RAW_TAG, STAGED_TAG, PUBLISHED_TAG = "dptext/raw", "dptext/staged", "dptext/published"
"""Tags of the stages, whose value is the dataset; `check_lineage` and selections in Dagster's pages use them."""
PUBLIC_TAG = "dptext/public"  # tag of an asset that holds no raw text, though raw assets are made from it
_TAG_LENGTH = 63
_KINDS = ("gates", "recheck", "run", "schedule", "sensor", "ledger", "key", "table")


class Names(NamedTuple):
    """Keys of the assets, steps, job, and resources of a dataset; several datasets fit into one code location."""

    raw: dg.AssetKey  # the source: its rows never enter an event
    staged: dg.AssetKey  # released rows in quarantine, inside the boundary
    published: dg.AssetKey  # the table that readers see
    evidence: dg.AssetKey  # the report on usefulness and leaks of a release, inside the boundary
    gates: str  # the step that evaluates every gate
    recheck: str  # the step that judges the published table again
    job: str
    schedule: str
    sensor: str  # the sensor that starts the job when the source is new
    group: str
    owners: list[str]
    ledger: str
    key: str  # the resource that refers to the noise key
    table: str  # the resource through which downstream assets read the published table
    word: str  # the part of all these names that identifies the dataset

    @property
    def resources(self) -> set[str]:
        return {self.ledger, self.key}

    def tag(self, stage: str) -> dict[str, str]:
        """Mark a stage of the dataset; Dagster allows tags of 63 characters."""
        word = self.word
        return {stage: word if len(word) <= _TAG_LENGTH else hashlib.sha256(word.encode()).hexdigest()[:16]}


def word_of(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


Stage = Literal["raw", "staged", "published", "evidence"]  # the assets of a dataset, in their order


class PolicyTranslator:
    """Names the assets of a policy; override a method to map them to your names.

    Args:
        key_prefix: Prefix of the keys of all assets.
        group_name: Group of the assets; None means the dataset's name.
        owners: Owners of the assets: e-mail addresses, or "team:NAME".

    Example:
        ```python
        import dagster as dg
        from dptext_etl.orchestration import PolicyTranslator, build_definitions


        class Ours(PolicyTranslator):
            def asset_key(self, policy, stage):
                return dg.AssetKey(["privacy", policy.dataset, stage])


        defs = build_definitions("privacy.toml", translator=Ours())
        ```
    """

    def __init__(
        self,
        key_prefix: Sequence[str] | str | None = None,
        group_name: str | None = None,
        owners: Sequence[str] | None = None,
    ) -> None:
        self._prefix = [key_prefix] if isinstance(key_prefix, str) else list(key_prefix or ())
        self._group = group_name
        self._owners = list(owners or ())

    def asset_key(self, policy: Policy, stage: Stage) -> dg.AssetKey:
        """Return the key of an asset.

        Args:
            policy: The policy of the dataset.
            stage: "raw", "staged", "published", or "evidence".

        Returns:
            The key, which no other asset of the code location has.
        """
        return dg.AssetKey([*self._prefix, f"{stage}_{word_of(policy.dataset)}"])

    def group_name(self, policy: Policy) -> str:
        """Return the group of the assets.

        Args:
            policy: The policy of the dataset.

        Returns:
            The name of the group.
        """
        return self._group or word_of(policy.dataset)

    def owners(self, policy: Policy) -> Sequence[str]:  # noqa: ARG002  (for those who override it)
        """Return the owners of the assets.

        Args:
            policy: The policy of the dataset.

        Returns:
            E-mail addresses, or "team:NAME".
        """
        return self._owners


def names(
    policy: Policy, translator: PolicyTranslator | None = None, source: "dg.CoercibleToAssetKey | None" = None
) -> Names:
    """Name the stages of a policy's dataset.

    Steps, job and resources are called after the key of the published asset, so that they differ where the keys do.
    """
    mapped = translator or PolicyTranslator()
    raw = mapped.asset_key(policy, "raw") if source is None else dg.AssetKey.from_coercible(source)
    staged, published, evidence = (mapped.asset_key(policy, stage) for stage in ("staged", "published", "evidence"))
    *prefix, last = published.path
    word = word_of("_".join([*prefix, last.removeprefix("published_")]))
    gates, recheck, job, schedule, sensor, ledger, key, table = (f"{kind}_{word}" for kind in _KINDS)
    group, owners = mapped.group_name(policy), list(mapped.owners(policy))
    steps = (gates, recheck, job, schedule, sensor)
    return Names(raw, staged, published, evidence, *steps, group, owners, ledger, key, table, word)


Partitions = Sequence[str] | dg.PartitionsDefinition  # names, or a definition of Dagster: static, by time, or dynamic

_SOME_TIME = datetime(2001, 12, 31, 23, 59, tzinfo=UTC)


def partitions_definition(policy: Policy, partitions: Partitions | None = None) -> dg.PartitionsDefinition | None:
    """Return the partitions, and refuse names that cannot be part of a path; dynamic ones are checked by a run."""
    if PARTITION not in policy.source:
        if partitions is not None:
            msg = f"partitions were given, and the source has no {PARTITION}"
            raise PolicyError(msg, f"write {PARTITION} in source and sink")
        return None
    if not isinstance(partitions, dg.PartitionsDefinition):
        values = list(partitions) if partitions is not None else discovered(policy)
        if not values:
            msg = f"no file matches the source's template, so {PARTITION} has no values"
            raise PolicyError(msg, "pass partitions=[…], or add files")
        partitions = dg.StaticPartitionsDefinition(values)
    examples = list[str]()
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        raise PolicyError("partitions of two dimensions have no place in a path", "give one dimension")
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        examples = [_SOME_TIME.strftime(partitions.fmt)]
    elif isinstance(partitions, dg.StaticPartitionsDefinition):
        examples = list(partitions.get_partition_keys())
    for name in examples:
        check_partition(policy, name)
    return partitions


def discovered(policy: Policy) -> list[str]:
    """List the values of "{partition}" for which a file exists; a code location lists no object store as it loads."""
    if is_remote(policy.source):
        msg = f"the partitions of an object-store source cannot be listed: {policy.source}"
        raise PolicyError(msg, "pass partitions=[…]")
    return partitions_of_source(policy)


def in_run(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> list[str | None]:
    """Return the partitions of a run: one, or all of a range; an empty list if it names none."""
    if context.has_partition_key:
        return [context.partition_key]
    return list(context.partition_keys) if context.has_partition_key_range else []


def to_judge(
    context: dg.AssetCheckExecutionContext,
    partitions: dg.PartitionsDefinition | None,
    there: Callable[[str | None], bool],
) -> list[str | None]:
    """Return the partitions that a check judges: the ones of its run, or all outside a job."""
    if partitions is None:
        return [None]
    keys = partitions.get_partition_keys(dynamic_partitions_store=context.op_execution_context.instance)
    return in_run(context) or [name for name in keys if there(name)]


def _named(value: Any) -> Any:
    """Refuse a key in the place of its name, because Dagster shows the configuration of resources."""
    return value if value is None or isinstance(value, dg.EnvVar) else keys.reference(value)


class LedgerResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The ledger that records the spends.

    Dagster shows a resource's configuration. So put a URL with a password into a variable, and name the variable by
    `url=dg.EnvVar("NAME")` or `url="env:NAME"`. Every process that opens the ledger reads the variable.

    Attributes:
        url: "sqlite:///path", a path, "postgresql://host/database", or "env:NAME".
        id_key: Reference to the key under which ids are stored; by default the file next to a SQLite ledger.
        anchors: Folder or prefix of an object store, apart from the ledger, for its anchors (`LedgerSpec.anchors`).
        require_anchors: Refuse to charge if no such place is named (`LedgerSpec.require_anchors`).
    """

    url: str
    id_key: Annotated[str | None, BeforeValidator(_named)] = None
    anchors: str | None = None
    require_anchors: bool | None = None

    def __init__(self, **data: Any) -> None:
        """Keep a variable by its name, so that neither Dagster nor a policy ever holds its value.

        Raises:
            PolicyError: The URL holds a password.
        """
        url = data.get("url")
        if isinstance(url, dg.EnvVar):
            data["url"] = f"env:{url.env_var_name}"
        elif isinstance(url, str) and holds_password(url):
            msg = "the URL of the ledger holds a password, and Dagster shows it"
            raise PolicyError(msg, 'put it into a variable and name that: url=dg.EnvVar("DPTEXT_LEDGER_SECRET_URL")')
        super().__init__(**data)


class KeyResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The noise key by reference; only the kernel resolves it, and no event, page or log holds it.

    Attributes:
        reference: "env:NAME" or "file:PATH".
    """

    reference: Annotated[str, BeforeValidator(_named)]


def deployed(policy: Policy, context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, name: Names) -> Policy:
    ledger: LedgerResource = getattr(context.resources, name.ledger)
    key: KeyResource = getattr(context.resources, name.key)
    spec = LedgerSpec(**{field: getattr(ledger, field) for field in LedgerSpec.model_fields})
    return policy.model_copy(update={"ledger": spec, "key": key.reference})


Backfill = Literal["multi_run", "single_run"]
"""Division of a backfill into runs: one per partition, or one for all of them."""


class Maintenance(dg.Model):
    """How the ledger of a deployment is maintained: verified, its anchor stored, and a backup made."""

    schedule: str | None = Field(None, description="Cron of a schedule, off at first; by default there is none.")
    backup: str | None = Field(None, description="Folder for backups (SQLite, without the id key); by default none.")
    keep: int = Field(7, description="How many backups stay in that folder; at least 1.")

    @field_validator("keep")
    @classmethod
    def _some(cls, keep: int) -> int:
        if keep < 1:
            raise ValueError("at least one backup stays")
        return keep


GPU = "gpu"  # default pool of mechanisms whose models run on a GPU


@dataclass(frozen=True)
class Settings:
    """The settings that all assets of a dataset share."""

    names: Names  # names of assets, steps and resources
    partitions: dg.PartitionsDefinition | None = None  # the dataset's partitions, or None
    discovered: bool = False  # whether the partitions were found in the names of files, as they were at loading
    backfill: dg.BackfillPolicy | None = None  # division of a backfill into runs; None means one run per partition
    pool: str | None = None  # pool in which staging uses a slot; None leaves it to the mechanisms
    # condition under which Dagster stages automatically; None never does
    automation_condition: dg.AutomationCondition[Any] | None = None
    op_tags: Mapping[str, Any] | None = None  # tags of the staging step, such as tags for a Kubernetes executor
    # how often a failed step is tried again; committed records are neither drawn nor charged again
    retry_policy: dg.RetryPolicy | None = None
    freshness_policy: dg.FreshnessPolicy | None = None  # how old the last publication may be; None says nothing

    def pool_of(self, policy: Policy) -> str | None:
        """Return the pool of the staging step: the named one, or the pool of GPUs if a mechanism runs on one."""
        if self.pool is not None:
            return self.pool
        columns = [] if policy.synthetic is not None else policy.column_policies()
        steps = any(step.accelerated for item in columns for step in item.postprocess)
        return GPU if steps or any(item.mechanism.accelerated for item in columns) else None


def after_gates() -> dg.AutomationCondition[Any]:
    """Return the condition of assets after a gate: an asset above them is new, and every blocking check passed.

    Example:
        ```python
        import dagster as dg
        from dptext_etl.orchestration import after_gates

        @dg.asset(deps=["published_notes"], automation_condition=after_gates())
        def topics() -> None: ...
        ```
    """
    condition = dg.AutomationCondition.eager() & dg.AutomationCondition.all_deps_blocking_checks_passed()
    return condition.with_label("after the gates")


class PublishedTable(dg.IOManager):
    """Load the published table of a policy for parameters such as `def topics(published_notes: pl.LazyFrame)`.

    A parameter annotated `pl.DataFrame` or `pandas.DataFrame` gets such a data frame, any other a lazy frame. An asset
    that reads several partitions gets them one after the other in one frame.

    Args:
        policy: The policy that publishes.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def load_input(self, context: dg.InputContext) -> Any:
        """Return the version that the manifest names; rows are read only when the frame is collected.

        Args:
            context: Dagster's context of the input, with its type and partitions.

        Returns:
            A frame of the annotated type with the rows of all partitions; a lazy frame without an annotation.

        Raises:
            dagster.Failure: Nothing is published there.
        """
        with as_failure("reading the published table"):
            partitions = context.asset_partition_keys if context.has_asset_partitions else [None]
            sinks = [Layout.of(self._policy, partition).sink for partition in partitions]
            frame = pl.concat([scan_published(sink, self._policy.storage_options) for sink in sinks])
            wanted = context.dagster_type.typing_type
            if wanted is pl.DataFrame:
                return frame.collect()
            in_pandas = getattr(wanted, "__module__", "").startswith("pandas") and wanted.__name__ == "DataFrame"
            return frame.collect().to_pandas() if in_pandas else frame

    def handle_output(self, context: dg.OutputContext, obj: object) -> NoReturn:  # noqa: ARG002
        """Refuse to write, because only the runner publishes.

        Args:
            context: Dagster's context of the output; it is not used.
            obj: The output; it is not read.

        Raises:
            PolicyError: Always.
        """
        raise PolicyError("only its own step writes the published table", "give your asset another io_manager_key")
