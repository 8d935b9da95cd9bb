"""Collect the facts of a run for Dagster: counts, spends, names and places; never a row, a text, an id or a sample."""

from __future__ import annotations

import base64
import hashlib
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import dagster as dg

from dptext_etl.checks.candidate import declared_lineage
from dptext_etl.escaping import markdown, one_line
from dptext_etl.families.aggregate.statistic import VERSION
from dptext_etl.guarantee import MICRO, Disclosure
from dptext_etl.mechanism import worst_spend
from dptext_etl.orchestration.steps import as_json
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.policy.synthetic import CLAIM
from dptext_etl.runner import Manifest, RunSummary, StagedRun
from dptext_etl.runner.publish.gating import copies_of
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.roles import shown_columns
from dptext_etl.runner.synthetic.attempt import StagedTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Metadata = dict[str, Any]


def claims(policy: Policy) -> Metadata:
    rows = ["| column | mechanism | its parameter epsilon | class | disclosed | then |", "|---|---|---|---|---|---|"]
    for column in [] if policy.synthetic is not None else policy.column_policies():
        mechanism, guarantee = column.mechanism, column.mechanism.guarantee
        disclosed = ", ".join(sorted(guarantee.disclosures)) or "nothing"
        cells = [mechanism.name, f"{mechanism.epsilon:g}", guarantee.guarantee_class.value, disclosed]
        rows.append(f"| {markdown(str(column.column))} | {' | '.join(cells)} | {_steps(column) or '-'} |")
    if policy.synthetic is not None:
        statistic = policy.synthetic.mechanism
        cells = [statistic.name, f"{statistic.epsilon:g}", CLAIM.guarantee_class.value, "nothing", "-"]
        rows.append(f"| {markdown(policy.synthetic.column)} | {' | '.join(cells)} |")
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
        "dagster/row_count": staged.rows["released"],
        **row_counts(staged.rows),
        "draws": draws,
        "seconds": round(staged.seconds, 3),
        "draws per second": round(draws / staged.seconds) if staged.seconds else 0,
        **pictures_of_spends(staged),
        "columns dropped unread": ", ".join(staged.dropped) or "none",
        "quarantine": dg.MetadataValue.path(staged.layout.staging.url),
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
        **pictures_of_spends(staged),
        **pictures_of_remaining(summary.remaining),
        **budget(summary.remaining),
        **row_counts(summary.rows),
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


def of_staged_table(staged: StagedTable, raw: dg.AssetKey) -> Metadata:
    return {
        "dagster/row_count": staged.drawn.rows.height,
        **row_counts(staged.rows),
        "seconds": round(staged.seconds, 3),
        "columns dropped unread": ", ".join(staged.dropped) or "none",
        "quarantine": dg.MetadataValue.path(staged.attempt.layout.staging.url),
        **_table_columns(staged, raw),
    }


def of_published_table(staged: StagedTable, summary: RunSummary, raw: dg.AssetKey) -> Metadata:
    statistic = staged.policy.statistic
    return {
        "dagster/row_count": summary.published_rows,
        "dagster/uri": summary.published or "",
        "version": summary.version or 0,
        "notes": "; ".join(summary.notes),
        "epsilon of the whole table for one record": statistic.epsilon,
        "delta": statistic.delta,
        **pictures_of_remaining(summary.remaining),
        **budget(summary.remaining),
        **row_counts(summary.rows),
        "gates passed": ", ".join(gate["name"] for gate in summary.gates),
        "manifest": dg.MetadataValue.path(staged.attempt.layout.manifest),
        "manifest sha256": summary.manifest or "",
        **_table_columns(staged, raw),
    }


def _table_columns(staged: StagedTable, raw: dg.AssetKey) -> Metadata:
    """Return the columns; all of them follow the one statistic of texts and labels."""
    mechanism, names = staged.attempt.synthetic.mechanism, staged.drawn.rows.columns
    text = f"public, drawn to follow one noisy statistic: {mechanism.name}, "
    text += f"epsilon {mechanism.epsilon:g} for the whole table"
    tags = {"mechanism": mechanism.name, "epsilon": f"{mechanism.epsilon:g}"}
    columns = [dg.TableColumn(name, "String", description=text, tags=tags) for name in names]
    above = [dg.TableColumnDep(asset_key=raw, column_name=name) for name in names]
    return _schema(columns, dict.fromkeys(names, above))


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
    return {f"rows {name.replace('_', ' ')}": count for name, count in rows.items() if count or name in _ALWAYS}


