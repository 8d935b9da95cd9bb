"""Guard Spark plans: raw text reaches no output except through a release that the policy names.

The analyzed plan is read, not run: every column is followed by the id of Spark's analyzer through each step, also in
views, common tables and sub-queries (`policy.plan_rules`). A step that the guard does not know is refused when
raw text flows into it. What it covers is in docs/spark.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dptext_etl.errors import GateError, PolicyError, bare, by_place
from dptext_etl.policy import PolicyLike
from dptext_etl.policy.plan_rules import (
    Content,
    Releases,
    Rows,
    concatenated,
    new_rows,
    next_number,
    raw_names,
    refuse_choice,
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

Found = dict[int, Content]


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
    where = by_place(map(str, reached), map(str, _output(plan)))
    releases.judge(walk.sources, list(reached.values()), where, HINT)
    return df


class _Walk:
    """Follow columns through a plan; `_join` follows a step "Join" of Spark, and so on."""

    def __init__(self, releases: Releases) -> None:
        self._written = {name.casefold(): name for name in releases.raw}
        self._expressions = Expressions(releases, self.step)
        self.sources: set[str] = set()  # raw columns that a source has, under the names of the policy or the caller
        self._common: dict[int, list[Content]] = {}

    def step(self, node: Any, outer: Columns) -> Found:
        kind = kind_of(node)
        below = [self.step(child, outer) for child in items(node.children())]
        columns = {number: content for found in below for number, content in found.items()}
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
            parts = [self._expressions.content(item, outer) for item in items(node.expressions())]
            if _raw(columns) or any(part.raw for part in parts):
                raise GateError(f"raw text enters a step of kind {kind}, which cannot be followed", HINT)
            return {number: Content() for number in output}
        return {number: columns.get(number, Content()) for number in output}

    def _source(self, node: Any) -> Found:
        rows, found = new_rows(), {}
        for column in items(node.output()):
            name, dtype = str(column.name()), json.loads(column.dataType().json())
            found[column.exprId().id()] = self._column(name, name, dtype, rows, frozenset())
        return found

    def _column(self, path: str, name: str, dtype: Any, rows: frozenset[Rows], outer: frozenset[str]) -> Content:
        """Return a column of a source, or a field of one; all that a raw column holds is raw."""
        mine = {self._written[item] for item in [name.casefold()] if item in self._written}
        inside = {self._written[item] for item in map(str.casefold, _fields(dtype)) if item in self._written}
        raw = outer | mine | inside
        self.sources |= raw
        parts = dtype.get("fields", []) if isinstance(dtype, dict) else []
        fields = [
            (part["name"], self._column(f"{path}.{part['name']}", part["name"], part["type"], rows, outer | mine))
            for part in parts
        ]
        return Content.column(path, raw, rows, fields)

    def _common_table(self, node: Any, output: list[int]) -> Found:
        defined = self._common.get(node.cteId())
        if defined is None:
            raise GateError("a table that is defined by itself cannot be followed", HINT)
        number = next_number()  # each use of the table has rows of its own
        return {one: concatenated(number, [content]) for one, content in zip(output, defined, strict=True)}

    def _cterelationdef(self, node: Any, columns: Found, _: list[Found], __: Columns) -> Found:
        self._common[node.id()] = [columns.get(item.exprId().id(), Content()) for item in items(node.output())]
        return columns

    def _project(self, node: Any, columns: Found, _: list[Found], outer: Columns) -> Found:
        return self._made(node.projectList(), {**outer, **columns})

    def _aggregate(self, node: Any, columns: Found, _: list[Found], outer: Columns) -> Found:
        around = {**outer, **columns}
        self._refuse_choice(items(node.groupingExpressions()), around, "what a group is")
        made = self._made(node.aggregateExpressions(), around)
        return {number: Content(content.raw) for number, content in made.items()}

    def _window(self, node: Any, columns: Found, _: list[Found], outer: Columns) -> Found:
        around = {**outer, **columns}
        self._refuse_choice([*items(node.partitionSpec()), *items(node.orderSpec())], around, "a window")
        return {**columns, **self._made(node.windowExpressions(), around)}

    def _join(self, node: Any, columns: Found, below: list[Found], outer: Columns) -> Found:
        columns = {**columns, **_left_null(str(node.joinType().sql()), *below)}
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
            parts = [
                content.get(theirs[at].exprId().id(), Content()) for content, theirs in zip(below, inputs, strict=True)
            ]
            found[mine.exprId().id()] = concatenated(number, parts)
        return found

    def _expand(self, node: Any, columns: Found, _: list[Found], outer: Columns) -> Found:
        around = {**outer, **columns}
        rows = [[self._expressions.content(item, around) for item in items(row)] for row in items(node.projections())]
        return {
            one: Content.made_from(parts) for one, parts in zip(_output(node), zip(*rows, strict=True), strict=True)
        }

    def _lateraljoin(self, node: Any, columns: Found, _: list[Found], outer: Columns) -> Found:
        right = self.step(node.right().plan(), {**outer, **columns})
        both = {**columns, **right, **_left_null(str(node.joinType().sql()), columns, right)}
        if node.condition().isDefined():
            self._refuse_choice([node.condition().get()], {**outer, **both}, "which rows are joined")
        return both

    def _made(self, expressions: Any, columns: Columns) -> Found:
        return {item.exprId().id(): self._expressions.content(item, columns) for item in items(expressions)}

    def _refuse_choice(self, expressions: Iterable[Any], columns: Columns, what: str) -> None:
        refuse_choice((self._expressions.content(item, columns) for item in expressions), what)


def _left_null(how: str, left: Found, right: Found) -> Found:
    """Return the columns of the sides of a join that it may leave null."""
    sides = {"LEFT OUTER": [right], "RIGHT OUTER": [left], "FULL OUTER": [left, right]}.get(how, [])
    absent = [(next_number(), side) for side in sides]
    return {one: content.outer(number) for number, side in absent for one, content in side.items()}


def _equals(condition: Any) -> Iterator[tuple[int, int]]:
    """Yield the pairs of columns that a join's condition makes equal."""
    kind, parts = kind_of(condition), list(items(condition.children()))
    if kind == "And":
        for part in parts:
            yield from _equals(part)
    elif kind == "EqualTo" and all(kind_of(part) == "AttributeReference" for part in parts):
        yield parts[0].exprId().id(), parts[1].exprId().id()


def _raw(columns: Columns) -> dict[int, Content]:
    return {number: content for number, content in columns.items() if content.raw}


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
