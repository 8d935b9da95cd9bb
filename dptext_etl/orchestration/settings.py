"""What Dagster decides about a dataset beside its policy: partitions, backfills, pool, automation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import dagster as dg

from dptext_etl.policy import Policy

Backfill = Literal["multi_run", "single_run"]
"""How a backfill is cut into runs: one per partition, or one for all of them."""

GPU = "gpu"
"""The pool of mechanisms whose models run on a GPU, unless another is named."""


@dataclass(frozen=True)
class Settings:
    """The same for every asset of a dataset.

    Attributes:
        partitions: The dataset's partitions, or None.
        backfill: How a backfill is cut into runs; None takes one per partition.
        pool: The pool that staging takes a slot of; None leaves it to the mechanisms.
        automation_condition: When Dagster stages by itself; None never does.
    """

    partitions: dg.PartitionsDefinition | None = None
    backfill: dg.BackfillPolicy | None = None
    pool: str | None = None
    automation_condition: dg.AutomationCondition[Any] | None = None

    def pool_of(self, policy: Policy) -> str | None:
        """Return the pool of the staging step: the one named, or that of GPUs where a mechanism runs on one."""
        if self.pool is not None:
            return self.pool
        return GPU if any(column.mechanism.accelerated for column in policy.column_policies()) else None


def backfill_policy(how: Backfill, partitions: dg.PartitionsDefinition | None) -> dg.BackfillPolicy | None:
    """Return Dagster's policy for a dataset's partitions; None is its default, a run per partition.

    One run for all of them is sound: every partition is staged, judged and published as it would be by itself, and one
    fired gate publishes none of them.
    """
    return dg.BackfillPolicy.single_run() if how == "single_run" and partitions is not None else None


def after_gates() -> dg.AutomationCondition[Any]:
    """Return the condition of what follows a gate: as soon as anything above is new, and every blocking check passed.

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
