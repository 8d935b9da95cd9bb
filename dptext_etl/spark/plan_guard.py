"""A guard on Spark plans: raw text reaches no output except through a registered release.

The analysed plan is read, not run: every column is followed by the id that Spark's analyser gave it, from the sources
through each step, views, common tables and sub-queries included. A step that the guard does not know is refused where
raw text enters it.

Covered: classic sessions; columns and whatever is computed from them, under any name; rows that raw text chooses,
orders, joins or groups. Not covered: Spark Connect, whose client sees no analysed plan (refused); what was done before
the plan begins (RDDs, checkpoints, session variables, files that hold raw text under another name); what a function
reads from elsewhere.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from types import CodeType
from typing import TYPE_CHECKING, Any

from dptext_etl.errors import GateError, PolicyError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HINT = "release the column by its registered function, name(text, id), or drop it before this step"
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_FORMS = {"dptext_etl.spark.arrow_form": "worker", "dptext_etl.spark.pandas_form": "series"}
"""Where the functions that `register` makes are written, and the module that each of them calls."""
_PASS = frozenset(
    {
        *("SubqueryAlias", "View", "WithCTE", "GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample"),
        *("Repartition", "ResolvedHint", "EventTimeWatermark"),
    }
)
"""Steps whose columns are those of their inputs."""
_CHOICES = {
    "Filter": "which rows are kept",
    "Join": "which rows are joined",
    "Sort": "the order of rows",
    "Deduplicate": "which rows are distinct",
    "RepartitionByExpression": "where rows go",
    "RebalancePartitions": "where rows go",
    "Generate": "how many rows there are",
}
"""Steps whose expressions decide about rows, and whose columns are those of their inputs."""
_COMPARED = frozenset({"Distinct", "Intersect", "Except"})

Ids = frozenset[int]
_NONE: Ids = frozenset()


def guard(df: DataFrame, raw: Sequence[str]) -> DataFrame:
    """Refuse a data frame in which a raw column reaches the output unreleased, and return it.

    Args:
        df: A frame of a classic session; it is not run.
        raw: Names of raw columns in the sources of its plan, also inside structs; Spark does not tell case apart.

    Raises:
        GateError: A raw column, or something made from it, reaches the output, or decides about rows, or enters a step
            that cannot be followed.
        PolicyError: The frame is one of Spark Connect, or no source has such a column.

    Example:
        ```python
        from dptext_etl.spark import guard, register

        register(spark, "private_review", policy)
        guard(spark.sql("SELECT id, private_review(review, id) AS review FROM reviews"), raw=["review"])
        ```
    """
    if getattr(df, "_jdf", None) is None:
        raise PolicyError(
            "a frame of Spark Connect shows its client no analysed plan, so nothing sound can be said about it",
            "guard the same query in a classic session; privatize_frame keeps only what the policy names in either",
        )
    plan = df._jdf.queryExecution().analyzed()  # noqa: SLF001  (the analysed plan has no public door)
    walk = _Walk({name.casefold() for name in raw})
    reached = walk.step(plan, _NONE)
    if missing := walk.raw - walk.seen:
        raise PolicyError(f"no source of the plan has a column {_named(missing)}", "name raw columns as the sources do")
    if reached:
        raise GateError(f"raw text reaches the output unreleased, in {_named(_names(plan, reached))}", _HINT)
    return df


class _Walk:
    """Follows raw columns through a plan.

    Attributes:
        raw: Names of raw columns, case folded.
        seen: Those that a source has.
    """

    def __init__(self, raw: set[str]) -> None:
        self.raw = raw
        self.seen: set[str] = set()
        self._common: dict[int, list[bool]] = {}

    def step(self, node: Any, outer: Ids) -> Ids:
        """Return the ids of a step's output columns that hold raw text, or something made from it.

        Args:
            node: The step.
            outer: Raw columns of the queries around a sub-query, which it may refer to.
        """
        kind = _kind(node)
        below = [self.step(child, outer) for child in _items(node.children())]
        raw = frozenset().union(*below)
        output = [item.exprId().id() for item in _items(node.output())]
        if kind == "CTERelationRef":
            return self._common_table(node, output)
        if not below:
            return self._source(node)
        followed = getattr(self, f"_{kind.lower()}", None)
        if followed is not None:
            raw = followed(node, raw, below, outer)
        elif kind in _PASS or kind in _CHOICES:
            self._refuse_choice(_items(node.expressions()), raw | outer, _CHOICES.get(kind, "which rows are kept"))
        elif kind in _COMPARED:
            if raw:
                raise GateError(f"raw text in {_named(_names(node, raw))} decides which rows are distinct", _HINT)
        elif raw or any(self._expression(item, outer) for item in _items(node.expressions())):
            raise GateError(f"raw text enters a step of kind {kind}, which cannot be followed", _HINT)
        return raw & frozenset(output)

    def _source(self, node: Any) -> Ids:
        found = set()
        for column in _items(node.output()):
            held = self.raw & {name.casefold() for name in [column.name(), *_fields(column.dataType().json())]}
            self.seen |= held
            if held:
                found.add(column.exprId().id())
        return frozenset(found)

    def _common_table(self, node: Any, output: list[int]) -> Ids:
        defined = self._common.get(node.cteId())
        if defined is None:
            raise GateError("a table that is defined by itself cannot be followed", _HINT)
        return frozenset(number for number, raw in zip(output, defined, strict=True) if raw)

    def _cterelationdef(self, node: Any, raw: Ids, _: list[Ids], __: Ids) -> Ids:
        self._common[node.id()] = [item.exprId().id() in raw for item in _items(node.output())]
        return raw

    def _project(self, node: Any, raw: Ids, _: list[Ids], outer: Ids) -> Ids:
        return self._made(node.projectList(), raw | outer)

    def _aggregate(self, node: Any, raw: Ids, _: list[Ids], outer: Ids) -> Ids:
        self._refuse_choice(_items(node.groupingExpressions()), raw | outer, "what a group is")
        return self._made(node.aggregateExpressions(), raw | outer)

    def _window(self, node: Any, raw: Ids, _: list[Ids], outer: Ids) -> Ids:
        self._refuse_choice([*_items(node.partitionSpec()), *_items(node.orderSpec())], raw | outer, "a window")
        return raw | self._made(node.windowExpressions(), raw | outer)

    def _union(self, node: Any, _: Ids, below: list[Ids], __: Ids) -> Ids:
        found = set()
        for child, raw in zip(_items(node.children()), below, strict=True):
            for mine, theirs in zip(_items(node.output()), _items(child.output()), strict=True):
                if theirs.exprId().id() in raw:
                    found.add(mine.exprId().id())
        return frozenset(found)

    def _expand(self, node: Any, raw: Ids, _: list[Ids], outer: Ids) -> Ids:
        output = [item.exprId().id() for item in _items(node.output())]
        rows = [[self._expression(item, raw | outer) for item in _items(row)] for row in _items(node.projections())]
        return frozenset(number for number, column in zip(output, zip(*rows, strict=True), strict=True) if any(column))

    def _lateraljoin(self, node: Any, raw: Ids, _: list[Ids], outer: Ids) -> Ids:
        both = raw | self.step(node.right().plan(), raw | outer)
        if node.condition().isDefined():
            self._refuse_choice([node.condition().get()], both | outer, "which rows are joined")
        return both

    def _made(self, expressions: Any, raw: Ids) -> Ids:
        made = {item.exprId().id(): self._expression(item, raw) for item in _items(expressions)}
        return frozenset(number for number, holds in made.items() if holds)

    def _refuse_choice(self, expressions: Iterable[Any], raw: Ids, what: str) -> None:
        if any(self._expression(item, raw) for item in expressions):
            raise GateError(f"raw text decides {what}", _HINT)

    def _expression(self, item: Any, raw: Ids) -> bool:
        """Whether an expression holds raw text."""
        parts = list(_items(item.children()))
        if _is(item, "PlanExpression"):
            inner = self.step(item.plan(), raw)
            return bool(inner) and _kind(item) != "Exists"  # what exists is decided by steps, not by columns
        if not parts:
            return _is(item, "NamedExpression") and item.exprId().id() in raw
        holds = [self._expression(part, raw) for part in parts]
        if _kind(item) == "PythonUDF" and _is_release(item.func()):
            if any(holds[1:]):
                raise GateError("raw text enters a release as an id", "ids are public: take another column")
            return False
        return any(holds)


def _is_release(function: Any) -> bool:
    """Whether a Python function of a plan is one that `register` made: the same code, calling the same module."""
    try:
        command = bytes(function.command().unsafeArray())
    except Exception:  # noqa: BLE001  (another version of Spark keeps it elsewhere: then it is no release that we know)
        return False
    forms = [name for name in _FORMS if name.encode() in command]
    if len(forms) != 1:
        return False
    made = pickle.loads(command)[0]  # noqa: S301  (this process wrote it into its own plan)
    called = _FORMS[forms[0]]
    same = getattr(made, "__globals__", {}).get(called) is import_module(f"dptext_etl.spark.{called}")
    return same and getattr(made, "__code__", None) in _code(forms[0])


@cache
def _code(form: str) -> tuple[CodeType, ...]:
    made = import_module(form).function.__code__.co_consts
    return tuple(item for item in made if isinstance(item, CodeType))


def _items(sequence: Any) -> Iterator[Any]:
    """The items of a Scala sequence."""
    return (sequence.apply(at) for at in range(sequence.size()))


def _kind(item: Any) -> str:
    return str(item.getClass().getSimpleName())


def _is(item: Any, kind: str) -> bool:
    from py4j.java_gateway import is_instance_of
    from pyspark import SparkContext

    return bool(is_instance_of(SparkContext._gateway, item, _EXPRESSIONS + kind))  # noqa: SLF001


def _fields(written: str) -> Iterator[str]:
    """Names of all fields inside a type."""
    waiting = [json.loads(written)]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            if "name" in here:
                yield str(here["name"])
            waiting.extend(value for name, value in here.items() if name != "metadata")
        elif isinstance(here, list):
            waiting.extend(here)


def _names(node: Any, ids: Ids) -> list[str]:
    return [str(item.name()) for item in _items(node.output()) if item.exprId().id() in ids]


def _named(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
