"""Find whether an expression of a Polars plan holds raw text, one column of its own row, or neither."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dptext_etl.errors import GateError
from dptext_etl.polars.plan_marks import Mark
from dptext_etl.policy.plan_rules import Held, Releases, raw_names

HINT = "release the column there with .dptext.privatize(policy, id=…), or drop it before this step"
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
    "Rolling": ("function", "index_column"),
}
"""Kinds of expressions, and the fields that hold their inputs."""
_OF_ROW = frozenset(
    {
        *("as_struct", "coalesce", "fill_null", "replace", "replace_strict"),
        *(f"BooleanFunction.{name}" for name in ("IsBetween", "IsIn", "IsNotNull", "IsNull", "Not")),
        *("BooleanFunction.AllHorizontal", "BooleanFunction.AnyHorizontal"),
        *(f"ListFunction.{name}" for name in ("Get", "Join", "Length")),
        *(f"StringFunction.{name}" for name in ("ConcatHorizontal", "Contains", "ContainsAny", "CountMatches")),
        *(f"StringFunction.{name}" for name in ("EndsWith", "Extract", "ExtractAll", "Find", "Format", "Head")),
        *(f"StringFunction.{name}" for name in ("JsonPathMatch", "LenBytes", "LenChars", "Lowercase", "Normalize")),
        *(f"StringFunction.{name}" for name in ("PadEnd", "PadStart", "Replace", "ReplaceMany", "Reverse", "Slice")),
        *(f"StringFunction.{name}" for name in ("Split", "StartsWith", "StripChars", "StripCharsEnd")),
        *(f"StringFunction.{name}" for name in ("StripCharsStart", "StripPrefix", "StripSuffix", "Tail", "Titlecase")),
        *("StringFunction.Uppercase", "StringFunction.ZFill"),
    }
)
"""Functions that give each row its value from the values of the same row alone; all others may mix rows."""
_NULLS = frozenset({"BooleanFunction.IsNull", "BooleanFunction.IsNotNull"})
"""Functions that say which rows are null, and nothing else."""

Columns = Mapping[str, Held]


class Expressions:
    """Read the expressions of a plan."""

    def __init__(self, nodes: Any, releases: Releases) -> None:
        self._nodes = nodes
        self._releases = releases

    def held(self, number: int, columns: Columns) -> Held:
        """Return the content of an expression."""
        item = self._view(number)
        kind = type(item).__name__
        if item is None:
            if any(column.raw for column in columns.values()):
                raise GateError("an expression that Polars does not show may read raw text", HINT)
            return Held()
        if kind == "Column":
            return columns.get(item.name, Held())
        if kind == "Literal":
            names = _series_names(item.value)
            return Held(self._releases.raw & names) if names else Held.constant(repr(item.value))
        if kind == "Function" and Mark.is_one(item.function_data):
            return self._released(item, columns)
        if kind not in _PARTS:
            return refuse_any(columns, f"an expression of kind {kind}")
        return self._computed(number, item, kind, columns)

    def _computed(self, number: int, item: Any, kind: str, columns: Columns) -> Held:
        inputs = [part for name in _PARTS[kind] for part in _numbers(getattr(item, name))]
        parts = [self.held(part, columns) for part in inputs]
        if kind == "Function" and str(item.function_data[0]) in _NULLS and self._releases.discloses_nulls(parts[0]):
            return Held()
        if kind in {"Cast", "BinaryExpr", "Ternary"}:
            own = [str(getattr(item, name, "")) for name in ("dtype", "options", "op")]
            return Held.of_row(" ".join([kind, *own]), parts)
        name, *parameters = map(str, item.function_data) if kind == "Function" else [""]
        if name == "StructFunction.FieldByName":
            return parts[0].field(parameters[0])
        names = self._fields_of(number) if name == "as_struct" else []
        if name not in _OF_ROW or names is None:
            return Held.made_from(parts)
        return Held.of_row(" ".join([name, *parameters, *names]), parts, list(zip(names, parts, strict=False)))

    def _fields_of(self, number: int) -> list[str] | None:
        """Return the names of the fields of a struct that an expression makes; None where Polars does not show them."""
        here, inputs = self._nodes.get_node(), self._nodes.get_inputs()
        if len(inputs) != 1:
            return None
        self._nodes.set_node(inputs[0])
        try:
            return [field.name for field in self._nodes.get_dtype(number).fields]
        finally:
            self._nodes.set_node(here)

    def _view(self, number: int) -> Any:
        """Return Polars' view of an expression, or None for a kind that Polars does not show to Python."""
        try:
            return self._nodes.view_expression(number)
        except NotImplementedError:
            return None

    def _released(self, item: Any, columns: Columns) -> Held:
        mark = Mark(item.function_data)
        if mark.text_at >= len(item.input):  # the plan does not name the released text
            return refuse_any(columns, "a release of another version")
        text, ids = (self.held(item.input[at], columns) for at in (mark.text_at, 1))
        if ids.raw:
            raise GateError("raw text enters a release as the record id", "ids are public: take another column")
        if text.raw:
            self._releases.require(text, ids, mark.mechanism, mark.is_of)
        return Held()


def refuse_any(columns: Columns, where: str) -> Held:
    """Refuse raw text in a step that cannot be followed; without raw text, return an empty content."""
    raw = [column for column in columns.values() if column.raw]
    if raw:
        raise GateError(f"raw text of {raw_names(raw)} enters {where}, which cannot be followed", HINT)
    return Held()


def named(columns: Any) -> str:
    """Write names of columns for a message."""
    return ", ".join(repr(name) for name in sorted(columns))


def fields(dtype: Any) -> Iterator[str]:
    """Yield the names of all fields inside a type, also in the storage of an extension type."""
    if hasattr(dtype, "ext_storage"):
        yield from fields(dtype.ext_storage())
    inner = getattr(dtype, "inner", None)
    if inner is not None:
        yield from fields(inner)
    for field in getattr(dtype, "fields", ()) or ():
        yield field.name
        yield from fields(field.dtype)


def _series_names(value: Any) -> frozenset[str]:
    """Return the names of a series in a literal, with those of its fields; none for other literals."""
    if type(value).__name__ != "PySeries":
        return frozenset()
    import polars as pl

    series = pl.Series._from_pyseries(value)  # noqa: SLF001  (the visitor shows series only in this way)
    return frozenset({str(series.name), *fields(series.dtype)})


def _numbers(part: Any) -> list[int]:
    if part is None:
        return []
    return list(part) if isinstance(part, (list, tuple)) else [part]
