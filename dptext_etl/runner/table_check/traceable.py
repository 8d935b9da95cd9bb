"""Count the rows that kept columns single out: a person who knows their values finds such a row in a published table.

The counts are those of values as they are published, after coarsening. They never depend on a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from dptext_etl.errors import InputError, PolicyError, bare, seam
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.types import NEW
from dptext_etl.policy import Policy
from dptext_etl.policy.keeping import Kept
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Manifest, scan
from dptext_etl.runner.source.examine import Examined
from dptext_etl.runner.source.guessing import look_of, shapes_of
from dptext_etl.runner.source.table import READ_HINT

MOST = 0.05  # the largest share of rows that kept columns may single out in a first version without consent
FEW = 5  # a row is in a small group if fewer rows than this share its values
Groups = tuple[tuple[str, ...], ...]
Counts = list[tuple[int, int]]
"""For each group of columns: rows whose values no other row has, and rows in groups of fewer than `FEW`."""


def groups_of(columns: Sequence[str]) -> Groups:
    """Return the groups of columns that are counted: all together, each of them, and all without each of them."""
    names = tuple(columns)
    groups = [names, *((name,) for name in names), *(_without(names, name) for name in names)]
    return tuple(dict.fromkeys(group for group in groups if group))


def _without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(other for other in names if other != name)


def hashes(groups: Groups) -> list[pl.Expr]:
    """Return the 64-bit hash of the values of each group."""
    return [pl.struct(group).hash().alias(str(place)) for place, group in enumerate(groups)]


def count(rows: pl.LazyFrame, groups: Groups) -> Counts:
    """Count the rows that groups of columns single out."""
    size = pl.col("rows")
    sums = (size == 1).sum().alias("single"), size.filter(size < FEW).sum().alias("few")
    frames = [rows.select(hashed).group_by(pl.all()).len("rows").select(*sums) for hashed in hashes(groups)]
    with seam("counting the rows that kept columns single out", InputError, READ_HINT):
        return [frame.row(0) for frame in pl.collect_all(frames, engine="streaming")]


def facts(columns: Mapping[str, Mapping[str, Any]], ids: str, rows: int, counts: Counts) -> dict[str, Any]:
    """Put together what is known of a table: kept columns with their coarsening, and the counts of `groups_of`."""
    names = tuple(columns)
    if not names or not rows:
        return {}
    found = {(): (0, 0), **dict(zip(groups_of(names), counts, strict=True))}
    rest = {name: found[_without(names, name)][0] for name in names}
    each = [(name, rule, *found[name,]) for name, rule in columns.items()]
    return {
        "columns": [dict(zip(("name", "coarse", "single", "few"), item, strict=True)) for item in each],
        "rows": rows,
        "single": found[names][0],
        "few": found[names][1],
        "single_without": rest,
        "helps_most": min(rest, key=lambda name: rest[name]),
        "ids": ids,
    }


def of_source(
    policy: Policy,
    rows: int,
    counts: Counts,
    schema: Mapping[str, pl.DataType],
    sample: pl.LazyFrame | None = None,
) -> dict[str, Any]:
    """Return the facts of a run, with what makes unchanged columns look like names or texts (by name, or a sample)."""
    unchanged = [item.column for item in policy.kept if not item.rule]
    shapes = (
        shapes_of(sample.select(unchanged), sample.select(unchanged).collect_schema()) if sample is not None else {}
    )
    looks = {name: why for name in unchanged if (why := look_of(name, shapes.get(name)))}
    found = facts({item.column: item.rule for item in policy.kept}, policy.ids, rows, counts)
    if not found:
        return {}
    (most,) = (item for item in policy.kept if item.column == found["helps_most"])
    way = None if most.column in looks else _coarser(most, schema[most.column])
    return {**found, "coarsen_by": way, "looks": looks, "accepted": policy.keep_unique == "accepted"}


def _coarser(kept: Kept, dtype: pl.DataType) -> str | None:
    """Write how a column can be coarsened (further), as its type allows; None if it should be left out."""
    if kept.rule:
        return 'as = "year"' if kept.as_ == "month" else "bins = [fewer public bounds]" if kept.bins else None
    if isinstance(dtype, pl.Date | pl.Datetime):
        return 'as = "month"'
    return "bins = [public bounds]" if dtype.is_numeric() else "top = [public values]" if dtype == pl.String else None


@bare
def trace(source: Examined[pl.LazyFrame], policy: Policy) -> dict[str, Any]:
    """Return the facts of a run in this process, from all rows that its version would hold."""
    rows, number = source.shown
    if not policy.keep:
        return {}
    return of_source(policy, number, count(rows, groups_of(policy.kept_columns)), source.table.schema, rows)


def of_published(layout: Layout, manifest: Manifest) -> dict[str, Any]:
    """Return the facts of a published table, from its rows; empty if it has no kept columns."""
    texts = {f"{column['name']}{end}" for column in manifest.columns for end in ("", "_intermediate")}
    aggregate = manifest.id is None and manifest.ids != "drop"  # unlinked or synthetic: no columns of records
    names = [name for name in manifest.schema if not aggregate and name not in {*texts, manifest.id}]
    if not names:
        return {}
    counts = count(scan(layout, manifest), groups_of(names))
    return facts({name: manifest.coarse.get(name, {}) for name in names}, manifest.ids, manifest.rows, counts)


def require_untraceable(
    policy: Policy, layout: Layout, part: Mapping[str, Any], ledger: Ledger | None, refs: Sequence[ReleaseRef]
) -> None:
    """Refuse many rows that are singled out, where the release holds no record, or what is published lacks a column."""
    if not part or part["accepted"] or part["single"] <= MOST * part["rows"]:
        return
    manifest = Manifest.of_release(policy, layout)
    if manifest is None:
        first = ledger is None or all(ref.id == NEW or not ledger.records(ref) for ref in refs)
    else:
        shown = {name: manifest.coarse.get(name, {}) for name in manifest.schema}
        first = any(shown.get(item.column) != item.rule for item in policy.kept)
    if first:
        most, single = part["helps_most"], _share(part["single"], part["rows"])
        msg = f"the kept columns single out {single}: a person who knows their values finds the row; "
        msg += f"without {most!r}, {_share(part['single_without'][most], part['rows'])}; nothing was spent"
        way = part["coarsen_by"] and f'coarsen it by keep = [{{ column = "{most}", {part["coarsen_by"]} }}], or '
        hint = f'{way or ""}leave it out; if readers may find the rows of people, write keep_unique = "accepted"'
        raise PolicyError(msg, hint, {"rows": part["rows"], "single": part["single"], "column": most})


def lines(part: Mapping[str, Any]) -> list[str]:
    """Say what the facts mean, in sentences."""
    if not part:
        return []
    rows, most = part["rows"], part["helps_most"]
    ways = ((item["name"], item["coarse"]) for item in part["columns"])
    named = ", ".join(f"{name} ({way_of(rule)})" if rule else name for name, rule in ways)
    single, few = _share(part["single"], rows), _share(part["few"], rows)
    said = [f"kept columns: {named}", f"they single out {single}; groups of fewer than {FEW} hold {few}"]
    if len(part["columns"]) > 1:
        each = (f"{item['name']} {item['single'] / rows:.1%}" for item in part["columns"])
        said.append(f"each of them singles out: {', '.join(each)}")
    if part["single"]:
        said.append(f"without {most}: {_share(part['single_without'][most], rows)}")
    if part["ids"] == "keep":
        said.append('ids = "keep": to a person who knows the ids, every row is singled out')
    said += [f"{name} {why}, and is published unchanged" for name, why in part.get("looks", {}).items()]
    if part.get("accepted") and part["single"] > MOST * rows:
        said.append('the policy accepts this: keep_unique = "accepted"')
    return said


def way_of(rule: Mapping[str, Any]) -> str:
    """Say how a column is coarsened: "month", "bins 0, 18", "top a, b"."""
    (way, value), *_ = rule.items()
    return str(value) if way == "as" else f"{way} {', '.join(map(str, value))}"


def _share(some: int, rows: int) -> str:
    return f"{some:,} of {rows:,} rows ({some / rows:.1%})"
