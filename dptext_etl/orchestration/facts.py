"""Collect the facts of a run for Dagster: counts, spends, names and places; never a row, a text, an id or a sample."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import dagster as dg

from dptext_etl.checks.candidate import declared_lineage
from dptext_etl.data_types import kind_of, plain_type
from dptext_etl.escaping import markdown
from dptext_etl.families.aggregate.statistic import VERSION
from dptext_etl.guarantee import MICRO
from dptext_etl.orchestration.steps import as_json
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner import Manifest, RunSummary, StagedRun
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.roles import shown_columns
from dptext_etl.runner.summary import shown_rows

Metadata = dict[str, Any]


def claims(policy: Policy) -> Metadata:
    rows = ["| column | mechanism | its parameter epsilon | class | disclosed | then |", "|---|---|---|---|---|---|"]
    for column in policy.charged_columns():
        mechanism, guarantee = column.mechanism, column.mechanism.guarantee
        disclosed = ", ".join(sorted(guarantee.disclosures)) or "nothing"
        cells = [mechanism.name, f"{mechanism.epsilon:g}", guarantee.guarantee_class.value, disclosed]
        rows.append(f"| {markdown(str(column.column))} | {' | '.join(cells)} | {_steps(column) or '-'} |")
    return {"release": policy.release, "guarantee": dg.MetadataValue.md("\n".join(rows))}


def code_version(policy: Policy) -> str:
    """Return a version made of the parameters of all text columns; Dagster marks assets of another version as outdated.

    The configuration hash needs the mechanisms' tables, which a code location must not build when it is loaded.
    """
    if policy.synthetic is not None:
        parts = [f"{VERSION} {as_json(policy.synthetic)}"]
    else:
        columns = policy.column_policies()
        items: list[Any] = [column.mechanism for column in columns]
        items += [step for column in columns for step in column.postprocess]
        parts = [f"{item.name} {item.version} {as_json(item)}" for item in items]
    return hashlib.sha256("\0".join([policy.release, *parts]).encode()).hexdigest()[:12]


def of_staged(staged: StagedRun, raw: dg.AssetKey) -> Metadata:
    draws = sum(shard.counts["words"] for shard in staged.shards)
    schema = Staging(staged.layout.staging).schema(staged.shards[0]) if staged.shards else {}
    return {
        "dagster/row_count": sum(shard.counts["rows"] for shard in staged.shards),
        **row_counts(staged.rows),
        "draws": draws,
        "seconds": round(staged.seconds, 3),
        "draws per second": round(draws / staged.seconds) if staged.seconds else 0,
        "columns dropped unread": ", ".join(staged.dropped) or "none",
        "staging": dg.MetadataValue.path(staged.layout.staging.url),
        **_columns(
            staged.policy, {name: kind_of(plain_type(dtype, rename=True)) for name, dtype in schema.items()}, raw
        ),
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
        **_of_table(staged.policy),
        **budget(summary.remaining),
        **row_counts(summary.rows),
        "gates passed": ", ".join(gate["name"] for gate in summary.gates),
    }
    if summary.published and manifest:
        facts |= {
            "dagster/uri": summary.published,
            "manifest": dg.MetadataValue.path(staged.layout.manifest),
            "manifest sha256": summary.manifest or "",
            **_columns(staged.policy, manifest.kinds, raw),
        }
    return facts


def _of_table(policy: Policy) -> Metadata:
    """Return what a synthetic table costs as a whole; nothing for released texts."""
    if policy.synthetic is None:
        return {}
    made = policy.synthetic.mechanism
    return {"epsilon of the whole table for one record": made.epsilon, "delta": made.delta}


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


def row_counts(rows: Mapping[str, int]) -> Metadata:
    """Return the row counts, the rarer kinds only if they are not 0."""
    counted = {name: count for name, count in rows.items() if count or name in _ALWAYS}
    return {f"rows {name}": count for name, count in shown_rows(counted).items()}


def _steps(column: ColumnPolicy) -> str:
    return ", ".join(step.name for step in column.postprocess)


def _number(amount: float | str) -> float | str:
    return amount if isinstance(amount, str) else round(float(amount), 3)


def _columns(policy: Policy, schema: Mapping[str, str], raw: dg.AssetKey) -> Metadata:
    """Return the columns and the origin of each; a column that the policy keeps next to what was made of it, too.

    All columns of a synthetic table follow the one statistic of texts and labels.
    """
    if policy.synthetic is not None:
        made, names = policy.synthetic.mechanism, policy.synthetic.columns
        text = f"public, drawn to follow one noisy statistic: {made.name}, epsilon {made.epsilon:g} for the whole table"
        tags = {"mechanism": made.name, "epsilon": f"{made.epsilon:g}"}
        columns = [dg.TableColumn(name, "String", description=text, tags=tags) for name in names]
        above = [dg.TableColumnDep(asset_key=raw, column_name=name) for name in names]
        return _schema(columns, dict.fromkeys(names, above))
    published = set(shown_columns(policy))
    edges = [edge for edge in declared_lineage(policy) if edge.output in published]
    spent = {column.column: column for column in policy.column_policies()}
    columns = []
    for edge in edges:
        keyed = edge.way == "id" and policy.ids == "keyed"
        text = "published as a keyed hash of the id" if keyed else "passes in clear"
        tags = {"way": str(edge.way)}
        if edge.way == "released":
            column = spent[edge.source]
            mechanism = column.mechanism
            text = f"released by {mechanism.name} with the parameter epsilon {mechanism.epsilon:g}"
            tags = {"mechanism": mechanism.name, "epsilon": f"{mechanism.epsilon:g}"}
            if column.postprocess and edge.output == edge.source:
                text += f", then rewritten at no cost: {_steps(column)}"
                tags["postprocess"] = _steps(column)
        columns.append(dg.TableColumn(edge.output, schema.get(edge.output, "unknown"), description=text, tags=tags))
    deps = {edge.output: [dg.TableColumnDep(asset_key=raw, column_name=edge.source)] for edge in edges}
    return _schema(columns, deps)


def _schema(columns: list[dg.TableColumn], deps: Mapping[str, list[dg.TableColumnDep]]) -> Metadata:
    return {
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "dagster/column_lineage": dg.TableColumnLineage(deps_by_column=deps),
    }
