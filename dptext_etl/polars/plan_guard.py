"""A guard on Polars plans: raw text reaches no output except through a release.

The plan is read, not run: every column is followed from the sources through each step. What the guard does not know how
to follow is refused when raw text flows into it, so a plan that passes has no way around the release. Covered: columns
and their aliases in projections, expressions, joins, groups, unions, sorts and sinks, and rows that are chosen or
ordered by raw text. Not covered: what Python functions read from elsewhere, and files under another column name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dptext_etl import _kernel
from dptext_etl.errors import GateError, PolicyError

if TYPE_CHECKING:
    import polars as pl

RELEASES, RELEASED = "dptext_table", "dptext_released"
"""The kernel's plugin functions behind which a column is released: the draw itself, and the mark of other draws."""

_HINT = "release the column in its place, .dptext.privatize(policy, id=…), or drop it before this step"
_PARTS = {
    "Literal": (),
    "Len": (),
    "BinaryExpr": ("left", "right"),
    "Cast": ("expr",),
    "Sort": ("expr",),
    "SortBy": ("expr", "by"),
    "Gather": ("expr", "idx"),
    "Filter": ("input", "by"),
    "Agg": ("arguments",),
    "Ternary": ("predicate", "truthy", "falsy"),
    "Function": ("input",),
    "Slice": ("input", "offset", "length"),
    "Explode": ("expr",),
    "Window": ("function", "partition_by", "order_by"),
}
"""Kinds of expressions, and where their inputs stand."""

Columns = frozenset[str]


def guard(plan: pl.LazyFrame, raw: Sequence[str]) -> pl.LazyFrame:
    """Refuse a plan in which a raw column reaches the output unreleased, and return the plan.

    Args:
        plan: Any lazy frame; it is not run.
        raw: Names of raw columns in the plan's sources.

    Raises:
        GateError: A raw column, or something made from it, reaches the output, or decides which rows do, or enters a
            step that cannot be followed.
        PolicyError: No source has such a column, or this version of Polars does not show its plans.

    Example:
        >>> import polars as pl
        >>> plan = pl.LazyFrame({"id": ["a"], "review": ["good"]}).select("id")
        >>> guard(plan, raw=["review"]).collect_schema().names()
        ['id']
    """
    try:
        names = plan.collect_schema().names()
        walk = _Walk(_as_written(plan), frozenset(raw))
    except (AttributeError, NotImplementedError):
        walk = None
    if walk is None:
        raise GateError("this plan has a step that Polars does not show, so nothing can be said about it", _HINT)
    reached = walk.tainted()
    missing = walk.raw - walk.seen
    if missing:
        raise PolicyError(f"no source of the plan has a column {_named(missing)}", "name raw columns as the sources do")
    leaked = [name for name in names if name in reached] or sorted(reached)
    if leaked:
        raise GateError(f"raw text reaches the output unreleased, in {_named(leaked)}", _HINT)
    return plan


