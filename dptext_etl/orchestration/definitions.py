"""Build the Dagster definitions of a policy: source, quarantine, gates, published table, job and resources."""

from __future__ import annotations

from typing import Any

import dagster as dg

from dptext_etl.orchestration.assets import published_asset, raw_asset, staged_asset
from dptext_etl.orchestration.evidence import EvidenceReport, evidence_asset
from dptext_etl.orchestration.gates import gate_checks
from dptext_etl.orchestration.lineage import check_lineage
from dptext_etl.orchestration.names import names
from dptext_etl.orchestration.partitions import Partitions, partitions_definition
from dptext_etl.orchestration.reading import PublishedTable
from dptext_etl.orchestration.recheck import published_checks
from dptext_etl.orchestration.resources import KeyResource, LedgerResource
from dptext_etl.orchestration.settings import Backfill, Settings, backfill_policy
from dptext_etl.policy import PolicyLike, resolve


def build_definitions(
    policy: PolicyLike,
    *,
    partitions: Partitions | None = None,
    backfill: Backfill = "multi_run",
    pool: str | None = None,
    automation_condition: dg.AutomationCondition[Any] | None = None,
    executor: dg.ExecutorDefinition | None = dg.in_process_executor,
    ledger: LedgerResource | None = None,
    key: KeyResource | None = None,
    evidence: EvidenceReport | None = None,
) -> dg.Definitions:
    """Return the definitions of one dataset.

    The definitions hold the assets `raw_<dataset>`, `staged_<dataset>` and `published_<dataset>` (without the last one
    if the policy says `publish = false`), one blocking check per gate and warnings on the staged asset, blocking checks
    on the published one, the job `privatize_<dataset>`, and the resources `ledger_<dataset>`, `key_<dataset>` and
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
        executor: Executor of the steps of a run; None leaves it to the code location.
        ledger: The ledger of this deployment; None takes the policy's.
        key: Reference to the noise key of this deployment; None takes the policy's.
        evidence: What a report of the release measures, and its folder; the asset `evidence_<dataset>` makes it. None
            makes no such asset. It is no part of the job, and nothing waits for it.

    Raises:
        PolicyError: The policy cannot be read, or its partitions cannot be found or cannot be part of a path.

    Example:
        ```python
        from dptext_etl.orchestration import build_definitions

        defs = build_definitions("privacy.toml")
        ```
    """
    policy = resolve(policy)
    name = names(policy)
    parts = partitions_definition(policy, partitions)
    settings = Settings(parts, backfill_policy(backfill, parts), pool, automation_condition)
    steps = [staged_asset(policy, settings), *([published_asset(policy, settings)] if policy.publish else [])]
    checks = [gate_checks(policy, settings), *([published_checks(policy, settings)] if policy.publish else [])]
    reports = [] if evidence is None else [evidence_asset(policy, settings, evidence)]
    made = dg.Definitions(
        assets=[raw_asset(policy, settings), *steps, *reports],
        asset_checks=[item for item in checks if item is not None],
        jobs=[
            dg.define_asset_job(
                name.job, selection=dg.AssetSelection.assets(*steps), description=_JOB, executor_def=executor
            )
        ],
        resources={
            name.ledger: ledger or LedgerResource.of(policy),
            name.key: key or KeyResource.of(policy),
            name.table: PublishedTable(policy),
        },
        executor=executor,
    )
    return check_lineage(made)


_JOB = "Reserve, draw, stage, commit, check, publish. The same release again costs nothing and gives the same bytes."
