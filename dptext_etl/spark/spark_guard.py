"""Guard Spark plans: raw text reaches no output except through a release that the policy names.

The analyzed plan is read, not run: every column is followed by the id of Spark's analyzer through each step, also in
views, common tables and sub-queries (`policy.plan_rules`). A step that the guard does not know is refused when
raw text flows into it. docs/spark.md lists its coverage.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

from dptext_etl.errors import GateError, InputError, PolicyError, bare, by_place
from dptext_etl.policy import ColumnPolicy, PolicyLike
from dptext_etl.policy.plan_rules import (
    Content,
    Releases,
    Rows,
    concatenated,
    new_rows,
    next_number,
    null_by_case,
    null_if_all,
    null_if_any,
    raw_names,
    refuse_choice,
)
from dptext_etl.spark import functions, worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_CODES = [
    constant
    for form in functions.FORMS.values()
    for constant in form.__code__.co_consts
    if isinstance(constant, CodeType)
]
"""Code of the functions that `register` makes."""
_COMPARED_FIELDS = ("dataset", "column", "release", "key", "nonce")


class Mark:
    def __init__(self, carried: dict[str, Any]) -> None:
        self._carried = carried

    @classmethod
    def of(cls, function: Any) -> Mark | None:
        """Return the release of a Python function of a plan; None if its code, or the module it calls, is not ours."""
        try:
            command = bytes(function.command().unsafeArray())
        except Exception:  # noqa: BLE001  (another version of Spark keeps it elsewhere, so we cannot know this function)
            return None
        if functions.__name__.encode() not in command:
            return None
        function = pickle.loads(command)[0]  # noqa: S301  (this process wrote it into its own plan)
        if (
            getattr(function, "__globals__", {}).get("worker") is not worker
            or getattr(function, "__code__", None) not in _CODES
        ):
            return None
        (cell,) = function.__closure__
        return cls(json.loads(cell.cell_contents))

    @property
    def mechanism(self) -> dict[str, Any]:
        described: dict[str, Any] = self._carried["mechanism"]
        return described

    def is_of(self, policy: ColumnPolicy) -> bool:
        mine, theirs = policy.model_dump(mode="json", exclude={"mechanism"}), self._carried["policy"]
        hashes = {role: item.sha256 for role, item in policy.mechanism.artifacts().items()}
        carried = {role: item["sha256"] for role, item in self._carried["artifacts"].items()}
        same = all(theirs[name] == mine[name] for name in _COMPARED_FIELDS)
        return same and self._carried["cfg"] == policy.mechanism.cfg() and carried == hashes


HINT = "release the column by its registered function, name(text, id), or drop it before this step"
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_NULLS: dict[str, Callable[[Sequence[Content]], frozenset[str] | None]] = {
    **dict.fromkeys(
        ("IsNull", "IsNotNull", "EqualNullSafe", "CreateArray", "CreateNamedStruct"), lambda _: frozenset()
    ),
    **dict.fromkeys(
        (
            *("Not", "EqualTo", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"),
            *("Like", "RLike", "Contains", "StartsWith", "EndsWith", "Length", "Lower", "Upper", "InitCap", "Reverse"),
            *("Concat", "Substring", "SubstringIndex", "Left", "Right", "Overlay", "Quote"),
            *("StringTrim", "StringTrimLeft", "StringTrimRight", "StringLPad", "StringRPad", "StringRepeat"),
            *("StringReplace", "StringTranslate", "StringSplit", "RegExpReplace", "RegExpExtract"),
            *("ArrayJoin", "Slice"),
        ),
        null_if_any,
    ),
    "ConcatWs": lambda holds: null_if_any(holds[:1]),  # it leaves out all nulls except a null separator
    "Coalesce": null_if_all,
    "If": lambda holds: null_by_case(holds[0], holds[1:]),
}
"""The conditions under which an expression of a row is null (`Content.nulls`), from the contents of its arguments."""
_OF_ROW = frozenset(_NULLS) | {
    *("Cast", "CaseWhen", "NullIfResult", "And", "Or", "In", "GetJsonObject", "GetArrayItem", "ElementAt")
}
"""Expressions whose value in a row depends only on that row, also where every argument is a column; all others may mix
rows."""
_WRITTEN = frozenset(
    {"string", "char", "varchar", "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "date"}
)
"""Types of which each value can be cast to a string."""
_ID_TYPES = frozenset(
    {
        *("string", "char", "varchar", "binary", "struct", "date", "timestamp"),
        *("byte", "short", "integer", "long", "decimal"),
    }
)
"""Types of Spark whose values can be ids (`keys.id_type`); fields of structs are checked when a batch is read."""

Columns = Mapping[Any, Content]
"""Contents of columns by the ids of Spark's analyzer."""


