"""Build the Dagster definitions of a policy: source, quarantine, gates, published table, job and resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import dagster as dg

from dptext_etl.errors import PolicyError, bare
from dptext_etl.orchestration.assets import published_asset, raw_asset, schedule_of, source_sensor, staged_asset
from dptext_etl.orchestration.gates import gate_checks, published_checks
from dptext_etl.orchestration.lineage import check_lineage
from dptext_etl.orchestration.names import Partitions, PolicyTranslator, names, partitions_definition
from dptext_etl.orchestration.resources import (
    Backfill,
    KeyResource,
    LedgerResource,
    PublishedTable,
    Settings,
    backfill_policy,
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
    reports: Sequence[Report] = (),
) -> dg.Definitions:
    """Return the definitions of one dataset.

    The definitions hold the assets `raw_<dataset>`, `staged_<dataset>` and `published_<dataset>` (without the last one
    if the policy says `publish = false`), one blocking check per gate and warnings on the staged asset, blocking checks
    on the published one, the job `run_<dataset>`, and the resources `ledger_<dataset>`, `key_<dataset>` and
    `table_<dataset>`. Definitions of several datasets can be merged. Steps share files alone, so no I/O manager holds a
    frame. Events, metadata and logs hold counts, names and spends. The spends are exact, so a Dagster instance belongs
    inside the boundary.

    Args:
        policy: The policy or its TOML file.
        partitions: Values of "{partition}": names, or a definition of Dagster such as
            `dg.MonthlyPartitionsDefinition("2026-01", fmt="%Y-%m")`; None takes those of the existing files.
        backfill: "multi_run" takes a run per partition, "single_run" one run for all of them.
        pool: Pool in which staging takes a slot; None takes "gpu" if a mechanism's models run on a GPU, otherwise none.
        automation_condition: Condition under which Dagster stages automatically; None never does. If automation is
            switched on, rows that were staged automatically and pass their gates are published automatically.
        executor: Executor of the job and of the whole code location. None runs the steps of the job in one process, and
            leaves everything else to the code location, so that the definitions can be merged with any other.
        key_prefix: What stands before the keys of all assets; steps, job and resources take it, too. Several releases
            of a dataset fit into one code location by it.
        source_asset: An asset of yours that writes the source; it takes the place of `raw_<dataset>`, and counts as raw
            for `check_lineage`.
        op_tags: Tags of the staging step and of the job's runs, such as "dagster-k8s/config"; None takes those of the
            policy (`[dagster] tags`).
        retry_policy: How often a failed step is tried again; what is committed is neither drawn nor charged again.
        freshness_policy: How old the last publication may be before Dagster warns; every run that publishes counts,
            also one that found nothing new.
        group_name: Group of the assets; None takes the dataset.
        owners: Owners of the assets: e-mail addresses, or "team:NAME".
        translator: Names the assets in a way of your own, in the place of `key_prefix`, `group_name` and `owners`.
        schedule: Cron of a schedule of the job, off at first; partitions by time bring their own times.
        watch_source: Add a sensor that starts the job for new files, off at first.
        ledger: The ledger of this deployment; None takes the policy's.
        key: Reference to the noise key of this deployment; None takes the policy's.
        reports: Reports on the release, such as `dptext_etl_eval.orchestration.EvidenceReport`. Each makes an asset
            that is no part of the job, and nothing waits for it.

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
        raise PolicyError(
            "freshness is that of the published asset, and the policy says publish = false",
            "publish, or leave freshness_policy out",
        )
    name = names(policy, _chosen(translator, key_prefix, group_name, owners), _key_of(source_asset))
    parts = partitions_definition(policy, partitions)
    tags = dict(policy.dagster.tags if op_tags is None else op_tags)
    settings = Settings(
        names=name,
        partitions=parts,
        backfill=backfill_policy(backfill, parts),
        pool=pool,
        automation_condition=automation_condition,
        op_tags=tags or None,
        retry_policy=retry_policy,
        freshness_policy=freshness_policy,
    )
    steps = [staged_asset(policy, settings), *([published_asset(policy, settings)] if policy.publish else [])]
    checks = [gate_checks(policy, settings), *([published_checks(policy, settings)] if policy.publish else [])]
    extra = [report.asset(policy, settings) for report in reports]
    job = dg.define_asset_job(
        name.job,
        selection=dg.AssetSelection.assets(*steps),
        description=_JOB,
        executor_def=executor or dg.in_process_executor,
        tags=tags or None,
    )
    made = dg.Definitions(
        assets=[*([raw_asset(policy, settings)] if source_asset is None else []), *steps, *extra],
        asset_checks=[item for item in checks if item is not None],
        jobs=[job],
        schedules=[schedule_of(schedule, job, settings)] if schedule else [],
        sensors=[source_sensor(policy, job, settings)] if watch_source else [],
        resources={
            name.ledger: ledger or LedgerResource.of(policy),
            name.key: key or KeyResource.of(policy),
            name.table: PublishedTable(policy),
        },
        executor=executor,
    )
    return check_lineage(made)


_JOB = "Reserve, draw, stage, commit, check, publish. The same release again costs nothing and gives the same bytes."


def _chosen(
    translator: PolicyTranslator | None,
    key_prefix: Sequence[str] | str | None,
    group_name: str | None,
    owners: Sequence[str] | None,
) -> PolicyTranslator:
    if translator is None:
        return PolicyTranslator(key_prefix, group_name, owners)
    if any(given is not None for given in (key_prefix, group_name, owners)):
        raise PolicyError("a translator names the assets, so nothing else can", "give key_prefix and the like to it")
    return translator


def _key_of(
    source: dg.CoercibleToAssetKey | dg.AssetsDefinition | dg.AssetSpec | None,
) -> dg.CoercibleToAssetKey | None:
    return source.key if isinstance(source, (dg.AssetsDefinition, dg.AssetSpec)) else source
