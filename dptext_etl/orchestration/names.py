"""Name a dataset, its stages, its resources, and its partitions in Dagster.

A translator maps policies to your names. Names of partitions replace "{partition}" in the source.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import dagster as dg

from dptext_etl.errors import PolicyError
from dptext_etl.policy import PARTITION, Policy
from dptext_etl.runner.layout import check_partition, is_remote
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


def names(
    policy: Policy, translator: PolicyTranslator | None = None, source: dg.CoercibleToAssetKey | None = None
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


Partitions = Sequence[str] | dg.PartitionsDefinition  # names, or a definition of Dagster: static, by time, or dynamic

_SOME_TIME = datetime(2001, 12, 31, 23, 59, tzinfo=UTC)


def partitions_definition(policy: Policy, partitions: Partitions | None = None) -> dg.PartitionsDefinition | None:
    if PARTITION not in policy.source:
        if partitions is not None:
            msg = f"partitions were given, and the source has no {PARTITION}"
            raise PolicyError(msg, f"write {PARTITION} in source and sink")
        return None
    if isinstance(partitions, dg.PartitionsDefinition):
        _check(policy, partitions)
        return partitions
    values = list(partitions) if partitions is not None else discovered(policy)
    if not values:
        msg = f"no file matches the source's template, so {PARTITION} has no values"
        raise PolicyError(msg, "pass partitions=[…], or add files")
    static = dg.StaticPartitionsDefinition(values)
    _check(policy, static)
    return static


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


def _check(policy: Policy, partitions: dg.PartitionsDefinition) -> None:
    """Refuse names that cannot be part of a path, before a run uses them; dynamic definitions are checked later."""
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        raise PolicyError("partitions of two dimensions have no place in a path", "give one dimension")
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        examples = [_SOME_TIME.strftime(partitions.fmt)]
    elif isinstance(partitions, dg.StaticPartitionsDefinition):
        examples = list(partitions.get_partition_keys())
    else:
        examples = []
    for name in examples:
        check_partition(policy, name)
