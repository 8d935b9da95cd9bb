"""Take the steps of a synthetic table in Dagster: stage, judge, publish, and the facts of each.

No fact is a row, a text, or a number of the statistic. Record counts and spends are exact, as of every run, so they
stay inside the boundary with the Dagster instance.
"""

from __future__ import annotations

import time

import dagster as dg

from dptext_etl.checks import Verdict
from dptext_etl.engines.local.engine import LocalEngine
from dptext_etl.engines.synthetic import staged_before, staged_table
from dptext_etl.orchestration import handover
from dptext_etl.orchestration.facts import Metadata, budget, pictures_of_remaining, row_counts
from dptext_etl.policy import Policy
from dptext_etl.runner.observing import Observed
from dptext_etl.runner.progress import Listener
from dptext_etl.runner.synthetic import publishing
from dptext_etl.runner.synthetic.attempt import StagedTable, SyntheticAttempt


def stage(policy: Policy, listener: Listener | None, raw: dg.AssetKey) -> Metadata:
    """Charge, sum, draw, stage, and commit a table."""
    with staged_table(SyntheticAttempt.of(policy, None), LocalEngine(), listener) as step:
        handover.save_table(step.staged)
    staged = step.staged
    return {
        "dagster/row_count": staged.drawn.rows.height,
        **row_counts(staged.rows),
        "seconds": round(staged.seconds, 3),
        "columns dropped unread": ", ".join(staged.dropped) or "none",
        "quarantine": dg.MetadataValue.path(staged.attempt.layout.staging.url),
        **_columns(staged, raw),
    }


def judge(policy: Policy) -> tuple[StagedTable, tuple[Verdict, ...]]:
    """Evaluate the gates of the staged table, and store their verdicts; there are none where nothing new is staged."""
    staged = handover.load_table(policy)
    with staged_before(staged) as step:
        verdicts = publishing.judge(step)
        handover.save_verdicts(staged, verdicts)
    return staged, verdicts


def publish(policy: Policy, seen: Observed, raw: dg.AssetKey) -> Metadata:
    """Publish the staged table, if its gates passed."""
    began, staged = time.monotonic(), handover.load_table(policy)
    verdicts = handover.load_verdicts(staged)
    with staged_before(staged) as step:
        done = publishing.publish(step, verdicts)
    summary = seen.done(publishing.summarize_table(staged, verdicts, done, staged.seconds + time.monotonic() - began))
    handover.clear(staged)
    made = policy.statistic
    return {
        "dagster/row_count": summary.published_rows,
        "dagster/uri": summary.published or "",
        "version": summary.version or 0,
        "notes": "; ".join(summary.notes),
        "epsilon of the whole table for one record": made.epsilon,
        "delta": made.delta,
        **pictures_of_remaining(summary.remaining),
        **budget(summary.remaining),
        **row_counts(summary.rows),
        "gates passed": ", ".join(verdict.name for verdict in verdicts),
        "manifest": dg.MetadataValue.path(staged.attempt.layout.manifest),
        "manifest sha256": summary.manifest or "",
        **_columns(staged, raw),
    }


def _columns(staged: StagedTable, raw: dg.AssetKey) -> Metadata:
    """Return the columns; all of them follow the one statistic of texts and labels."""
    made, names = staged.attempt.synthetic.mechanism, staged.drawn.rows.columns
    said = f"public, drawn to follow one noisy statistic: {made.name}, epsilon {made.epsilon:g} for the whole table"
    tags = {"mechanism": made.name, "epsilon": f"{made.epsilon:g}"}
    columns = [dg.TableColumn(name, "String", description=said, tags=tags) for name in names]
    above = [dg.TableColumnDep(asset_key=raw, column_name=name) for name in names]
    return {
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "dagster/column_lineage": dg.TableColumnLineage(deps_by_column=dict.fromkeys(names, above)),
    }
