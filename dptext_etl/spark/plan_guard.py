"""Guard Spark plans: refuse a plan in which raw text reaches an output without a release that the policy names.

The guard reads the analyzed plan and does not run it. It follows every column by the id of Spark's analyzer, from the
sources through each step, with views, common tables and sub-queries. If raw text enters a step that the guard does not
know, it refuses the plan.

The guard covers classic sessions, columns and everything that is computed from them under any name, rows that raw text
chooses, orders, joins or groups, and the texts and ids of each release (`dptext_etl.policy.plan_rules`). It refuses
Spark Connect, whose client sees no analyzed plan. It does not cover anything before the plan begins (RDDs, checkpoints,
session variables, files that hold raw text under another name), and data that a function reads from other places.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dptext_etl.errors import GateError, PolicyError, bare
from dptext_etl.policy import PolicyLike
from dptext_etl.policy.plan_rules import (
    CHOOSE,
    PUBLISHED,
    Held,
    Releases,
    Rows,
    concatenated,
    new_rows,
    next_number,
    raw_names,
)
from dptext_etl.spark.plan_expressions import HINT, Columns, Expressions, items, kind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PASS = frozenset(
    {
        *("SubqueryAlias", "View", "WithCTE", "GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample"),
        *("Repartition", "ResolvedHint", "EventTimeWatermark"),
    }
)
"""Steps whose columns are those of their inputs."""
_CHOICES = {
    "Filter": "which rows are kept",
    "Sort": "the order of rows",
    "Deduplicate": "which rows are distinct",
    "RepartitionByExpression": "where rows go",
    "RebalancePartitions": "where rows go",
    "Generate": "how many rows there are",
}
"""Steps whose expressions choose rows, and whose columns are those of their inputs."""
_COMPARED = frozenset({"Distinct", "Intersect", "Except"})

Found = dict[int, Held]


@bare
def guard(
    df: DataFrame,
    raw: Sequence[str] | str = (),
    *,
    policy: PolicyLike | None = None,
    id: str | None = None,  # noqa: A002
) -> DataFrame:
    """Refuse a data frame in which raw text reaches the output without the policy's release, and return it.

    Args:
        df: A frame of a classic session; the guard does not run it.
        raw: Names of raw columns in the sources of its plan in addition to the policy's text columns, also inside
            structs; one name or several. Spark ignores upper and lower case.
        policy: Policy of the releases in the plan; the guard compares columns, id column, release name, mechanisms and
            key. Without a policy, it judges only the path of the text, and no budget.
        id: Column of record ids, if the policy is that of one column.

    Raises:
        GateError: A raw column, or a value made from it, reaches the output, or chooses rows, or enters a step that
            cannot be followed; or a release is not the policy's, or takes anything but a column of its own row, or
            computed ids.
        InputError: A release takes ids or subjects of a type that ids cannot have, such as double.
        PolicyError: The frame is one of Spark Connect, no source has such a column, or the policy is for benchmarks.

    Example:
        ```python
        from dptext_etl.spark import guard, register

        register(spark, "private_review", policy)
        guard(spark.sql("SELECT id, private_review(review, id) AS review FROM reviews"), policy=policy, id="id")
        ```
    """
    if getattr(df, "_jdf", None) is None:
        raise PolicyError(
            "a frame of Spark Connect shows its client no analyzed plan, so the guard cannot judge it",
            "guard the same query in a classic session; run_frame keeps only the columns of the policy in both",
        )
    plan = df._jdf.queryExecution().analyzed()  # noqa: SLF001  (the analyzed plan has no public interface)
    releases = Releases(policy, id, raw)
    walk = _Walk(releases)
    reached = _raw(walk.step(plan, {}))
    if missing := releases.missing(walk.seen):
        raise PolicyError(
            f"no source of the plan has a column {_named(missing)}", "use the names of raw columns in the sources"
        )
    if reached:
        places = [f"column {at}" for at, number in enumerate(_output(plan), start=1) if number in reached]
        said = f"raw text of {raw_names(reached.values())} reaches the output unreleased, in {', '.join(places)}"
        raise GateError(said, f"{HINT}; {PUBLISHED}")
    return df


class _Walk:
    """Follow columns through a plan."""

    def __init__(self, releases: Releases) -> None:
        self._written = {name.casefold(): name for name in releases.raw}
        self._expressions = Expressions(releases, self.step)
        self.seen: set[str] = set()  # raw columns that a source has, under the names of the policy or the caller
        self._common: dict[int, list[Held]] = {}

    def step(self, node: Any, outer: Columns) -> Found:
        """Return the contents of a step's output columns."""
        kind = kind_of(node)
        below = [self.step(child, outer) for child in items(node.children())]
        columns = {number: held for found in below for number, held in found.items()}
        output = _output(node)
        if kind == "CTERelationRef":
            return self._common_table(node, output)
        if not below:
            return self._source(node)
        followed = getattr(self, f"_{kind.lower()}", None)
        if followed is not None:
            columns = followed(node, columns, below, outer)
        elif kind in _PASS or kind in _CHOICES:
            what = _CHOICES.get(kind, "which rows are kept")
            self._refuse_choice(items(node.expressions()), {**columns, **outer}, what)
        elif kind in _COMPARED:
            if raw := _raw(columns):
                hint = "release first, then compare: SELECT DISTINCT id, name(text, id) FROM …"
                raise GateError(f"raw text of {raw_names(raw.values())} decides which rows are distinct", hint)
        else:
            parts = [self._expressions.held(item, outer) for item in items(node.expressions())]
            if _raw(columns) or any(part.raw for part in parts):
                raise GateError(f"raw text enters a step of kind {kind}, which cannot be followed", HINT)
            return {number: Held() for number in output}
        return {number: columns.get(number, Held()) for number in output}

    def _source(self, node: Any) -> Found:
        rows, found = new_rows(), {}
        for column in items(node.output()):
            name, dtype = str(column.name()), json.loads(column.dataType().json())
            found[column.exprId().id()] = self._column(name, name, dtype, rows, frozenset())
        return found

    def _column(self, path: str, name: str, dtype: Any, rows: frozenset[Rows], outer: frozenset[str]) -> Held:
        """Return a column of a source, or a field of one; all that a raw column holds is raw."""
        mine = {self._written[item] for item in [name.casefold()] if item in self._written}
        inside = {self._written[item] for item in map(str.casefold, _fields(dtype)) if item in self._written}
        raw = outer | mine | inside
        self.seen |= raw
        parts = dtype.get("fields", []) if isinstance(dtype, dict) else []
        fields = [
            (part["name"], self._column(f"{path}.{part['name']}", part["name"], part["type"], rows, outer | mine))
            for part in parts
        ]
        return Held.column(path, raw, rows, fields)

    def _common_table(self, node: Any, output: list[int]) -> Found:
        defined = self._common.get(node.cteId())
        if defined is None:
            raise GateError("a table that is defined by itself cannot be followed", HINT)
        number = next_number()  # each use of the table has rows of its own
        return {one: concatenated(number, [held]) for one, held in zip(output, defined, strict=True)}

    def _cterelationdef(self, node: Any, columns: Found, _: list[Found], __: Columns) -> Found:
        self._common[node.id()] = [columns.get(item.exprId().id(), Held()) for item in items(node.output())]
        return columns

    def _project(self, node: Any, columns: Found, _: list[Found], outer: Columns) -> Found:
        return self._made(node.projectList(), {**outer, **columns})

    def _aggregate(self, node: Any, columns: Found, _: list[Found], outer: Columns) -> Found:
        around = {**outer, **columns}
        self._refuse_choice(items(node.groupingExpressions()), around, "what a group is")
        made = self._made(node.aggregateExpressions(), around)
        return {number: Held(held.raw) for number, held in made.items()}

    def _window(self, node: Any, columns: Found, _: list[Found], outer: Columns) -> Found:
        around = {**outer, **columns}
        self._refuse_choice([*items(node.partitionSpec()), *items(node.orderSpec())], around, "a window")
        return {**columns, **self._made(node.windowExpressions(), around)}

    def _join(self, node: Any, columns: Found, _: list[Found], outer: Columns) -> Found:
        if node.condition().isEmpty():
            return columns
        condition = node.condition().get()
        self._refuse_choice([condition], {**outer, **columns}, "which rows are joined")
        for one, other in _equals(condition):
            if one in columns and other in columns:
                mine, theirs = columns[one], columns[other]
                columns = {**columns, one: mine.joined(theirs), other: theirs.joined(mine)}
        return columns

    def _union(self, node: Any, _: Found, below: list[Found], __: Columns) -> Found:
        number, found = next_number(), {}
        inputs = [list(items(child.output())) for child in items(node.children())]
        for at, mine in enumerate(items(node.output())):
            parts = [held.get(theirs[at].exprId().id(), Held()) for held, theirs in zip(below, inputs, strict=True)]
            found[mine.exprId().id()] = concatenated(number, parts)
        return found

    def _expand(self, node: Any, columns: Found, _: list[Found], outer: Columns) -> Found:
        output = [item.exprId().id() for item in items(node.output())]
        around = {**outer, **columns}
        rows = [[self._expressions.held(item, around) for item in items(row)] for row in items(node.projections())]
        return {one: Held.made_from(parts) for one, parts in zip(output, zip(*rows, strict=True), strict=True)}

    def _lateraljoin(self, node: Any, columns: Found, _: list[Found], outer: Columns) -> Found:
        both = {**columns, **self.step(node.right().plan(), {**outer, **columns})}
        if node.condition().isDefined():
            self._refuse_choice([node.condition().get()], {**outer, **both}, "which rows are joined")
        return both

    def _made(self, expressions: Any, columns: Columns) -> Found:
        return {item.exprId().id(): self._expressions.held(item, columns) for item in items(expressions)}

    def _refuse_choice(self, expressions: Iterable[Any], columns: Columns, what: str) -> None:
        if any(self._expressions.held(item, columns).raw for item in expressions):
            raise GateError(f"raw text decides {what}", CHOOSE)


def _equals(condition: Any) -> Iterator[tuple[int, int]]:
    """Yield the pairs of columns that a join's condition makes equal."""
    kind, parts = kind_of(condition), list(items(condition.children()))
    if kind == "And":
        for part in parts:
            yield from _equals(part)
    elif kind == "EqualTo" and all(kind_of(part) == "AttributeReference" for part in parts):
        yield parts[0].exprId().id(), parts[1].exprId().id()


def _raw(columns: Columns) -> dict[int, Held]:
    return {number: held for number, held in columns.items() if held.raw}


def _fields(dtype: Any) -> Iterator[str]:
    """Yield the names of all fields inside a type."""
    waiting = [dtype]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            if "name" in here:
                yield str(here["name"])
            waiting.extend(value for name, value in here.items() if name != "metadata")
        elif isinstance(here, list):
            waiting.extend(here)


def _output(node: Any) -> list[int]:
    return [item.exprId().id() for item in items(node.output())]


def _named(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
