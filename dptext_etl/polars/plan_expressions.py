"""Find whether an expression of a Polars plan holds raw text, one column of its own row, or neither.

A release in a plan holds marks: configuration, hashes and a key reference, never a key.
"""

from __future__ import annotations

import io
import json
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dptext_etl import _kernel
from dptext_etl.errors import GateError
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.families.table import MappedMechanism
from dptext_etl.mechanism import Mechanism
from dptext_etl.policy import ColumnPolicy
from dptext_etl.policy.plan_rules import Content, Releases, raw_names

RELEASES, RELEASED = "dptext_table", "dptext_released"
"""Plugin functions of the kernel whose output is released: the draw itself, and the mark of other draws."""


InKernel = MappedMechanism | ChoiceMechanism


def in_kernel(mechanism: Mechanism) -> InKernel | None:
    """Return the mechanism if the kernel runs it by itself, from one stored file: no model and no tool takes part."""
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
        found = _PlainUnpickler(io.BytesIO(arguments)).load()
    except Exception:  # noqa: BLE001  (another version wrote it, so we cannot read it)
        return {}
    return found if isinstance(found, dict) else {}


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

Columns = Mapping[str, Content]


class Expressions:
    def __init__(self, nodes: Any, releases: Releases) -> None:
        self._nodes = nodes
        self._releases = releases

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
            names = _series_names(item.value)
            return Content(self._releases.raw & names) if names else Content.constant(repr(item.value))
        if kind == "Function" and Mark.is_one(item.function_data):
            return self._released(item, columns)
        if kind not in _PARTS:
            return refuse_any(columns, f"an expression of kind {kind}")
        return self._computed(number, item, kind, columns)

    def _computed(self, number: int, item: Any, kind: str, columns: Columns) -> Content:
        inputs = [part for name in _PARTS[kind] for part in _numbers(getattr(item, name))]
        parts = [self.content(part, columns) for part in inputs]
        if kind == "Function" and str(item.function_data[0]) in _NULLS and self._releases.discloses_nulls(parts[0]):
            return Content()
        if kind in {"Cast", "BinaryExpr", "Ternary"}:
            own = [str(getattr(item, name, "")) for name in ("dtype", "options", "op")]
            return Content.of_row(" ".join([kind, *own]), parts)
        name, *parameters = map(str, item.function_data) if kind == "Function" else [""]
        if name == "StructFunction.FieldByName":
            return parts[0].field(parameters[0])
        names = self._fields_of(number) if name == "as_struct" else []
        if name not in _OF_ROW or names is None:
            return Content.made_from(parts)
        return Content.of_row(" ".join([name, *parameters, *names]), parts, list(zip(names, parts, strict=False)))

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

    def _released(self, item: Any, columns: Columns) -> Content:
        mark = Mark(item.function_data)
        if mark.text_at >= len(item.input):  # the plan does not name the released text
            return refuse_any(columns, "a release of another version")
        text, ids = (self.content(item.input[at], columns) for at in (mark.text_at, 1))
        if ids.raw:
            raise GateError("raw text enters a release as the record id", "ids are public: take another column")
        if text.raw:
            self._releases.require(text, ids, mark.mechanism, mark.is_of)
        return Content()


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


def _series_names(value: Any) -> frozenset[str]:
    if type(value).__name__ != "PySeries":
        return frozenset()
    import polars as pl

    series = pl.Series._from_pyseries(value)  # noqa: SLF001  (the visitor shows series only in this way)
    return frozenset({str(series.name), *fields(series.dtype)})


def _numbers(part: Any) -> list[int]:
    if part is None:
        return []
    return list(part) if isinstance(part, (list, tuple)) else [part]
