"""Find whether an expression of a Polars plan holds raw text, one column of the same row, or neither.

A release in a plan holds marks: configuration, hashes and a key reference, never a key.
"""

from __future__ import annotations

import io
import json
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dptext_etl import _kernel
from dptext_etl.errors import GateError
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.families.stored_distributions import MappedMechanism
from dptext_etl.mechanism import Mechanism
from dptext_etl.policy import ColumnPolicy
from dptext_etl.policy.plan_rules import Content, Releases, null_by_case, null_if_all, null_if_any, raw_names

if TYPE_CHECKING:
    import polars as pl

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


class Mark:
    def __init__(self, function: Sequence[Any]) -> None:
        self._name = function[2]
        self.text_at = 0 if self._name == RELEASES else 2
        self._marks = _read_marks(bytes(function[3]))

    @staticmethod
    def is_one(function: Sequence[Any]) -> bool:
        if function[0] != "ffi_plugin" or function[2] not in {RELEASES, RELEASED}:
            return False
        path = Path(sys.prefix) / str(function[1])  # Polars writes a path below the environment relative to it
        return path.resolve() == Path(str(_kernel.__file__)).resolve()

    @property
    def mechanism(self) -> dict[str, Any] | None:
        written = self._marks.get("mechanism")
        described = json.loads(written) if isinstance(written, str) else None
        return described if isinstance(described, dict) else None

    def is_of(self, policy: ColumnPolicy) -> bool:
        mechanism = in_kernel(policy.mechanism)
        if (mechanism is not None) != (self._name == RELEASES):
            return False
        column = str(policy.column)
        wanted = marks(policy, column) if mechanism is None else table_marks(policy, mechanism, column)
        return wanted.items() <= self._marks.items()


class _PlainUnpickler(pickle.Unpickler):
    """Unpickle only plain data, because a plan may come from another place."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ARG002
        raise pickle.UnpicklingError


def _read_marks(arguments: bytes) -> dict[str, Any]:
    try:
        marks = _PlainUnpickler(io.BytesIO(arguments)).load()
    except Exception:  # noqa: BLE001  (another version wrote it, so we cannot read it)
        return {}
    return marks if isinstance(marks, dict) else {}


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
_ALL = sys.maxsize


def _each(prefix: str, names: str, rows: int, nulls: int | None) -> dict[str, tuple[int, int | None]]:
    return {f"{prefix}{name}": (rows, nulls) for name in names.split()}


_OF_ROW = {
    **_each("", "as_struct", _ALL, 0),
    **_each("", "abs ceil clip coalesce fill_null floor negate round sign", _ALL, None),
    **_each("", "replace", 1, _ALL),
    **_each("", "replace_strict", 1, None),
    **_each("BooleanFunction.", "IsNotNull IsNull", _ALL, 0),
    **_each("BooleanFunction.", "Not", _ALL, _ALL),
    **_each("BooleanFunction.", "IsBetween IsFinite IsInfinite IsNan IsNotNan", _ALL, None),
    **_each("BooleanFunction.", "IsIn", 1, None),
    **_each("ListFunction.", "Length", _ALL, _ALL),
    **_each("ListFunction.", "Slice", _ALL, 2),
    **_each("ListFunction.", "Concat Contains Get Join", _ALL, None),
    "ListFunction.Join True": (_ALL, _ALL),
    **_each("StringFunction.", "Base64Encode CountMatches EndsWith EscapeRegex ExtractAll", _ALL, _ALL),
    **_each("StringFunction.", "Format Head HexEncode LenBytes LenChars Lowercase Normalize PadEnd", _ALL, _ALL),
    **_each("StringFunction.", "PadStart Reverse Split StartsWith StripPrefix StripSuffix Tail", _ALL, _ALL),
    **_each("StringFunction.", "Titlecase Uppercase ZFill", _ALL, _ALL),
    **_each("StringFunction.", "Replace Slice", _ALL, 2),
    **_each("StringFunction.", "StripChars StripCharsEnd StripCharsStart", _ALL, 1),
    **_each("StringFunction.", "ContainsAny ReplaceMany", 1, _ALL),
    "StringFunction.ConcatHorizontal False": (_ALL, _ALL),
    "StringFunction.ConcatHorizontal True": (_ALL, 0),
    **_each(
        "StringFunction.", "Contains Extract ExtractGroups Find JsonDecode JsonPathMatch SplitExact SplitN", _ALL, None
    ),
    **_each("TemporalFunction.", "Date Day Hour IsoYear Minute Month OrdinalDay Quarter Second Time", _ALL, None),
    **_each("TemporalFunction.", "ToString Truncate WeekDay Week Year", _ALL, None),
}
"""Functions that give each row its value only from values of the same row; all others may mix rows.