def _steps(column: ColumnPolicy) -> str:
    return ", ".join(step.name for step in column.postprocess)


def _number(amount: float | str) -> float | str:
    return amount if isinstance(amount, str) else round(float(amount), 3)


def _columns(policy: Policy, schema: Mapping[str, str], raw: dg.AssetKey) -> Metadata:
    """Return the columns and the origin of each; a column that the policy keeps next to what was made of it, too."""
    published = set(shown_columns(policy))
    edges = [edge for edge in declared_lineage(policy) if edge.output in published]
    spent = {column.column: column for column in policy.column_policies()}
    columns = []
    for edge in edges:
        text, tags = "passes in clear", {"way": str(edge.way)}
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


_SIZE = (5.6, 2.4)
_DPI = 96
_BINS = 20
_INK = "#4f43dd"
_PALE = "#d9d6f7"
_CAP = "#d2433c"


def pictures_of_spends(staged: StagedRun) -> dict[str, dg.MarkdownMetadataValue]:
    """Draw a histogram per text column of the epsilon that the records of a run were charged."""
    pictures = {}
    counted = copies_of(staged)
    for column in staged.policy.column_policies():
        name, mechanism = str(column.column), column.mechanism
        draws = counted[name].rows_by_draws if name in counted else {}
        if Disclosure.LENGTH not in mechanism.guarantee.disclosures:
            draws = {mechanism.most_positions: sum(draws.values())}
        spends = Counter({worst_spend(mechanism, n).epsilon: rows for n, rows in draws.items() if rows})
        if spends and max(spends) < float("inf"):
            pictures[f"epsilon of {name}"] = _histogram(spends, name)
    return pictures


def pictures_of_remaining(remaining: Mapping[str, Any]) -> dict[str, dg.MarkdownMetadataValue]:
    """Draw the used and the remaining budget of units, at the quantiles of the ledger."""
    return {
        f"remaining budget ({component})": _quantiles(
            remaining["used"][component], limit, component, str(remaining["unit"])
        )
        for component, limit in remaining["limits"].items()
        if remaining["used"].get(component)
    }


def _histogram(spends: Mapping[float, int], column: str) -> dg.MarkdownMetadataValue:
    axes = _axes(f"Epsilon per record, column {column}", "epsilon charged", "records")
    axes.hist(list(spends), bins=_edges(sorted(spends)), weights=list(spends.values()), color=_INK, edgecolor="white")
    axes.set_xlim(left=0)
    return _picture(axes, f"histogram of the epsilon charged per record in column {column}")


def _edges(amounts: Sequence[float]) -> list[float]:
    """Cut a range between amounts; spends are multiples of a step, and every bin holds equally many multiples."""
    step = min((after - before for before, after in pairwise(amounts)), default=1.0)
    steps = round((amounts[-1] - amounts[0]) / step) + 1
    width = step * -(-steps // _BINS)
    return [amounts[0] - step / 2 + width * number for number in range(math.ceil(steps * step / width) + 1)]


def _quantiles(used: Mapping[str, int | str], limit: int, component: str, unit: str) -> dg.MarkdownMetadataValue:
    axes = _axes(f"Budget used per {unit}, by quantile", f"{unit}s", component)
    spent = [limit if amount == "inf" else int(amount) for amount in used.values()]
    axes.bar(list(used), [limit / MICRO] * len(spent), color=_PALE, width=0.6, label="left")
    axes.bar(list(used), [amount / MICRO for amount in spent], color=_INK, width=0.6, label="used")
    axes.axhline(limit / MICRO, color=_CAP, linewidth=1.5, label="cap")
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return _picture(axes, f"quantiles of the {component} that {unit}s have used, next to the cap")


def _axes(title: str, xlabel: str, ylabel: str) -> Axes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(one_line(title), fontsize=10, loc="left", parse_math=False)
    axes.set_xlabel(xlabel, fontsize=9)
    axes.set_ylabel(ylabel, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _picture(axes: Axes, alt: str) -> dg.MarkdownMetadataValue:
    png = io.BytesIO()
    axes.figure.canvas.print_figure(png, format="png", metadata={"Software": None})
    return dg.MetadataValue.md(
        f"![{markdown(alt)}](data:image/png;base64,{base64.b64encode(png.getvalue()).decode('ascii')})"
    )
