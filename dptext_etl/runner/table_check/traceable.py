"""Count the rows that kept columns single out: a person who knows their values finds such a row in a published table.

The counts are those of values as they are published, after coarsening. They never depend on a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.types import NEW
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Manifest, scan
from dptext_etl.runner.source.examine import Examined
from dptext_etl.runner.source.guessing import looks_free, looks_named
from dptext_etl.runner.source.table import READ_HINT

MOST = 0.05
"""The largest share of rows that kept columns may single out in a first version without consent."""
FEW = 5
"""A row is in a small group if fewer rows than this share its values."""

Groups = tuple[tuple[str, ...], ...]
Counts = list[tuple[int, int]]
"""For each group of columns: rows whose values no other row has, and rows in groups of fewer than `FEW`."""


def groups_of(columns: Sequence[str]) -> Groups:
    """Return the groups of columns that are counted: all together, each of them, and all without each of them."""
    names = tuple(columns)
    each = [(name,) for name in names]
    without = [tuple(other for other in names if other != name) for name in names]
    return tuple(dict.fromkeys(group for group in (names, *each, *without) if group))


def hashes(groups: Groups) -> list[pl.Expr]:
    """Return the 64-bit hash of the values of each group; values are distinct where their hashes are."""
    return [pl.struct(group).hash().alias(str(place)) for place, group in enumerate(groups)]


def count(rows: pl.LazyFrame, groups: Groups) -> Counts:
    """Count the rows that groups of columns single out."""
    sizes = [rows.select(hashed).group_by(pl.all()).len("rows").select(*_sums()) for hashed in hashes(groups)]
    with seam("counting the rows that kept columns single out", InputError, READ_HINT):
        return [frame.row(0) for frame in pl.collect_all(sizes, engine="streaming")]


def _sums() -> Iterable[pl.Expr]:
    size = pl.col("rows")
    yield (size == 1).sum().alias("single")
    yield size.filter(size < FEW).sum().alias("few")


def facts(columns: Mapping[str, Mapping[str, Any]], ids: str, rows: int, counts: Counts) -> dict[str, Any]:
    """Put together what is known of a table: kept columns with their coarsening, and the counts of `groups_of`."""
    if not columns or not rows:
        return {}
    found = dict(zip(groups_of([*columns]), counts, strict=True))
    names = tuple(columns)
    rest = {name: found.get(tuple(other for other in names if other != name), (0, 0))[0] for name in names}
    together, few = found[names]
    return {
        "columns": [
            {"name": name, "coarse": dict(rule), "single": found[(name,)][0], "few": found[(name,)][1]}
            for name, rule in columns.items()
        ],
        "rows": rows,
        "single": together,
        "few": few,
        "single_without": rest,
        "helps_most": min(rest, key=lambda name: rest[name]),
        "ids": ids,
    }


def trace(source: Examined[pl.LazyFrame], policy: Policy) -> dict[str, Any]:
    """Return the facts of a run in this process, from all rows that its version would hold."""
    if not policy.kept:
        return {}
    rows = source.rows if source.known is None else source.known
    counts = count(rows, groups_of(policy.kept_columns))
    return of_source(policy, source.shown, counts, look_of(policy, rows))


def of_source(policy: Policy, rows: int, counts: Counts, looks: Mapping[str, str]) -> dict[str, Any]:
    """Return the facts of a run; `looks` says of kept columns what makes them look like names or texts."""
    kept = {item.column: item.rule for item in policy.kept}
    found = facts(kept, policy.ids, rows, counts)
    return {**found, "looks": dict(looks), "accepted": policy.keep_unique == "accepted"} if found else {}


def of_published(layout: Layout, manifest: Manifest) -> dict[str, Any]:
    """Return the facts of a published table, from its rows; empty if it has no kept columns."""
    texts = {f"{column['name']}{end}" for column in manifest.columns for end in ("", "_intermediate")}
    aggregate = manifest.id is None and manifest.ids != "drop"  # unlinked or synthetic: no columns of records
    names = [name for name in manifest.schema if not aggregate and name not in {*texts, manifest.id}]
    if not names:
        return {}
    counts = count(scan(layout, manifest), groups_of(names))
    return facts({name: manifest.coarse.get(name, {}) for name in names}, manifest.ids, manifest.rows, counts)


def look_of(policy: Policy, rows: pl.LazyFrame | None) -> dict[str, str]:
    """Return why kept columns look like names of people or free text: by their names, and by their first rows."""
    unchanged = [item.column for item in policy.kept if not item.rule]
    free = {} if rows is None else looks_free(rows.select(unchanged)) if unchanged else {}
    return {name: why for name in unchanged if (why := looks_named(name) or free.get(name))}


def require_untraceable(
    policy: Policy, layout: Layout, part: Mapping[str, Any], ledger: Ledger | None, refs: Sequence[ReleaseRef]
) -> None:
    """Refuse a first version whose kept columns single out many rows, unless the policy accepts it.

    A version is the first one if the release holds no record, or if what is published lacks one of the columns.
    """
    if not part or part["accepted"] or part["single"] <= MOST * part["rows"]:
        return
    manifest = Manifest.of_release(policy, layout)
    if manifest is not None:
        first = any(
            item.column not in manifest.schema or manifest.coarse.get(item.column, {}) != item.rule
            for item in policy.kept
        )
    else:
        first = ledger is None or all(ref.id == NEW or not ledger.records(ref) for ref in refs)
    if first:
        most = part["helps_most"]
        msg = (
            f"the kept columns single out {_share(part['single'], part['rows'])}: a person who knows their values finds"
            f" the row; without {most!r}, {_share(part['single_without'][most], part['rows'])}; nothing was spent"
        )
        rule = f'coarsen it by keep = [{{ column = "{most}", as = "month" }}] (bins for numbers, top for strings)'
        hint = f'{rule}, or leave it out; if readers may find the rows of people, write keep_unique = "accepted"'
        raise PolicyError(msg, hint, {"rows": part["rows"], "single": part["single"], "column": most})


def lines(part: Mapping[str, Any]) -> list[str]:
    """Say what the facts mean, in sentences."""
    if not part:
        return []
    rows, most = part["rows"], part["helps_most"]
    named = ", ".join(_described(item) for item in part["columns"])
    single, few = _share(part["single"], rows), _share(part["few"], rows)
    said = [f"kept columns: {named}", f"they single out {single}; fewer than {FEW} rows share their values: {few}"]
    if len(part["columns"]) > 1:
        each = (f"{item['name']} {_percent(item['single'], rows)}" for item in part["columns"])
        said.append(f"each of them singles out: {', '.join(each)}")
    if part["single"]:
        said.append(f"without {most}: {_share(part['single_without'][most], rows)}")
    if part["ids"] == "keep":
        said.append('ids = "keep": to a person who knows the ids, every row is singled out')
    said += [f"{name} {why}, and is published unchanged" for name, why in part.get("looks", {}).items()]
    if part.get("accepted") and part["single"] > MOST * rows:
        said.append('the policy accepts this: keep_unique = "accepted"')
    return said


def _described(item: Mapping[str, Any]) -> str:
    return str(item["name"]) + "".join(f" ({way}: {value})" for way, value in item["coarse"].items())


def _share(some: int, rows: int) -> str:
    return f"{some:,} of {rows:,} rows ({_percent(some, rows)})"


def _percent(some: int, rows: int) -> str:
    return f"{100 * some / rows:.1f} %"
