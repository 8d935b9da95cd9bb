"""Define the namespace `.dptext` of Polars expressions and frames, which importing `dptext_etl.polars` registers.

A mechanism whose output distributions or public texts are in a file runs inside Polars as a plugin of the kernel:
elementwise, lazy, streaming, in parallel. Every other mechanism runs in batches over `dptext_etl.column.privatize`. In
both cases an expression holds configuration, hashes and a key reference, never a key. Expressions write no ledger.

`guard` lets raw text go only into a release that the policy names (`policy.plan_rules` has the rule). The plan is read,
not run, and every column is followed from the sources. Steps and expressions that are not listed here are refused where
raw text could enter them.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import polars as pl
from polars.plugins import register_plugin_function

from dptext_etl import _kernel, column
from dptext_etl.data_types import by_name, parts_of
from dptext_etl.errors import GateError, InputError, PolicyError, bare, counted
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.families.stored_distributions import MappedMechanism
from dptext_etl.guarantee import FINE, exact, micro
from dptext_etl.mechanism import Mechanism
from dptext_etl.policy import ColumnPolicy, Policy, PolicyLike, columns_and_id, resolve, resolve_column
from dptext_etl.policy.plan_rules import HINT, Content, PlanRules, concatenated, mixed, refuse

OLDEST = (2, 1)
NEXT_MAJOR = 3


def require_known_polars(version: str = pl.__version__) -> None:
    """Refuse a version of Polars that does not fit the plugin, before the plugin is called."""
    parts = version.split(".")
    numbered = len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit()
    if not numbered or not OLDEST <= (int(parts[0]), int(parts[1])) < (NEXT_MAJOR, 0):
        wanted = f"polars>={OLDEST[0]}.{OLDEST[1]},<{NEXT_MAJOR}"
        raise PolicyError(
            f"the expression plugin is written for {wanted}; Polars here is {version}",
            f"install another one: pip install '{wanted}'",
        )


require_known_polars()

RELEASES, RELEASED = "dptext_table", "dptext_released"
"""Plugin functions of the kernel whose output is released: the draw itself, and the mark of other draws."""


InKernel = MappedMechanism | ChoiceMechanism


def in_kernel(mechanism: Mechanism) -> InKernel | None:
    """Return the mechanism if the kernel runs it by itself, from one stored file: without a model or a tool."""
    return mechanism if isinstance(mechanism, InKernel) and mechanism.reproducible else None


def marks(policy: ColumnPolicy, column: str) -> dict[str, Any]:
    mechanism = policy.mechanism
    described = {"name": mechanism.name, **mechanism.model_dump(mode="json")}
    return {
        "dataset": policy.dataset,
        "column": column,
        "release": policy.release,
        "key_reference": policy.key,
        "nonce": str(policy.nonce),
        "mechanism": json.dumps(described, sort_keys=True),
    }


def table_marks(policy: ColumnPolicy, mechanism: InKernel, column: str) -> dict[str, Any]:
    return {
        **marks(policy, column),
        "table_sha256": mechanism.table.sha256,
        "cfg": mechanism.cfg(),
        "input_policy": json.dumps(mechanism.input_policy(), sort_keys=True),
    }


SPEND = pl.Struct({"text": pl.String, "positions": pl.UInt32, "epsilon": pl.Float64, "delta": pl.Float64})
"""Type of a released column with `spend=True`."""


@pl.api.register_expr_namespace("dptext")
class ExprNamespace:
    """`pl.Expr.dptext`."""

    def __init__(self, expr: pl.Expr) -> None:
        self._expr = expr

    @bare
    def privatize(self, policy: PolicyLike, *, id: pl.Expr | str, spend: bool = False) -> pl.Expr:  # noqa: A002
        """Release this text column, as `dptext_etl.polars.privatize` does; the released text has the same name.

        Args:
            policy: The column's policy, or a policy that has the root column, or the path of its file.
            id: Record ids, as a column or an expression.
            spend: Return `Struct[text, positions, epsilon, delta]`, the declared pair of each record.

        Returns:
            As many strings as texts, null if the text is null; or the struct.

        Raises:
            PolicyError: The expression has several output columns, or another column than the policy.
        """
        if self._expr.meta.has_multiple_outputs():
            raise PolicyError(
                "the expression has several output columns", "privatize columns one by one, each by its own policy"
            )
        return _privatized(self._expr, sorted(set(self._expr.meta.root_names())), policy, id, spend)


Whole = Policy | str | PathLike[str]  # a policy that names the id column and all text columns


Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)


class FrameNamespace(Generic[Frame]):
    """The namespace `.dptext` of data frames and lazy frames."""

    def __init__(self, frame: Frame) -> None:
        self._frame: Frame = frame

    @overload
    def privatize(self, policy: ColumnPolicy, *, id: str, select: bool = False, spend: bool = False) -> Frame: ...
    @overload
    def privatize(
        self, policy: Whole, *, id: str | None = None, select: bool = False, spend: bool = False
    ) -> Frame: ...
    @bare
    def privatize(
        self,
        policy: PolicyLike,
        *,
        id: str | None = None,  # noqa: A002
        select: bool = False,
        spend: bool = False,
    ) -> Frame:
        """Release the policy's text columns of this frame (see `ExprNamespace.privatize`).

        Args:
            policy: A policy, or the path of its file; or the policy of one column, with the column's name.
            id: Column of record ids; None uses the policy's id column. The policy of one column names none. An id with
                two texts is refused where one batch holds both; a run (`run_frame`) sees the whole table.
            select: Return only the columns that a run of the policy publishes, as it publishes them: ids as `ids` says,
                kept columns coarsened, released texts, and no rows that `on_null_subject` leaves out. Entries about
                the ledger, such as `cap`, have no effect, because an expression writes none.
            spend: Put `Struct[text, positions, epsilon, delta]` in the place of each column.

        Returns:
            The frame with released columns in the places of the raw ones; or the selected columns.

        Raises:
            PolicyError: The policy names no column, or no id column; or with `select`, an entry needs a run.
            InputError: With `select`, the frame lacks a column of the policy, or a column has a wrong type.
        """
        given = policy if isinstance(policy, ColumnPolicy) else resolve(policy)
        columns, ids = columns_and_id(given, id)
        rows: Any = self._frame
        as_published = None
        if isinstance(given, Policy):
            from dptext_etl.polars import frame  # needs a ledger, which an expression does not

            frame.warn_of_other_ids(given, ids, rows)
            if select:
                given = given.model_copy(update={"id": ids})
                rows, as_published = frame.read_columns(rows.lazy(), given), frame.as_published
        rows = rows.with_columns(privatize(item.named, item, id=ids, spend=spend) for item in columns)
        if isinstance(given, Policy):
            rows = rows if as_published is None else as_published(rows, given)
        elif select:
            rows = rows.select(by_name(ids), by_name(given.named))
        eager = isinstance(self._frame, pl.DataFrame) and isinstance(rows, pl.LazyFrame)
        released: Frame = rows.collect() if eager else rows
        return released


@pl.api.register_dataframe_namespace("dptext")
class DataFrameNamespace(FrameNamespace[pl.DataFrame]):
    """`pl.DataFrame.dptext`: its method `privatize` releases the policy's text columns of a frame."""


