"""Guard Polars plans: raw text goes only into a release that the policy names (`policy.plan_rules` has the rule).

The plan is read, not run, and every column is followed from the sources. Steps and expressions that are not listed here
are refused where raw text could enter them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from dptext_etl.data_types import parts_of
from dptext_etl.errors import GateError, bare
from dptext_etl.polars.namespace import Mark
from dptext_etl.policy import PolicyLike
from dptext_etl.policy.plan_rules import HINT, Content, PlanRules, concatenated, mixed, refuse

if TYPE_CHECKING:
    import polars as pl

_KINDS = frozenset(
    {
        *("Agg", "BinaryExpr", "Cast", "Explode", "Filter", "Function", "Gather"),
        *("Len", "Literal", "Slice", "Sort", "SortBy", "Ternary", "Window"),
    }
)
_INPUTS = (
    *("input", "left", "right", "expr", "by", "idx", "arguments", "offset", "length"),
    *("predicate", "truthy", "falsy", "function", "partition_by", "order_by"),
)
"""Kinds of expressions, and the fields that hold the inputs of all of them."""
_READ = {"Filter": "predicate", "Sort": "by_column"}
_GIVE = {"Select": "expr", "HStack": "exprs"}
"""Expressions that a step reads, and those that give columns; other steps only hand on columns of their inputs."""
_HAND_ON = frozenset({"SimpleProjection", "Slice", "Cache", "Sink", "HConcat", *_READ, *_GIVE})
_JOINS = ("Inner", "Left", "Cross", "Semi", "Anti")
"""Joins whose columns are columns of one side; the keys of others may come from either side."""

Columns = dict[str, Content]


@bare
def guard(
    plan: pl.LazyFrame,
    raw: Sequence[str] | str = (),
    *,
    policy: PolicyLike | None = None,
    id: str | None = None,  # noqa: A002
) -> pl.LazyFrame:
    """Refuse a plan in which raw text goes anywhere except into the policy's release, and return the plan.

    It warns (`OtherTextWarning`) of unchanged strings in the output that the policy of a dataset does not name.

    Args:
        plan: Any lazy frame, which is not run.
        raw: Names of raw columns in the sources, in addition to the policy's; one or several.
        policy: The policy of the releases; None judges only the path of the text, and no budget.
        id: Column of record ids, if the policy is for one column.

    Raises:
        GateError: A raw column has another use, or is in the output; or a release is not the policy's.
        PolicyError: No source has such a column, or the policy is for benchmarks.

    Example:
        >>> import polars as pl
        >>> plan = pl.LazyFrame({"id": ["a"], "review": ["good"]}).select("id")
        >>> guard(plan, raw="review").collect_schema().names()
        ['id']
    """
    import polars as pl

    # the interface by which Polars' own GPU engine reads plans, on the plan before any optimization
    flags = pl.QueryOptFlags.none()._pyoptflags  # noqa: SLF001
    flags.type_coercion = False  # it would drop the names of series that the plan holds as literals
    as_written: Any = plan._ldf.with_optimizations(flags)  # noqa: SLF001
    PlanRules(policy, id, raw).judge(lambda releases: _Walk(as_written.visit(), releases).output())
    return plan


class _Walk:
    """Follow columns through a plan; `_join` follows a step "Join" of Polars, and so on."""

    def __init__(self, nodes: Any, releases: PlanRules) -> None:
        self._nodes, self._releases, self._rows = nodes, releases, count()

    def output(self) -> list[tuple[Content, bool]]:
        types = self._nodes.get_schema()
        return [(content, str(types.get(name)) == "String") for name, content in self._columns().items()]

    def _columns(self) -> Columns:
        try:
            node = self._nodes.view_current_node()
            kind = type(node).__name__
        except NotImplementedError as error:  # a scan of an IPC file is not shown
            node, kind = None, "Scan" if "scan" in str(error) else "unknown"
        inputs: list[Columns] = [self._at(number, self._columns) for number in self._nodes.get_inputs()]
        columns = {name: content for above in inputs for name, content in above.items()}
        others = mixed(content for above in inputs for content in above.values())
        follow = getattr(self, f"_{kind.lower()}", None)
        if follow is not None:
            columns = follow(node, *inputs)
        elif kind not in _HAND_ON:
            refuse([others], f"a step that cannot be followed ({kind})")
            if not inputs:
                raise GateError("a step shows neither its rows nor its inputs, so nothing can be said about it", HINT)
        else:
            read = getattr(node, _READ[kind]) if kind in _READ else []
            read = read if isinstance(read, list) else [read]
            refuse((self._content(item.node, columns) for item in read), f"a step of kind {kind}")
            given = getattr(node, _GIVE[kind]) if kind in _GIVE else []
            columns |= {item.output_name: self._content(item.node, columns) for item in given}
        return columns if kind == "Sink" else {name: columns.get(name, others) for name in self._nodes.get_schema()}

    def _at(self, number: int, read: Callable[[], Any]) -> Any:
        """Read something of another node."""
        here = self._nodes.get_node()
        self._nodes.set_node(number)
        found = read()
        self._nodes.set_node(here)
        return found

    def _content(self, number: int, columns: Columns) -> Content:
        import polars as pl

        try:
            item = self._nodes.view_expression(number)
        except NotImplementedError:
            item = None
        kind = type(item).__name__
        if kind == "Column":
            return columns[item.name]
        if kind not in _KINDS:
            refuse(columns.values(), f"an expression that cannot be followed ({kind})")
            return Content()
        data = item.function_data if kind == "Function" else kind
        name = data[0] if isinstance(data, (list, tuple)) else data
        if kind == "Literal" and type(item.value).__name__ == "PySeries":  # its name, or a name in its type, may be raw
            series = pl.Series._from_pyseries(item.value)  # noqa: SLF001
            return mixed([self._releases.column(series.name, _fields(series.dtype), None)])
        fields = (getattr(item, field, None) for field in _INPUTS)
        parts_of = [field if isinstance(field, (list, tuple)) else [field] for field in fields if field is not None]
        numbers: list[int] = [part for several in parts_of for part in several]
        if name == "ffi_plugin" and (mark := Mark(item.function_data)).ours and mark.text_at < len(numbers):
            text, ids = (self._content(numbers[at], columns) for at in (mark.text_at, 1))
            self._releases.require(text, ids, mark.mode, mark.is_of)
            return Content()
        parts = [self._content(part, columns) for part in numbers]
        refuse(parts, f"an expression ({name})")
        return Content()

    def _scan(self, _: Any) -> Columns:
        rows, schema = next(self._rows), self._nodes.get_schema()
        return {name: self._releases.column(name, _fields(dtype), rows) for name, dtype in schema.items()}

    _dataframescan = _pythonscan = _scan

    def _union(self, _: Any, *inputs: Columns) -> Columns:
        return {name: concatenated([columns[name] for columns in inputs]) for name in self._nodes.get_schema()}

    def _distinct(self, node: Any, columns: Columns) -> Columns:
        subset = node.options[1]
        refuse((columns[name] for name in (columns if subset is None else subset)), "a choice of distinct rows")
        return columns

    def _groupby(self, node: Any, columns: Columns) -> Columns:
        if node.apply or node.options.rolling is not None or node.options.dynamic is not None:
            refuse(columns.values(), "groups by a window or a function")
        refuse((self._content(item.node, columns) for item in node.keys), "groups")
        given = {item.output_name: mixed([self._content(item.node, columns)]) for item in node.aggs}
        return {item.output_name: Content() for item in node.keys} | given

    def _join(self, node: Any, left: Columns, right: Columns) -> Columns:
        how, suffix = node.options[0], node.options[3]
        if how not in _JOINS or node.predicate is not None:
            refuse([*left.values(), *right.values()], "a join that cannot be followed")
        for key, other in zip(node.left_on, node.right_on, strict=True):
            refuse([self._content(key.node, left), self._content(other.node, right)], "a join")
        renamed = {f"{name}{suffix}": right[name] for name in left.keys() & right.keys()}
        either = {name: mixed([renamed[name], right[name]]) for name in renamed.keys() & right.keys()}  # if keys merge
        return right | renamed | either | left


def _fields(dtype: Any) -> list[str]:
    """Return the names of the fields of all structs inside a type."""
    return [field.name for part in parts_of(dtype) for field in getattr(part, "fields", ())]