class Expressions:
    def __init__(self, releases: Releases, step: Callable[[Any, Columns], dict[int, Content]]) -> None:
        self._releases = releases
        self._step = step

    def content(self, item: Any, columns: Columns) -> Content:
        parts, kind = list(items(item.children())), kind_of(item)
        if is_a(item, "PlanExpression"):
            inner = self._step(item.plan(), columns)
            return (
                Content() if kind == "Exists" else Content.made_from(inner.values())
            )  # steps decide the rows that exist
        if not parts:
            return _leaf(item, kind, columns)
        if kind == "With":  # its first child uses the others, several times each
            shared = {str(part.id()): self.content(next(items(part.children())), columns) for part in parts[1:]}
            return self.content(parts[0], {**columns, **shared})
        mark = Mark.of(item.func()) if kind == "PythonUDF" else None
        if mark is not None:
            return self._released(mark, parts, columns)
        return self._computed(item, kind, parts, [self.content(part, columns) for part in parts])

    def _computed(self, item: Any, kind: str, parts: list[Any], holds: list[Content]) -> Content:
        same = kind == "Cast" and item.dataType().sql() == parts[0].dataType().sql()  # views cast to their own types
        if kind == "Alias" or same or (len(parts) == 1 and is_a(item, "InheritAnalysisRules")):
            return holds[0]  # an expression of these rules has its replacement as its child, and nothing else
        if kind in {"IsNull", "IsNotNull"} and self._releases.discloses_nulls(holds[0]):
            return holds[0].disclosed(kind)
        if kind == "GetStructField":
            return holds[0].field(str(item.extractFieldName()))
        if kind not in _OF_ROW or str(item.getClass().getName()) != _EXPRESSIONS + kind:
            return Content.made_from(holds)
        names = [str(name) for name in items(item.names())] if kind == "CreateNamedStruct" else []
        if kind == "CaseWhen":
            return _chosen(kind, holds)
        fields = list(zip(names, holds[1::2], strict=False))
        return Content.of_row(
            f"{kind} {_without_arguments(item, parts)}", holds, fields, _nulls(item, kind, parts, holds)
        )

    def _released(self, mark: Mark, parts: list[Any], columns: Columns) -> Content:
        roles = {"text": Content(), "id": Content()}
        for name, part in zip(("text", "id", "subject"), parts, strict=False):
            named = kind_of(part) == "NamedArgumentExpression"
            role = str(part.key()).casefold() if named else name
            value = next(items(part.children())) if named else part
            if role != "text":
                _require_id(value.dataType(), role)
            roles[role] = self.content(value, columns)
        text = roles.pop("text")
        if any(content.raw for content in roles.values()):
            raise GateError("raw text enters a release as an id", "ids are public: use another column")
        if text.raw:
            self._releases.require(text, roles["id"], mark.mechanism, mark.is_of)
        return Content()


def _chosen(how: str, holds: Sequence[Content]) -> Content:
    """Return the content of pairs of a condition and a value, and of a value for all other rows."""
    *pairs, content = holds if len(holds) % 2 else [*holds, Content.constant("NULL")]
    for condition, value in zip(pairs[-2::-2], pairs[::-2], strict=True):
        content = Content.of_row(how, [condition, value, content], (), null_by_case(condition, [value, content]))
    return content


def _nulls(item: Any, kind: str, parts: Sequence[Any], holds: Sequence[Content]) -> frozenset[str] | None:
    if kind == "Cast":
        return null_if_any(holds) if _is_written(item, parts[0]) else None
    return _NULLS[kind](holds) if kind in _NULLS else None


def _is_written(item: Any, part: Any) -> bool:
    """Return whether a cast writes each value of a type as a string."""
    source = str(part.dataType().typeName()).partition("(")[0]
    return source in _WRITTEN and str(item.dataType().typeName()) == "string"


def _require_id(dtype: Any, role: str) -> None:
    if str(dtype.typeName()).partition("(")[0] not in _ID_TYPES:
        msg = f"{'record' if role == 'id' else role} ids have the type {dtype.typeName()}, which is not allowed"
        hint = (
            "allowed: strings, integers, decimals, dates, timestamps with a zone, bytes, and structs of these; cast it"
        )
        raise InputError(msg, hint)


def _leaf(item: Any, kind: str, columns: Columns) -> Content:
    if kind == "CommonExpressionRef":
        return columns[str(item.id())]
    if is_a(item, "NamedExpression"):
        return columns.get(item.exprId().id(), Content())
    if kind != "Literal":
        return Content()
    return Content.constant(f"{item.sql()} {item.dataType().sql()}", null=item.value() is None)


def _without_arguments(item: Any, parts: list[Any]) -> str:
    """Write an expression without its arguments, whose names differ between equal expressions."""
    names = sorted({str(part.sql()) for part in parts}, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, names)), "?", str(item.sql())) + f" {item.dataType().sql()}"


def items(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(at) for at in range(sequence.size()))


def kind_of(item: Any) -> str:
    return str(item.getClass().getSimpleName())