@pl.api.register_lazyframe_namespace("dptext")
class LazyFrameNamespace(FrameNamespace[pl.LazyFrame]):
    """`pl.LazyFrame.dptext`: its method `privatize` releases the policy's text columns of a frame."""


def _privatized(
    text: pl.Expr,
    roots: Sequence[str],
    policy: PolicyLike,
    ids: pl.Expr | str,
    spend: bool,
) -> pl.Expr:
    """Release a text; `roots` has the names of the columns that it reads."""
    policy = resolve_column(policy, roots[0] if len(roots) == 1 else None)
    column.require_row_by_row(policy)
    name = _column(roots, policy)
    ids = by_name(ids) if isinstance(ids, str) else ids
    if (mechanism := in_kernel(policy.mechanism)) is not None:
        per_draw, per_text = _charges(mechanism) if spend else (0, 0)
        return register_plugin_function(
            plugin_path=_kernel.__file__,
            function_name=RELEASES,
            args=[text, ids],
            kwargs={
                **table_marks(policy, mechanism, name),
                "table_path": str(mechanism.table.path),
                "unit_micro": per_draw,
                "base_micro": per_text,
                "delta": mechanism.spend(1).delta / FINE if spend else 0.0,
                "spend": spend,
            },
            is_elementwise=True,
        )
    policy = policy.model_copy(update={"column": name})
    pair = pl.struct(text.alias("text"), ids.alias("id"))
    release = _Release(policy, spend=spend)
    out = pl.map_batches([pair], release, return_dtype=SPEND if spend else pl.String, is_elementwise=True)
    marked = register_plugin_function(
        plugin_path=_kernel.__file__,
        function_name=RELEASED,
        args=[out, ids, text],
        kwargs=marks(policy, name),
        is_elementwise=True,
    )
    return marked.alias(text.meta.output_name())