class _Walk:
    """Follows raw columns through a plan, from its sources to its end."""

    def __init__(self, nodes: Any, raw: Columns) -> None:
        self._nodes = nodes
        self.raw = raw
        self.seen: set[str] = set()

    def tainted(self) -> Columns:
        """Return the columns of the current step that hold raw text, or something made from it."""
        kind = self._step()
        followed = getattr(self, f"_{type(kind).__name__.lower().lstrip('_')}", None)
        inputs = [self._below(number) for number in self._nodes.get_inputs()]
        if followed is None:
            return self._refuse_any(frozenset().union(*inputs), f"a step of kind {type(kind).__name__}")
        columns: Columns = followed(kind, inputs)
        return columns & frozenset(self._nodes.get_schema()) if type(kind).__name__ != "Sink" else columns

    def _step(self) -> Any:
        try:
            return self._nodes.view_current_node()
        except NotImplementedError:
            pass
        inputs = [self._below(number) for number in self._nodes.get_inputs()]
        self._refuse_any(frozenset().union(*inputs), "a step that Polars does not show")
        return _Opaque()

    def _below(self, number: int) -> Columns:
        here = self._nodes.get_node()
        self._nodes.set_node(number)
        try:
            return self.tainted()
        finally:
            self._nodes.set_node(here)

    def _refuse_any(self, columns: Columns, where: str) -> Columns:
        if columns:
            raise GateError(f"raw text in {_named(columns)} enters {where}, which cannot be followed", _HINT)
        return frozenset()

    def _refuse_choice(self, expressions: Iterable[Any], columns: Columns, what: str) -> None:
        if any(self._expression(item.node, columns) for item in expressions):
            raise GateError(f"raw text decides {what}", _HINT)

    def _expression(self, number: int, columns: Columns) -> bool:
        """Whether an expression holds raw text."""
        try:
            item = self._nodes.view_expression(number)
        except NotImplementedError:
            item = None
        if item is None:
            if columns:
                raise GateError("an expression that Polars does not show may read raw text", _HINT)
            return False
        kind = type(item).__name__
        if kind == "Column":
            return item.name in columns
        if kind == "Function" and _is_release(item.function_data):
            if self._expression(item.input[1], columns):
                raise GateError("raw text enters a release as the record id", "ids are public: take another column")
            return False
        if kind not in _PARTS:
            return bool(self._refuse_any(columns, f"an expression of kind {kind}"))
        inputs = [part for name in _PARTS[kind] for part in _numbers(getattr(item, name))]
        return any(self._expression(part, columns) for part in inputs)

    def _made(self, expressions: Iterable[Any], columns: Columns) -> tuple[set[str], set[str]]:
        made = {item.output_name: self._expression(item.node, columns) for item in expressions}
        return {name for name, raw in made.items() if raw}, set(made)

    def _source(self, node: Any, _: list[Columns]) -> Columns:
        names = frozenset(self._nodes.get_schema())
        self.seen |= self.raw & names
        predicate = getattr(node, "predicate", None) or getattr(node, "selection", None)
        if predicate is not None:
            self._refuse_choice([predicate], self.raw, "which rows are read")
        return self.raw & names

    _scan = _dataframescan = _source

    def _pythonscan(self, node: Any, _: list[Columns]) -> Columns:
        return self._source(node, _)

    def _same(self, _: Any, inputs: list[Columns]) -> Columns:
        return frozenset().union(*inputs)

    _simpleprojection = _slice = _cache = _union = _hconcat = _sink = _same

    def _select(self, node: Any, inputs: list[Columns]) -> Columns:
        return frozenset(self._made(node.expr, inputs[0])[0])

    def _hstack(self, node: Any, inputs: list[Columns]) -> Columns:
        raw, made = self._made(node.exprs, inputs[0])
        return (inputs[0] - made) | raw

    def _filter(self, node: Any, inputs: list[Columns]) -> Columns:
        self._refuse_choice([node.predicate], inputs[0], "which rows are kept")
        return inputs[0]

    def _sort(self, node: Any, inputs: list[Columns]) -> Columns:
        self._refuse_choice(node.by_column, inputs[0], "the order of rows")
        return inputs[0]

    def _distinct(self, node: Any, inputs: list[Columns]) -> Columns:
        subset = node.options[1]
        chosen = inputs[0] if subset is None else inputs[0] & frozenset(subset)
        if chosen:
            raise GateError(f"raw text in {_named(chosen)} decides which rows are distinct", _HINT)
        return inputs[0]

    def _groupby(self, node: Any, inputs: list[Columns]) -> Columns:
        self._refuse_choice(node.keys, inputs[0], "what a group is")
        if node.options.rolling is not None or node.options.dynamic is not None or node.apply:
            self._refuse_any(inputs[0], "groups by windows of time or by a function")
        return frozenset(self._made(node.aggs, inputs[0])[0])

    def _join(self, node: Any, inputs: list[Columns]) -> Columns:
        left, right = inputs
        self._refuse_choice(node.left_on, left, "which rows are joined")
        self._refuse_choice(node.right_on, right, "which rows are joined")
        if node.predicate is not None:
            self._refuse_any(left | right, "a join by a condition")
        suffix = node.options[3]
        return left | right | frozenset(f"{name}{suffix}" for name in right)

    def _mergesorted(self, node: Any, inputs: list[Columns]) -> Columns:
        both = inputs[0] | inputs[1]
        if both & frozenset(node.key):
            raise GateError("raw text decides the order of rows", _HINT)
        return both

    def _mapfunction(self, node: Any, inputs: list[Columns]) -> Columns:
        name, *options = node.function
        if name == "row_index":
            return inputs[0]
        if name == "explode":
            self._refuse_any(inputs[0] & frozenset(options[0]), "an explode")
            return inputs[0]
        if name == "unpivot":
            index, values, _, value = options
            raw = inputs[0] & frozenset(values)
            return (inputs[0] & frozenset(index)) | ({value} if raw else frozenset())
        return self._refuse_any(inputs[0], f"a function of whole frames ({name})")

    def _opaque(self, _: Any, __: list[Columns]) -> Columns:
        return frozenset()


class _Opaque:
    """Stands for a step that Polars does not show and that no raw text enters."""


def _numbers(part: Any) -> list[int]:
    if part is None:
        return []
    return list(part) if isinstance(part, (list, tuple)) else [part]


def _is_release(function: Sequence[Any]) -> bool:
    return function[:2] == ("ffi_plugin", str(_kernel.__file__)) and function[2] in (RELEASES, RELEASED)


def _as_written(plan: pl.LazyFrame) -> Any:
    """Return what Polars' own GPU engine reads plans by, over the plan before any optimisation."""
    import polars as pl

    return plan._ldf.with_optimizations(pl.QueryOptFlags.none()._pyoptflags).visit()  # noqa: SLF001


def _named(columns: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(columns))