def is_a(item: Any, kind: str) -> bool:
    from py4j.java_gateway import is_instance_of
    from pyspark import SparkContext

    return bool(is_instance_of(SparkContext._gateway, item, _EXPRESSIONS + kind))  # noqa: SLF001


_PASS = frozenset(
    {
        *("SubqueryAlias", "View", "WithCTE", "GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample"),
        *("Repartition", "ResolvedHint", "EventTimeWatermark"),
    }
)
"""Steps that have the columns of their inputs."""
_CHOICES = {
    "Filter": "which rows are kept",
    "Sort": "the order of rows",
    "Deduplicate": "which rows are distinct",
    "RepartitionByExpression": "where rows go",
    "RebalancePartitions": "where rows go",
    "Generate": "how many rows there are",
}
"""Steps whose expressions choose rows, and that have the columns of their inputs."""
_COMPARED = frozenset({"Distinct", "Intersect", "Except"})

Contents = dict[int, Content]


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
        id: Column of record ids, if the policy is for one column.

    Returns:
        `df`, unchanged.

    Raises:
        GateError: A raw column, or a value made from it, reaches the output, or chooses rows, or enters a step that
            cannot be followed; or a release is not the policy's, or reads anything other than a column of the same row,
            or computed ids.
        InputError: A release has ids or subjects of a type that ids cannot have, such as double.
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

    def step(self, node: Any, outer: Columns) -> Contents:
        kind = kind_of(node)
        below = [self.step(child, outer) for child in items(node.children())]
        columns = {number: content for contents in below for number, content in contents.items()}
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

    def _source(self, node: Any) -> Contents:
        rows, contents = new_rows(), {}
        for column in items(node.output()):
            name, dtype = str(column.name()), json.loads(column.dataType().json())
            contents[column.exprId().id()] = self._column(name, name, dtype, rows, frozenset())
        return contents

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

    def _common_table(self, node: Any, output: list[int]) -> Contents:
        defined = self._common.get(node.cteId())
        if defined is None:
            raise GateError("a table that is defined by itself cannot be followed", HINT)
        number = next_number()  # each use of the table has separate rows
        return {one: concatenated(number, [content]) for one, content in zip(output, defined, strict=True)}

    def _cterelationdef(self, node: Any, columns: Contents, _: list[Contents], __: Columns) -> Contents:
        self._common[node.id()] = [columns.get(item.exprId().id(), Content()) for item in items(node.output())]
        return columns

    def _project(self, node: Any, columns: Contents, _: list[Contents], outer: Columns) -> Contents:
        return self._made(node.projectList(), {**outer, **columns})

    def _aggregate(self, node: Any, columns: Contents, _: list[Contents], outer: Columns) -> Contents:
        around = {**outer, **columns}
        self._refuse_choice(items(node.groupingExpressions()), around, "the groups")
        made = self._made(node.aggregateExpressions(), around)
        return {number: Content(content.raw) for number, content in made.items()}

    def _window(self, node: Any, columns: Contents, _: list[Contents], outer: Columns) -> Contents:
        around = {**outer, **columns}
        self._refuse_choice([*items(node.partitionSpec()), *items(node.orderSpec())], around, "a window")
        return {**columns, **self._made(node.windowExpressions(), around)}

    def _join(self, node: Any, columns: Contents, below: list[Contents], outer: Columns) -> Contents:
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

    def _union(self, node: Any, _: Contents, below: list[Contents], __: Columns) -> Contents:
        number, contents = next_number(), {}
        inputs = [list(items(child.output())) for child in items(node.children())]
        for at, mine in enumerate(items(node.output())):
            parts = [
                content.get(theirs[at].exprId().id(), Content()) for content, theirs in zip(below, inputs, strict=True)
            ]
            contents[mine.exprId().id()] = concatenated(number, parts)
        return contents

    def _expand(self, node: Any, columns: Contents, _: list[Contents], outer: Columns) -> Contents:
        around = {**outer, **columns}
        rows = [[self._expressions.content(item, around) for item in items(row)] for row in items(node.projections())]
        return {
            one: Content.made_from(parts) for one, parts in zip(_output(node), zip(*rows, strict=True), strict=True)
        }

    def _lateraljoin(self, node: Any, columns: Contents, _: list[Contents], outer: Columns) -> Contents:
        right = self.step(node.right().plan(), {**outer, **columns})
        both = {**columns, **right, **_left_null(str(node.joinType().sql()), columns, right)}
        if node.condition().isDefined():
            self._refuse_choice([node.condition().get()], {**outer, **both}, "which rows are joined")
        return both

    def _made(self, expressions: Any, columns: Columns) -> Contents:
        return {item.exprId().id(): self._expressions.content(item, columns) for item in items(expressions)}

    def _refuse_choice(self, expressions: Iterable[Any], columns: Columns, what: str) -> None:
        refuse_choice((self._expressions.content(item, columns) for item in expressions), what)


def _left_null(how: str, left: Contents, right: Contents) -> Contents:
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
