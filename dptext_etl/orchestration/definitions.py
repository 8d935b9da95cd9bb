"""One policy becomes a Dagster code location: source, quarantine, gates, published table, job and resources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from dptext_etl.orchestration.assets import published_asset, raw_asset, staged_asset
from dptext_etl.orchestration.gates import gate_checks
from dptext_etl.orchestration.names import names
from dptext_etl.orchestration.partitions import partitions_definition
from dptext_etl.orchestration.resources import KeyResource, LedgerResource
from dptext_etl.policy import Policy


def build_definitions(
    policy: str | Path | Policy,
    *,
    partitions: Sequence[str] | None = None,
    ledger: LedgerResource | None = None,
    key: KeyResource | None = None,
) -> dg.Definitions:
    """Return the definitions of one dataset.

    Assets `raw_<dataset>`, `staged_<dataset>` and `published_<dataset>` (none where the policy says `publish = false`),
    one blocking check per gate on the staged asset, and the job `privatize_<dataset>`. Steps share files alone, so
    everything runs in one process and no I/O manager is asked to hold a frame. Events, metadata and logs hold counts,
    names and spends; the spends are exact, so a Dagster instance belongs inside the boundary.

    Args:
        policy: The policy or its TOML file.
        partitions: Values of "{partition}"; the files that match the source are listed if absent.
        ledger: The ledger of this deployment; the policy's if absent.
        key: The noise key of this deployment, by reference; the policy's if absent.

    Raises:
        PolicyError: The policy cannot be read, or its partitions cannot be found.

    Example:
        ```python
        from dptext_etl.orchestration import build_definitions

        defs = build_definitions("privacy.toml")
        ```
    """
    policy = policy if isinstance(policy, Policy) else Policy.load(policy)
    name = names(policy)
    parts = partitions_definition(policy, partitions)
    steps = [staged_asset(policy, parts), *([published_asset(policy, parts)] if policy.publish else [])]
    return dg.Definitions(
        assets=[raw_asset(policy, parts), *steps],
        asset_checks=[gate_checks(policy)],
        jobs=[dg.define_asset_job(name.job, selection=dg.AssetSelection.assets(*steps), description=_JOB)],
        resources={"ledger": ledger or LedgerResource.of(policy), "key": key or KeyResource.of(policy)},
        executor=dg.in_process_executor,
    )


_JOB = "Reserve, draw, stage, commit, check, publish. The same release again costs nothing and gives the same bytes."