def _column(roots: Sequence[str], policy: ColumnPolicy) -> str:
    """Return the column's name for keys (docs/spec/stream.md#names); two columns never share a name."""
    if policy.column is None:
        if len(roots) != 1:
            raise PolicyError(
                f"the expression has {len(roots)} root columns, so it gives the column no name",
                "give ColumnPolicy(column=…)",
            )
        return roots[0]
    if len(roots) == 1 and roots[0] != policy.column:
        msg = f"the policy is for column {policy.column!r}, the expression reads {roots[0]!r}; keys are per column"
        raise PolicyError(msg, "give each column its own policy, or leave ColumnPolicy(column=None)")
    return policy.column


_MANY = 1_000_003


def _charges(mechanism: InKernel) -> tuple[int, int]:
    """Return the declared epsilon of one draw, and of a text next to its draws, in millionths."""
    price = getattr(mechanism, "epsilon_length", None)
    text = 0 if price is None else int(micro(exact(price)))
    unit, many = mechanism.spend(1).eps_approx - text, 1 if mechanism.most_positions == 1 else _MANY
    if not math.isfinite(unit) or mechanism.spend(many).eps_approx != unit * many + text:
        raise PolicyError("epsilon is finer than a millionth", "give epsilon with at most 6 decimals")
    return int(unit), text


_NULL_IDS = (
    "every record needs an id of its own; select rows before the release, not by `when` around it, because Polars "
    "sets ids to null around it"
)


@dataclass(frozen=True)
class _Release:
    """Release batches for a mechanism without a plugin; a plan holds only the policy's parameters and references."""

    policy: ColumnPolicy
    spend: bool

    def __call__(self, columns: Sequence[pl.Series]) -> pl.Series:
        (batch,) = columns
        text, record = batch.struct.field("text"), batch.struct.field("id")
        if record.dtype != pl.Null and (nulls := record.null_count()):
            raise InputError(counted(nulls, "record id is null", "record ids are null"), _NULL_IDS)
        texts = text.cast(pl.String) if text.dtype == pl.Null else text
        released = column.privatize(texts.to_arrow(), record.to_arrow(), self.policy, spend=self.spend)
        return pl.Series(batch.name, released)


@bare
def privatize(
    text: pl.Expr | str,
    policy: PolicyLike,
    *,
    id: pl.Expr | str,  # noqa: A002  (the argument's name is the column's role)
    spend: bool = False,
) -> pl.Expr:
    """Release a text column under differential privacy: the same expression as `pl.col(text).dptext.privatize(…)`.

    Args:
        text: The text column, by name or as an expression.
        policy: The column's policy; if it names no column, the expression's root column counts. Or a policy that has
            the root column, or the path of its file.
        id: Record ids: unique, without nulls, the same in every run. An id with two texts is refused where one batch
            holds both: always in an eager frame, by chance in a lazy one, whose engine processes rows in pieces.
            Structs give other texts here than in a run (docs/spec/stream.md#composite-ids).
        spend: Return `Struct[text, positions, epsilon, delta]`, the declared pair of each record.

    Returns:
        As many strings as texts, null if the text is null; or the struct.

    Raises:
        PolicyError: The expression has several output columns, or another column than the policy.
    """
    if isinstance(text, str):
        return _privatized(by_name(text), [text], policy, id, spend)
    return ExprNamespace(text).privatize(policy, id=id, spend=spend)


class Mark:
    """Read the marks of a release in a plan."""

    def __init__(self, function: Sequence[Any]) -> None:
        path = Path(sys.prefix) / str(function[1])  # Polars writes a path below the environment relative to it
        self._name = function[2]
        self.ours = self._name in {RELEASES, RELEASED} and path.resolve() == Path(str(_kernel.__file__)).resolve()
        self.text_at = 0 if self._name == RELEASES else 2
        self._marks = dict(_PlainUnpickler(io.BytesIO(bytes(function[3]))).load()) if self.ours else {}

    @property
    def mode(self) -> str | None:
        written = self._marks.get("mechanism")
        return None if written is None else json.loads(written).get("mode")

    def is_of(self, policy: ColumnPolicy) -> bool:
        mechanism = in_kernel(policy.mechanism)
        wanted = marks(policy, policy.named) if mechanism is None else table_marks(policy, mechanism, policy.named)
        return (mechanism is not None) == (self._name == RELEASES) and wanted.items() <= self._marks.items()


class _PlainUnpickler(pickle.Unpickler):
    """Unpickle only plain data, because a plan may come from another place."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ARG002
        raise pickle.UnpicklingError


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
        try:
            item = self._nodes.view_expression(number)
        except NotImplementedError:  # Polars does not show it, so it is refused where it can hold raw text
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
        refuse([self._content(part, columns) for part in numbers], f"an expression ({name})")
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
