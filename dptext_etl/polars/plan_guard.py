"""Guard Polars plans: raw text reaches no output except through a release that the policy names.

The plan is read, not run: every column is followed from the sources through each step (`policy.plan_rules`). A
step that the guard does not know is refused when raw text flows into it. docs/polars.md lists its coverage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dptext_etl.errors import GateError, bare, by_place
from dptext_etl.polars.plan_expressions import HINT, Columns, Expressions, fields, hinted, refuse_any
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

if TYPE_CHECKING:
    import polars as pl

_EQUAL = frozenset({"Inner", "Left", "Right", "Full", "Semi"})
"""Joins after which the keys of both sides are equal, or one side is null."""
_WHOLE = frozenset({"Inner", "Cross", "Semi", "Anti", "IEJoin"})
"""Joins that give no rows in which the columns of one side are null."""
_MERGED = frozenset({"Right", "Full"})  # joins whose output may have a column of a shared name from either side


@bare
def guard(
    plan: pl.LazyFrame,
    raw: Sequence[str] | str = (),
    *,
    policy: PolicyLike | None = None,
    id: str | None = None,  # noqa: A002
) -> pl.LazyFrame:
    """Refuse a plan in which raw text reaches the output without the policy's release, and return the plan.

    Args:
        plan: Any lazy frame; the guard does not run it.
        raw: Names of raw columns in the plan's sources in addition to the policy's text columns, also fields of
            structs; one name or several.
        policy: Policy of the releases in the plan; the guard compares columns, id column, release name, mechanisms and
            key. Without a policy, it judges only the path of the text, and no budget.
        id: Column of record ids, if the policy is for one column.

    Returns:
        `plan`, unchanged.

    Raises:
        GateError: A raw column, or a value made from it, reaches the output, or chooses its rows, or enters a step that
            cannot be followed; or a release is not the policy's, or reads anything other than a column of the same row;
            or its text may be null where the source is not; or its ids are computed.
        PolicyError: No source has such a column, the policy is for benchmarks, or this version of Polars does not show
            its plans.

    Example:
        >>> import polars as pl
        >>> plan = pl.LazyFrame({"id": ["a"], "review": ["good"]}).select("id")
        >>> guard(plan, raw="review").collect_schema().names()
        ['id']
    """
    from polars.exceptions import PolarsError

    releases = Releases(policy, id, raw)
    try:
        names = plan.collect_schema().names()
        walk = _Walk(_as_written(plan), releases)
    except (AttributeError, NotImplementedError):
        msg = "this plan has a step that Polars does not show, so nothing can be said about it"
        raise GateError(msg, HINT) from None
    try:
        reached = {name: column for name, column in walk.columns().items() if column.raw}
    except (ArithmeticError, AttributeError, LookupError, NotImplementedError, PolarsError, TypeError, ValueError):
        raise GateError("the plan has a step of a form that the guard does not know", HINT) from None
    releases.judge(walk.sources, list(reached.values()), by_place(reached, names) or "a sink", HINT)
    return plan


class _Walk:
    """Follow columns through a plan; `_join` follows a step "Join" of Polars, and so on."""

    def __init__(self, nodes: Any, releases: Releases) -> None:
        self._nodes = nodes
        self._raw = releases.raw
        self._expressions = Expressions(nodes, releases)
        self.sources: set[str] = set()  # raw columns that a source has

    def columns(self) -> Columns:
        try:
            node = self._nodes.view_current_node()
            kind = type(node).__name__
        except NotImplementedError as error:
            node, kind = None, "Source" if "scan" in str(error) else ""
        inputs = [self._below(number) for number in self._nodes.get_inputs()]
        followed = getattr(self, f"_{kind.lower()}", None)
        if followed is None:
            if not inputs:
                raise GateError("a step shows neither its rows nor its inputs, so nothing can be said about it", HINT)
            for columns in inputs:
                refuse_any(columns, f"a step of kind {kind}" if kind else "a step that Polars does not show")
            return dict.fromkeys(self._nodes.get_schema(), Content())
        cells: Columns = followed(node, inputs)
        return cells if kind == "Sink" else {name: cells.get(name, Content()) for name in self._nodes.get_schema()}

    def _below(self, number: int) -> Columns:
        here = self._nodes.get_node()
        self._nodes.set_node(number)
        try:
            return self.columns()
        finally:
            self._nodes.set_node(here)

    def _refuse_choice(self, expressions: Iterable[Any], columns: Columns, what: str) -> None:
        refuse_choice((self._expressions.content(item.node, columns) for item in expressions), what)

    def _refuse_names(self, inputs: list[Columns], options: Any, what: str) -> None:
        """Refuse raw columns that the options of a step name, however deep."""
        if isinstance(options, (list, tuple)):
            for part in options:
                self._refuse_names(inputs, part, what)
        elif isinstance(options, str):
            refuse_choice((columns.get(options, Content()) for columns in inputs), what)

    def _made(self, expressions: Iterable[Any], columns: Columns) -> dict[str, Content]:
        return {item.output_name: self._expressions.content(item.node, columns) for item in expressions}

    def _source(self, node: Any, _: list[Columns]) -> Columns:
        rows, contents = new_rows(), {}
        for name, dtype in self._nodes.get_schema().items():
            contents[name] = self._column(name, name, dtype, rows, frozenset())
        predicate = getattr(node, "predicate", None) or getattr(node, "selection", None)
        if predicate is not None:
            self._refuse_choice([predicate], contents, "which rows are read")
        return contents

    def _column(self, path: str, name: str, dtype: Any, rows: frozenset[Rows], outer: frozenset[str]) -> Content:
        """Return a column of a source, or a field of one; all that a raw column holds is raw."""
        raw = outer | self._raw & {name, *fields(dtype)}
        self.sources |= raw
        inner = outer | self._raw & {name}
        parts = [
            (field.name, self._column(f"{path}.{field.name}", field.name, field.dtype, rows, inner))
            for field in (getattr(dtype, "fields", ()) or ())
        ]
        return Content.column(path, raw, rows, parts)

    _scan = _dataframescan = _pythonscan = _source

    def _simpleprojection(self, _: Any, inputs: list[Columns]) -> Columns:
        return inputs[0]

    _slice = _cache = _simpleprojection

    def _sink(self, _: Any, inputs: list[Columns]) -> Columns:
        return {name: content for columns in inputs for name, content in columns.items()}

    def _hconcat(self, node: Any, inputs: list[Columns]) -> Columns:
        return self._sink(node, [_outer(columns) for columns in inputs])

    def _union(self, _: Any, inputs: list[Columns]) -> Columns:
        number = next_number()
        return {
            name: concatenated(number, [columns.get(name, Content()) for columns in inputs])
            for name in self._nodes.get_schema()
        }

    def _select(self, node: Any, inputs: list[Columns]) -> Columns:
        return self._made(node.expr, inputs[0])

    def _hstack(self, node: Any, inputs: list[Columns]) -> Columns:
        return {**inputs[0], **self._made(node.exprs, inputs[0])}

    def _filter(self, node: Any, inputs: list[Columns]) -> Columns:
        self._refuse_choice([node.predicate], inputs[0], "which rows are kept")
        return inputs[0]

    def _sort(self, node: Any, inputs: list[Columns]) -> Columns:
        self._refuse_choice(node.by_column, inputs[0], "the order of rows")
        return inputs[0]

    def _distinct(self, node: Any, inputs: list[Columns]) -> Columns:
        subset = node.options[1]
        names = inputs[0] if subset is None else subset
        chosen = [content for name in names if (content := inputs[0].get(name, Content())).raw]
        if chosen:
            hint = "rows of one id hold one text, so compare the id, and other columns without raw text: .unique([ID])"
            raise GateError(f"raw text of {raw_names(chosen)} decides which rows are distinct", hint)
        return inputs[0]

    def _groupby(self, node: Any, inputs: list[Columns]) -> Columns:
        self._refuse_choice(node.keys, inputs[0], "the groups")
        for windows in (node.options.rolling, node.options.dynamic):
            if windows is not None:
                self._refuse_names(inputs, windows.index_column, "the groups")
        if node.apply:
            refuse_any(inputs[0], "groups by a function")
        return {name: Content(content.raw) for name, content in self._made(node.aggs, inputs[0]).items()}

    def _join(self, node: Any, inputs: list[Columns]) -> Columns:
        left, right = dict(inputs[0]), dict(inputs[1])
        self._refuse_choice(node.left_on, left, "which rows are joined")
        self._refuse_choice(node.right_on, right, "which rows are joined")
        if node.predicate is not None:
            for side in inputs:
                refuse_any(side, "a join by a condition")
        how, suffix = node.options[0], node.options[3]
        if not isinstance(how, str):  # as-of joins compare more columns, which are only here
            how, *more = how
            self._refuse_names(inputs, more, "which rows are joined")
        if how in _EQUAL:
            for one, other in zip(node.left_on, node.right_on, strict=True):
                mine, theirs = self._expressions.content(one.node, left), self._expressions.content(other.node, right)
                if mine == left.get(one.output_name) and theirs == right.get(other.output_name):
                    left[one.output_name], right[other.output_name] = mine.joined(theirs), theirs.joined(mine)
        if how not in _WHOLE:
            left, right = _outer(left, node.left_on), _outer(right, node.right_on)
        both = left.keys() & right.keys()
        merged = {name: left[name].either(right[name]) for name in both} if how in _MERGED else {}
        return {**right, **{f"{name}{suffix}": right[name] for name in both}, **left, **merged}

    def _mergesorted(self, node: Any, inputs: list[Columns]) -> Columns:
        both = self._union(node, inputs)
        self._refuse_names(inputs, node.key, "the order of rows")
        return both

    def _mapfunction(self, node: Any, inputs: list[Columns]) -> Columns:
        name, *options = node.function
        if name == "row_index":
            return inputs[0]
        if name == "hint_sorted":
            return {**inputs[0], **{column: hinted(inputs[0].get(column, Content())) for column, *_ in options[0]}}
        if name == "unnest" and options[1:] == [None]:
            return self._unnested(node.input, options[0], inputs[0])
        if name == "explode":
            exploded = {column: inputs[0][column] for column in options[0]}
            refuse_any(exploded, "an explode")
            return {**inputs[0], **dict.fromkeys(exploded, Content())}
        if name == "unpivot":
            index, values, _, value = options
            kept = {column: inputs[0][column] for column in index}
            return {**kept, value: Content.made_from(inputs[0][column] for column in values)}
        refuse_any(inputs[0], f"a function of whole frames ({name})")
        return {}

    def _unnested(self, below: int, structs: list[str], columns: Columns) -> Columns:
        here = self._nodes.get_node()
        self._nodes.set_node(below)
        schema = self._nodes.get_schema()
        self._nodes.set_node(here)
        contents = {name: content for name, content in columns.items() if name not in structs}
        for name in structs:
            contents |= {field.name: columns[name].field(field.name) for field in schema[name].fields}
        return contents


def _outer(columns: Columns, keys: Iterable[Any] = ()) -> dict[str, Content]:
    """Return columns of an input of a step that may add rows without it; a key may get a value of the other input."""
    number, keyed = next_number(), {key.output_name: next_number() for key in keys}
    return {name: content.outer(keyed.get(name, number)) for name, content in columns.items()}


def _as_written(plan: pl.LazyFrame) -> Any:
    """Return the interface by which Polars' own GPU engine reads plans, on the plan before any optimization."""
    import polars as pl

    flags = pl.QueryOptFlags.none()._pyoptflags  # noqa: SLF001
    flags.type_coercion = False  # it would drop the names of series that the plan holds as literals
    return plan._ldf.with_optimizations(flags).visit()  # noqa: SLF001
