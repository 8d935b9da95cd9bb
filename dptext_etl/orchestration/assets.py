"""The three assets of a dataset: the source, what is staged in quarantine, what is published.

Steps share files, never frames: the runner writes and reads them, so no I/O manager sees a row, and a step can be
run again by itself.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of a step's parameters when it is made.
import time

import dagster as dg

from dptext_etl import runner
from dptext_etl.orchestration import facts, handover
from dptext_etl.orchestration.failures import told
from dptext_etl.orchestration.names import names
from dptext_etl.orchestration.resources import KeyResource, LedgerResource, deployed
from dptext_etl.policy import Policy
from dptext_etl.runner.progress import Listener
from dptext_etl.runner.summary import summarise

Partitions = dg.PartitionsDefinition | None


def raw_asset(policy: Policy, partitions: Partitions) -> dg.AssetSpec:
    """Return the source: known to Dagster by name and place, never read by it."""
    name = names(policy)
    return dg.AssetSpec(
        name.raw,
        description="The raw table, inside the boundary. Dagster knows where it is and reads nothing of it.",
        metadata={"dagster/uri": policy.source, "text columns": ", ".join(column.name for column in policy.columns)},
        group_name=name.group,
        partitions_def=partitions,
        kinds={"text"},
    )


def staged_asset(policy: Policy, partitions: Partitions) -> dg.AssetsDefinition:
    """Return the step that reserves, draws, stages and commits."""
    name = names(policy)

    @dg.asset(
        key=name.staged,
        deps=[name.raw],
        description="Released rows in quarantine, inside the boundary: charged, committed and not yet checked.",
        metadata=facts.claims(policy),
        group_name=name.group,
        partitions_def=partitions,
        code_version=facts.code_version(policy),
        kinds={"polars"},
    )
    def staged(context: dg.AssetExecutionContext, ledger: LedgerResource, key: KeyResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        with told("staging"):
            run = runner.stage(
                deployed(policy, ledger, key), partition=partition_of(context), progress=_teller(context)
            )
            handover.leave_run(run)
            return dg.MaterializeResult(metadata=facts.of_staged(run))

    return staged


def published_asset(policy: Policy, partitions: Partitions) -> dg.AssetsDefinition:
    """Return the step that publishes what passed every gate; it publishes nothing without their verdicts."""
    name = names(policy)

    @dg.asset(
        key=name.published,
        deps=[name.staged],
        description="The published table: one version per release, under a manifest that is replaced atomically.",
        metadata=facts.claims(policy),
        group_name=name.group,
        partitions_def=partitions,
        code_version=facts.code_version(policy),
        kinds={"parquet"},
    )
    def published(context: dg.AssetExecutionContext, ledger: LedgerResource, key: KeyResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        with told("publishing"):
            began = time.monotonic()
            staged = handover.find_run(deployed(policy, ledger, key), partition_of(context))
            verdicts = handover.find_verdicts(staged)
            done = runner.publish(staged, verdicts, progress=_teller(context))
            summary = summarise(staged, verdicts, done, staged.seconds + time.monotonic() - began)
            handover.clear(staged)
            return dg.MaterializeResult(metadata=facts.of_published(staged, summary))

    return published


def partition_of(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> str | None:
    """Return the partition that a step runs for, or None where the dataset has none."""
    return context.partition_key if context.has_partition_key else None


def _teller(context: dg.AssetExecutionContext) -> Listener:
    """Say in the log how far a phase is, at its end: counts only."""

    def tell(seen: runner.Progress) -> None:
        if seen.rows_total and seen.rows_done >= seen.rows_total:
            context.log.info(f"{seen.phase}: {seen.rows_done:,} rows in {seen.seconds:.1f} s")

    return tell
