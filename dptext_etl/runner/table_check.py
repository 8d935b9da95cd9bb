"""Check the table around the texts: kept columns that single rows out, other scopes, and rows under a cap.

Values are counted as they are published, after coarsening. They never depend on a text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl.checks.sink_files import Manifest
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import MICRO
from dptext_etl.ledger import Ledger, ReleaseRef, Scope
from dptext_etl.ledger.types import NEW
from dptext_etl.policy import PARTITION, Policy
from dptext_etl.policy.terms import Kept
from dptext_etl.runner.forecast import FACTORS, Expected
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import read_excluded, scan
from dptext_etl.runner.shard.charging import at_most
from dptext_etl.runner.source.column_types import period_of
from dptext_etl.runner.source.examine import FEW, Counts, Examined, count, groups_of
from dptext_etl.runner.source.table import partitions_of_source


def of_persons(policy: Policy, ledger: Ledger | None, persons: Iterable[pa.Array]) -> dict[str, Any]:
    """Return how many persons each scope of other datasets has charged, and the charges of all scopes to one person.

    `persons` are distinct canonical ids, in parts; each part is one pass over the other scopes.
    """
    if ledger is None or policy.unit == "record":
        return {}
    scope_of_policy, others = Scope.of(policy), list[tuple[str, Scope]]()
    for item in ledger.reports.caps():
        scope = Scope.of_cap(item)
        if item["unit"] == "subject" and policy.dataset not in item["datasets"] and scope.name != scope_of_policy.name:
            others.append((str(scope), scope))
    if not others:
        return {}
    shared, number = dict.fromkeys((name for name, _ in others), 0), 0
    for part in persons:
        number += len(part)
        for name, scope in others:
            used = np.stack([*ledger.used(scope, part).values()])
            shared[name] += int((used > 0).any(axis=0).sum())
    return {"persons": number, "shared": shared, **ledger.reports.together()}


def scope_lines(part: dict[str, Any]) -> list[str]:
    """Warn of scopes that charge the same persons, and say what all scopes charge one person at most."""
    lines = [
        f"{name} has charged {count:,} of these {part['persons']:,} persons, under another cap; "
        "datasets with one `cap.group` share a cap"
        for name, count in part["shared"].items()
        if count
    ]
    epsilon = part["largest"] if isinstance(part["largest"], str) else at_most(part["largest"] / MICRO)
    excluded = f"; without {', '.join(part['in_rho'])}, which count rho" if part["in_rho"] else ""
    total = f"All scopes of the ledger together have charged one person epsilon {epsilon} at most{excluded}"
    return [*lines, total] if lines else []


def published_lines(part: Mapping[str, int]) -> list[str]:
    """Say how many rows readers see before a run, and how many it publishes."""
    return [f"Published now: {part['now']:,} rows; this run: {part['this_run']:,}."]


ENOUGH = 0.95
"""The share of rows from which on no larger cap is shown."""
MOST_PERIODS = 6
"""Periods that a screen shows."""


def selection_facts(policy: Policy, source: Examined[Any], seen: Expected) -> dict[str, Any]:
    """Return how many rows larger and smaller caps would keep, and how many rows each period lacks.

    `caps` lists pairs of a limit and a number of rows: half the policy's limit, its own, and up to three larger ones;
    the last keeps about 95%, if any does. `periods` lists a month or year, its rows, and those that are excluded.
    """
    facts, rows, kept = dict[str, Any](), seen.records, dict(zip(FACTORS, seen.kept, strict=False))
    if policy.cap is not None and not policy.one_table and kept:
        kept_now = rows - seen.over_cap
        name = next(iter(policy.cap.model_dump(exclude_none=True).keys() & {"epsilon", "rho"}))
        larger = [(factor, count) for factor, count in kept.items() if factor > 1 and count > kept_now]
        enough = next((at for at, (_, count) in enumerate(larger) if count >= ENOUGH * rows), None)
        shown = larger[:2] if enough is None else [*larger[: min(2, enough)], larger[enough]]
        pairs = [(0.5, kept[0.5]), (1.0, kept_now), *([] if kept_now >= ENOUGH * rows else shown)]
        limit = float(getattr(policy.cap, name))
        facts = {"rows": rows, "limit": name, "caps": [[limit * factor, count] for factor, count in pairs]}
    by, outside = period_of(policy, source.table.schema), source.outside or {}
    if by is not None and seen.periods and (source.outside is not None or not source.beyond + source.nameless):
        counts = {name: seen.periods.get(name, (0, 0)) for name in sorted({*seen.periods, *outside})}
        more = {name: outside.get(name, 0) for name in counts}
        spans = [[name, read + more[name], gone + more[name]] for name, (read, gone) in counts.items()]
        facts |= {"by": by[0], "periods": spans} if any(gone for *_, gone in spans) else {}
    return facts


def selection_lines(part: dict[str, Any]) -> list[str]:
    """Say which share of the rows caps keep, rounded down, and which share of each period is excluded."""
    lines = []
    if "caps" in part:
        kept = [(f"{cap:,g}", math.floor(100 * count / part["rows"])) for cap, count in part["caps"]]
        lines = [f"A cap of {part['limit']} {cap} keeps {share}% of rows." for cap, share in kept]
        lines.append("Set it by your promise to people, never by the needs of the table.")
    if "periods" in part:
        periods = part["periods"]
        beyond = len(periods) - MOST_PERIODS
        if beyond > 0:
            sums = (sum(row[at] for row in periods[: beyond + 1]) for at in (1, 2))
            periods = [(f"up to {periods[beyond][0]}", *sums), *periods[beyond + 1 :]]
        lines += [f"{part['by']} {name}: {gone / max(1, rows):.0%} of rows excluded" for name, rows, gone in periods]
    if "partitions" in part:
        shares = ((name, gone / max(1, rows)) for name, rows, gone in part["partitions"])
        lines += [f"partition {name}: {share:.0%} of rows excluded so far" for name, share in shares]
    return lines


EXCLUDED = ("quarantined", "over_contribution", "without_subject", "changed_excluded", "forgotten")
"""Counts of rows that are not published, as the summary of a run names them."""


def partitions(policy: Policy) -> dict[str, Any]:
    """List the last partitions that were published from this machine, with their rows and those that are excluded.

    Nothing if no row is excluded.
    """
    found = []
    for name in partitions_of_source(policy)[-MOST_PERIODS:] if PARTITION in policy.source else ():
        layout = Layout.of(policy, name)
        manifest = Manifest.of_release(policy, layout)
        noted = None if manifest is None else read_excluded(layout.staging, manifest.digest)
        if noted is not None:
            found.append([name, noted["rows"]["read"], sum(noted["rows"].get(title, 0) for title in EXCLUDED)])
    return {"partitions": found} if any(gone for *_, gone in found) else {}


def at_cap_lines(part: Mapping[str, Any]) -> list[str]:
    """Say how many units have reached the cap."""
    share, persons = part["exhausted"] / part["units"], "people" if part["unit"] == "subject" else "records"
    return [f"At their cap now: {part['exhausted']:,} of {part['units']:,} {persons} ({share:.1%})."]


MOST = 0.05  # the largest share of rows that kept columns may single out in a first version without consent


def facts(columns: Mapping[str, Mapping[str, Any]], ids: str, rows: int, counts: Counts) -> dict[str, Any]:
    """Put together the facts about a table: kept columns with their coarsening, and the counts of `groups_of`."""
    names = tuple(columns)
    if not names or not rows:
        return {}
    by_group = {(): (0, 0), **dict(zip(groups_of(names), counts, strict=True))}
    rest = {name: by_group[tuple(other for other in names if other != name)][0] for name in names}
    facts = [(name, rule, *by_group[name,]) for name, rule in columns.items()]
    return {
        "columns": [dict(zip(("name", "coarse", "single", "few"), item, strict=True)) for item in facts],
        "rows": rows,
        "single": by_group[names][0],
        "few": by_group[names][1],
        "single_without": rest,
        "helps_most": min(rest, key=lambda name: rest[name]),
        "ids": ids,
    }


def of_source(
    policy: Policy, rows: int, counts: Counts, schema: Mapping[str, pl.DataType], sample: pl.LazyFrame | None = None
) -> dict[str, Any]:
    """Return the facts of a run, with reasons why unchanged columns look like names or texts (by name or sample)."""
    if not policy.kept or not rows:
        return {}
    from dptext_etl.runner.source.guessing import look_of, shapes_of  # runs without kept columns start without it

    unchanged = [item.column for item in policy.kept if not item.rule]
    shapes = {} if sample is None else shapes_of(sample.select(unchanged))
    looks = {name: why for name in unchanged if (why := look_of(name, shapes.get(name)))}
    result = facts({item.column: item.rule for item in policy.kept}, policy.ids, rows, counts)
    (most,) = (item for item in policy.kept if item.column == result["helps_most"])
    way = None if most.column in looks else _coarser(most, schema[most.column])
    return {**result, "coarsen_by": way, "looks": looks, "accepted": policy.keep_unique == "accepted"}


def _coarser(kept: Kept, dtype: pl.DataType) -> str | None:
    """Write how a column can be coarsened (further), as its type allows; None if it should be excluded."""
    if kept.rule:
        return 'as = "year"' if kept.as_ == "month" else "bins = [fewer public bounds]" if kept.bins else None
    if isinstance(dtype, pl.Date | pl.Datetime):
        return 'as = "month"'
    return "bins = [public bounds]" if dtype.is_numeric() else "top = [public values]" if dtype == pl.String else None


def trace(source: Examined[Any], policy: Policy) -> dict[str, Any]:
    """Return the facts of a run whose policy keeps columns, from all rows that its version would hold."""
    rows, number = source.version_rows
    counts = source.count(rows, groups_of(policy.kept_columns)) if source.traced is None else source.traced
    sample = rows if isinstance(rows, pl.LazyFrame) else None
    return of_source(policy, number, counts, source.table.schema, sample)


def of_published(layout: Layout, manifest: Manifest) -> dict[str, Any]:
    """Return the facts of a published table, from its rows; empty if it has no kept columns."""
    texts = {f"{column['name']}{end}" for column in manifest.columns for end in ("", "_intermediate")}
    aggregate = manifest.id is None and manifest.ids != "drop"  # shuffled or synthetic: no columns of records
    names = [name for name in manifest.schema if not aggregate and name not in {*texts, manifest.id}]
    if not names:
        return {}
    counts = count(scan(layout, manifest), groups_of(names))
    return facts({name: manifest.coarse.get(name, {}) for name in names}, manifest.ids, manifest.rows, counts)


def require_untraceable(
    policy: Policy, layout: Layout, part: Mapping[str, Any], ledger: Ledger | None, refs: Sequence[ReleaseRef]
) -> None:
    """Refuse many rows that are singled out, in a release without records, or for a column that is new."""
    if not part or part["accepted"] or part["single"] <= MOST * part["rows"]:
        return
    manifest = Manifest.of_release(policy, layout)
    if manifest is None:
        first = ledger is None or all(ref.id == NEW or not ledger.records(ref) for ref in refs)
    else:
        first = shows_more(policy, manifest)
    if first:
        refuse_traceable(part)


def shows_more(policy: Policy, manifest: Manifest) -> bool:
    """Return whether a policy keeps a column that its published table lacks, or has in another form."""
    rules = {name: manifest.coarse.get(name, {}) for name in manifest.schema}
    return any(rules.get(item.column) != item.rule for item in policy.kept)


def refuse_traceable(part: Mapping[str, Any]) -> None:
    """Refuse many rows that are singled out, unless the policy accepts it."""
    if not part or part["accepted"] or part["single"] <= MOST * part["rows"]:
        return
    most, single = part["helps_most"], _share(part["single"], part["rows"])
    msg = f"the kept columns single out {single}: a person who knows their values finds the row; "
    msg += f"without {most!r}, {_share(part['single_without'][most], part['rows'])}; no budget used"
    way = part["coarsen_by"] and f'coarsen it by keep = [{{ column = "{most}", {part["coarsen_by"]} }}], or '
    hint = f'{way or ""}leave it out; if readers may find the rows of people, write keep_unique = "accepted"'
    raise PolicyError(msg, hint, {"rows": part["rows"], "single": part["single"], "column": most})


def traceable_lines(part: Mapping[str, Any]) -> list[str]:
    """Explain the facts in sentences."""
    rows, most = part["rows"], part["helps_most"]
    ways = ((item["name"], item["coarse"]) for item in part["columns"])
    named = ", ".join(f"{name} ({way_of(rule)})" if rule else name for name, rule in ways)
    single, few = _share(part["single"], rows), _share(part["few"], rows)
    lines = [f"kept columns: {named}", f"they single out {single}; groups of fewer than {FEW} hold {few}"]
    if len(part["columns"]) > 1:
        shares = (f"{item['name']} {item['single'] / rows:.1%}" for item in part["columns"])
        lines.append(f"each of them singles out: {', '.join(shares)}")
    if part["single"]:
        lines.append(f"without {most}: {_share(part['single_without'][most], rows)}")
    if part["ids"] == "keep":
        lines.append('ids = "keep": to a person who knows the ids, every row is singled out')
    lines += [f"{name} {why}, and is published unchanged" for name, why in part.get("looks", {}).items()]
    if part.get("accepted") and part["single"] > MOST * rows:
        lines.append('the policy accepts this: keep_unique = "accepted"')
    return lines


def way_of(rule: Mapping[str, Any]) -> str:
    """Say how a column is coarsened: "month", "bins 0, 18", "top a, b"."""
    (way, value), *_ = rule.items()
    return str(value) if way == "as" else f"{way} {', '.join(map(str, value))}"


def _share(count: int, rows: int) -> str:
    return f"{count:,} of {rows:,} rows ({count / rows:.1%})"