The first number says how many inputs are read row by row: the others may be read as a whole, so they must be literals.
The second says which inputs make the value null: it is null exactly if one of this number of first inputs is; None if
the function may give other nulls. An entry with a parameter (its last one) is for calls with that value of it.
"""
_STRICT = "0"  # option of a cast that fails instead of giving null
_WRITTEN = frozenset({"String", "Binary", "Categorical", "Enum"})
"""Types between which a strict cast adds no nulls."""
_NULLS = frozenset({"BooleanFunction.IsNull", "BooleanFunction.IsNotNull"})
"""Functions that say which rows are null, and nothing else."""

Columns = Mapping[str, Content]


class Expressions:
    def __init__(self, nodes: Any, releases: Releases) -> None:
        self._nodes, self._releases = nodes, releases

    def content(self, number: int, columns: Columns) -> Content:
        try:
            item = self._nodes.view_expression(number)
        except NotImplementedError:
            if any(column.raw for column in columns.values()):
                raise GateError("an expression that Polars does not show may read raw text", HINT) from None
            return Content()
        kind = type(item).__name__
        if kind == "Column":
            return columns.get(item.name, Content())
        if kind == "Literal":
            series = _series(item.value)
            return _constant(item.value) if series is None else Content(self._releases.raw & _names(series))
        if kind == "Function" and Mark.is_one(item.function_data):
            return self._released(item, columns)
        if kind not in _PARTS:
            return refuse_any(columns, f"an expression of kind {kind}")
        return self._computed(number, item, kind, columns)

    def _computed(self, number: int, item: Any, kind: str, columns: Columns) -> Content:
        inputs = [part for name in _PARTS[kind] for part in _numbers(getattr(item, name))]
        parts = [self.content(part, columns) for part in inputs]
        if kind in {"Cast", "BinaryExpr", "Ternary"}:
            options = [str(getattr(item, name, "")) for name in ("dtype", "options", "op")]
            return Content.of_row(" ".join([kind, *options]), parts, (), self._nulls(kind, options, inputs, parts))
        name, *parameters = map(str, item.function_data) if kind == "Function" else [""]
        if name in _NULLS and self._releases.discloses_nulls(parts[0]):
            return parts[0].disclosed(name)
        if name == "StructFunction.FieldByName":
            return parts[0].field(parameters[0])
        if name == "set_sorted":
            return hinted(parts[0])
        rule = _rule(name, parameters)
        dtype = None if rule is None else self._dtype(number)
        names = [field.name for field in dtype.fields] if name == "as_struct" and dtype is not None else []
        if rule is None or (name == "as_struct" and not names):
            return Content.made_from(parts)
        for at in range(rule[0], len(parts)):
            parts[at] = self._read_as_a_whole(inputs[at], parts[at])
        nulls = self._nulls(name, parameters, inputs, parts)
        how = " ".join([name, *parameters, str(dtype)])  # its type may be an option that the plan does not show
        return Content.of_row(how, parts, list(zip(names, parts, strict=False)), nulls)

    def _read_as_a_whole(self, number: int, part: Content) -> Content:
        """Return the content of an input of which a function may read all rows: only a literal is the same in each."""
        item = self._nodes.view_expression(number)
        if type(item).__name__ != "Literal":
            return Content(part.raw)
        series = _series(item.value)
        return part if series is None or part.raw else _constant(series.to_list())

    def _nulls(
        self, name: str, parameters: list[str], inputs: list[int], parts: list[Content]
    ) -> frozenset[str] | None:
        """Return when an expression is null (`Content.nulls`)."""
        if name == "Ternary":
            return null_by_case(parts[0], parts[1:])
        if name in {"coalesce", "fill_null"}:
            types = {str(self._dtype(part)) for part in inputs}
            kept = len(types) == 1 or not any("Enum" in dtype for dtype in types)  # a value that an Enum lacks is null
            return null_if_all(parts) if kept else None
        if name in {"Cast", "BinaryExpr", "ListFunction.Concat"}:
            return self._nulls_of_types(name, parameters, inputs, parts)
        rows, nulls = _rule(name, parameters) or (0, None)
        if nulls is None or any(part.nulls for part in parts[rows:]):
            return None
        return null_if_any(parts[: min(rows, nulls)])

    def _nulls_of_types(
        self, name: str, parameters: list[str], inputs: list[int], parts: list[Content]
    ) -> frozenset[str] | None:
        types = [self._dtype(part) for part in inputs]
        if any(dtype is None for dtype in types):
            return None
        names = [str(dtype).partition("(")[0] for dtype in types]
        if name == "ListFunction.Concat":  # a null among lists gives null, and one among values an element
            lists = set(names) == {"List"}
            return (
                null_if_any(parts if lists else []) if lists or not any(dtype.is_nested() for dtype in types) else None
            )
        if name == "BinaryExpr":
            return null_if_any(parts) if [parameters[-1], *names] == ["Operator.Plus", "String", "String"] else None
        made = parameters[0].partition("(")[0]
        written = made == "String" and (
            types[0].is_numeric() or names[0] in {"Boolean", "Categorical", "Enum", "String"}
        )
        return null_if_any(parts) if written or (parameters[1] == _STRICT and {made, *names} <= _WRITTEN) else None

    def _dtype(self, number: int) -> Any:
        """Return the type of an expression; None where Polars does not show it."""
        here, inputs = self._nodes.get_node(), self._nodes.get_inputs()
        if len(inputs) != 1:
            return None
        self._nodes.set_node(inputs[0])
        try:
            return self._nodes.get_dtype(number)
        finally:
            self._nodes.set_node(here)

    def _released(self, item: Any, columns: Columns) -> Content:
        mark = Mark(item.function_data)
        if mark.text_at >= len(item.input):  # the plan does not name the released text
            return refuse_any(columns, "a release of another version")
        text, ids = (self.content(item.input[at], columns) for at in (mark.text_at, 1))
        if ids.raw:
            raise GateError("raw text enters a release as the record id", "ids are public: use another column")
        if text.raw:
            self._releases.require(text, ids, mark.mechanism, mark.is_of)
        return Content()


def hinted(column: Content) -> Content:
    """Return a column that is said to be sorted: if that is wrong, Polars may compare its values with other rows."""
    return Content(column.raw) if column.raw else column


def refuse_any(columns: Columns, where: str) -> Content:
    """Refuse raw text in a step that cannot be followed; without raw text, return an empty content."""
    raw = [column for column in columns.values() if column.raw]
    if raw:
        raise GateError(f"raw text of {raw_names(raw)} enters {where}, which cannot be followed", HINT)
    return Content()


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


def _rule(name: str, parameters: list[str]) -> tuple[int, int | None] | None:
    return _OF_ROW.get(" ".join([name, *parameters[-1:]])) or _OF_ROW.get(name)


def _constant(value: Any) -> Content:
    return Content.constant(repr(value), null=not _has_value(value))


def _has_value(value: Any) -> bool:
    """Return whether a literal, or each item of one, is known not to be null."""
    if isinstance(value, list):
        return all(map(_has_value, value))
    return isinstance(value, (str, bytes, bool, int, float))


def _series(value: Any) -> pl.Series | None:
    """Return the series that a literal is, which the visitor shows in its own form."""
    import polars as pl

    return pl.Series._from_pyseries(value) if type(value).__name__ == "PySeries" else None  # noqa: SLF001


def _names(series: pl.Series) -> frozenset[str]:
    return frozenset({str(series.name), *fields(series.dtype)})


def _numbers(part: Any) -> list[int]:
    if part is None:
        return []
    return list(part) if isinstance(part, (list, tuple)) else [part]
