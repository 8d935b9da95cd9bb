"""Hold the settings of a dataset in Dagster that no policy has: partitions, backfills, pool, automation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import dagster as dg

from dptext_etl.orchestration.names import Names
from dptext_etl.policy import Policy

Backfill = Literal["multi_run", "single_run"]
"""Division of a backfill into runs: one per partition, or one for all of them."""

GPU = "gpu"
"""Default pool of mechanisms whose models run on a GPU."""


@dataclass(frozen=True)
class Settings:
    """The settings that all assets of a dataset share.

    Attributes:
        names: Names of assets, steps and resources.
        partitions: The dataset's partitions, or None.
        backfill: Division of a backfill into runs; None takes one run per partition.
        pool: Pool in which staging takes a slot; None leaves it to the mechanisms.
        automation_condition: Condition under which Dagster stages automatically; None never does.
        op_tags: Tags of the staging step, such as what a Kubernetes executor reads.
        retry_policy: How often a failed step is tried again; committed records are neither drawn nor charged again.
        freshness_policy: How old the last publication may be; None says nothing.
    """

    names: Names
    partitions: dg.PartitionsDefinition | None = None
    backfill: dg.BackfillPolicy | None = None
    pool: str | None = None
    automation_condition: dg.AutomationCondition[Any] | None = None
    op_tags: Mapping[str, Any] | None = None
    retry_policy: dg.RetryPolicy | None = None
    freshness_policy: dg.FreshnessPolicy | None = None

    def pool_of(self, policy: Policy) -> str | None:
        """Return the pool of the staging step: the named one, or that of GPUs if a mechanism runs on one."""
        if self.pool is not None:
            return self.pool
        columns = policy.column_policies()
        steps = any(step.accelerated for item in columns for step in item.postprocess)
        return GPU if steps or any(item.mechanism.accelerated for item in columns) else None


def backfill_policy(how: Backfill, partitions: dg.PartitionsDefinition | None) -> dg.BackfillPolicy | None:
    """Return Dagster's policy for a dataset's partitions; None is its default, one run per partition.

    One run for all partitions is sound: every partition is staged, judged and published as in a run of its own, and if
    one gate fails, none of them is published.
    """
    return dg.BackfillPolicy.single_run() if how == "single_run" and partitions is not None else None


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
