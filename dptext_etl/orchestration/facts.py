"""Collect the facts of a run for Dagster: counts, spends, names and places; never a row, a text, an id or a sample."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import dagster as dg

from dptext_etl.checks import Lineage
from dptext_etl.guarantee import MICRO
from dptext_etl.orchestration import pictures
from dptext_etl.orchestration.written import written
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner import Manifest, RunSummary, StagedRun
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.roles import published_columns

Metadata = dict[str, Any]


def claims(policy: Policy) -> Metadata:
    """Return a table for people with the guarantee of every text column, before anything runs."""
    rows = ["| column | mechanism | its parameter epsilon | class | disclosed | then |", "|---|---|---|---|---|---|"]
    for column in policy.column_policies():
        mechanism, guarantee = column.mechanism, column.mechanism.guarantee
        disclosed = ", ".join(sorted(guarantee.disclosures)) or "nothing"
        said = (f"{mechanism.epsilon:g}", guarantee.guarantee_class.value, disclosed)
        rows.append(f"| {column.column} | {mechanism.name} | {' | '.join(said)} | {_steps(column) or '-'} |")
    return {"release": policy.release, "guarantee": dg.MetadataValue.md("\n".join(rows))}


def code_version(policy: Policy) -> str:
    """Return a version made of the parameters of all text columns; Dagster marks assets of another version as outdated.

    The configuration hash needs the mechanisms' tables, which a code location must not build when it is loaded.
    """
    mechanisms = [column.mechanism for column in policy.column_policies()]
    steps = [step for column in policy.column_policies() for step in column.postprocess]
    said = [policy.release, *(f"{item.name} {item.version} {written(item)}" for item in mechanisms)]
    said += [f"{step.name} {step.version} {written(step)}" for step in steps]
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:12]


def of_staged(staged: StagedRun, raw: dg.AssetKey) -> Metadata:
    """Return the facts of a staged run."""
    words = sum(shard.counts["words"] for shard in staged.shards)
    schema = Staging(staged.layout.shelf).schema(staged.shards[0]) if staged.shards else {}
    return {
        "dagster/row_count": staged.rows["released"],
        **_rows(staged.rows),
        "words": words,
        "seconds": round(staged.seconds, 3),
        "words per second": round(words / staged.seconds) if staged.seconds else 0,
        **pictures.of_spends(staged),
        "columns dropped unread": ", ".join(staged.dropped) or "none",
        "quarantine": dg.MetadataValue.path(staged.layout.inside.where),
        **_columns(staged.policy, {name: str(dtype) for name, dtype in schema.items()}, raw),
    }


def of_published(staged: StagedRun, summary: RunSummary, raw: dg.AssetKey) -> Metadata:
    """Return the facts of a published run: its contents, its cost, and the remaining budget."""
    manifest = Manifest.read(staged.layout)
    largest = summary.spend["largest_record"]
    facts: Metadata = {
        "dagster/row_count": summary.published_rows,
        "version": summary.version or 0,
        "notes": "; ".join(summary.notes),
        "largest epsilon of a record": _number(largest["eps_approx"]),
        "log10 odds of that record": _number(largest["log10_odds"]),
        **pictures.of_spends(staged),
        **pictures.of_remaining(summary.remaining),
        **budget(summary.remaining),
        **_rows(summary.rows),
        "gates passed": ", ".join(gate["name"] for gate in summary.gates),
    }
    if summary.published and manifest:
        facts |= {
            "dagster/uri": summary.published,
            "manifest": dg.MetadataValue.path(staged.layout.manifest),
            "manifest sha256": summary.manifest or "",
            **_columns(staged.policy, manifest.schema, raw),
        }
    return facts


def budget(remaining: Mapping[str, Any]) -> Metadata:
    """Return what units have left as numbers, which Dagster's pages plot over the materializations of an asset."""
    found: Metadata = {}
    for component, left in remaining["left"].items():
        for quantile, amount in left.items():
            if quantile in _PLOTTED:
                found[f"{component} left, {_PLOTTED[quantile]}"] = round(int(amount) / MICRO, 6)
    if found:
        found[f"{remaining['unit']}s at their cap"] = int(remaining["exhausted"])
    return found


_PLOTTED = {"min": "least", "p50": "median"}
_ALWAYS = ("read", "new", "replayed", "quarantined", "released")


def _rows(rows: Mapping[str, int]) -> Metadata:
    """Return the row counts, the rarer kinds only if they are not 0."""
    return {f"rows {name.replace('_', ' ')}": count for name, count in rows.items() if count or name in _ALWAYS}


def _steps(column: ColumnPolicy) -> str:
    """Return the names of the post-processings of a column, in their order; empty if it has none."""
    return ", ".join(step.name for step in column.postprocess)


def _number(amount: float | str) -> float | str:
    return amount if isinstance(amount, str) else round(float(amount), 3)


def _columns(policy: Policy, schema: Mapping[str, str], raw: dg.AssetKey) -> Metadata:
    """Return the columns and the origin of each; a column that the policy keeps next to what was made of it, too."""
    published = set(published_columns(policy))
    edges = [edge for edge in Lineage.declared(policy).edges if edge.output in published]
    spent = {column.column: column for column in policy.column_policies()}
    columns = []
    for edge in edges:
        said, tags = "passes in clear", {"way": str(edge.way)}
        if edge.way == "released":
            column = spent[edge.source]
            mechanism = column.mechanism
            said = f"released by {mechanism.name} with the parameter epsilon {mechanism.epsilon:g}"
            tags = {"mechanism": mechanism.name, "epsilon": f"{mechanism.epsilon:g}"}
            if column.postprocess and edge.output == edge.source:
                said += f", then rewritten at no cost: {_steps(column)}"
                tags["postprocess"] = _steps(column)
        columns.append(dg.TableColumn(edge.output, schema.get(edge.output, "unknown"), description=said, tags=tags))
    deps = {edge.output: [dg.TableColumnDep(asset_key=raw, column_name=edge.source)] for edge in edges}
    return {
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "dagster/column_lineage": dg.TableColumnLineage(deps_by_column=deps),
    }
