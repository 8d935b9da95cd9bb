"""Find whether an expression of a Spark plan holds raw text, one column of its own row, or neither."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from types import CodeType
from typing import Any

from dptext_etl.errors import GateError, InputError
from dptext_etl.policy import ColumnPolicy
from dptext_etl.policy.plan_rules import Held, Releases

_FORMS = {"dptext_etl.spark.arrow_form": "worker", "dptext_etl.spark.pandas_form": "series"}
"""Modules of the functions that `register` makes, and the module that each of them calls."""
_COMPARED_FIELDS = ("dataset", "column", "release", "key", "nonce")


class Mark:
    """A release in a plan."""

    def __init__(self, carried: dict[str, Any]) -> None:
        self._said = carried

    @classmethod
    def of(cls, function: Any) -> Mark | None:
        """Return the release of a Python function of a plan, if it has our code and calls our module, else None."""
        try:
            command = bytes(function.command().unsafeArray())
        except Exception:  # noqa: BLE001  (another version of Spark keeps it elsewhere, so we cannot know this function)
            return None
        forms = [name for name in _FORMS if name.encode() in command]
        if len(forms) != 1:
            return None
        made = pickle.loads(command)[0]  # noqa: S301  (this process wrote it into its own plan)
        called = _FORMS[forms[0]]
        same = getattr(made, "__globals__", {}).get(called) is import_module(f"dptext_etl.spark.{called}")
        if not same or getattr(made, "__code__", None) not in _code(forms[0]):
            return None
        (cell,) = made.__closure__
        return cls(json.loads(cell.cell_contents))

    @property
    def mechanism(self) -> dict[str, Any]:
        """Return the mechanism as plain data."""
        described: dict[str, Any] = self._said["mechanism"]
        return described

    def is_of(self, policy: ColumnPolicy) -> bool:
        """Say whether a column's policy makes this release."""
        mine, said = policy.model_dump(mode="json", exclude={"mechanism"}), self._said["policy"]
        hashes = {role: item.sha256 for role, item in policy.mechanism.artifacts().items()}
        carried = {role: item["sha256"] for role, item in self._said["artifacts"].items()}
        same = all(said[name] == mine[name] for name in _COMPARED_FIELDS)
        return same and self._said["cfg"] == policy.mechanism.cfg() and carried == hashes


@cache
def _code(form: str) -> tuple[CodeType, ...]:
    made = import_module(form).function.__code__.co_consts
    return tuple(item for item in made if isinstance(item, CodeType))


HINT = "release the column by its registered function, name(text, id), or drop it before this step"
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_OF_ROW = frozenset(
    {
        *("Cast", "Coalesce", "If", "CaseWhen", "NullIfResult", "IsNull", "IsNotNull", "Not", "And", "Or", "In"),
        *("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"),
        *("Like", "RLike", "Contains", "StartsWith", "EndsWith", "Length", "Lower", "Upper", "InitCap", "Reverse"),
        *("Concat", "ConcatWs", "Substring", "SubstringIndex", "Left", "Right", "Overlay", "Quote"),
        *("StringTrim", "StringTrimLeft", "StringTrimRight", "StringLPad", "StringRPad", "StringRepeat"),
        *("StringReplace", "StringTranslate", "StringSplit", "RegExpReplace", "RegExpExtract", "GetJsonObject"),
        *("CreateArray", "CreateNamedStruct", "GetArrayItem", "ElementAt", "ArrayJoin"),
    }
)
"""Expressions that give each row its value from the values of the same row alone; all others may mix rows."""
_ID_TYPES = frozenset(
    {
        "string",
        "byte",
        "short",
        "integer",
        "long",
        "decimal",
        "date",
        "timestamp",
        "binary",
        "struct",
        "char",
        "varchar",
    }
)
"""Types of Spark whose values can be ids (`keys.id_type`); fields of structs are checked when a batch is read."""

Columns = Mapping[Any, Held]
"""Contents of columns by the ids of Spark's analyzer."""


class Expressions:
    """Read the expressions of a plan."""

    def __init__(self, releases: Releases, step: Callable[[Any, Columns], dict[int, Held]]) -> None:
        self._releases = releases
        self._step = step

    def held(self, item: Any, columns: Columns) -> Held:
        """Return the content of an expression."""
        parts, kind = list(items(item.children())), kind_of(item)
        if is_a(item, "PlanExpression"):
            inner = self._step(item.plan(), columns)
            return Held() if kind == "Exists" else Held.made_from(inner.values())  # steps decide what exists
        if not parts:
            return _leaf(item, kind, columns)
        if kind == "With":  # its first child uses the others, several times each
            shared = {str(part.id()): self.held(next(items(part.children())), columns) for part in parts[1:]}
            return self.held(parts[0], {**columns, **shared})
        mark = Mark.of(item.func()) if kind == "PythonUDF" else None
        if mark is not None:
            return self._released(mark, parts, columns)
        return self._computed(item, kind, parts, [self.held(part, columns) for part in parts])

    def _computed(self, item: Any, kind: str, parts: list[Any], holds: list[Held]) -> Held:
        same = kind == "Cast" and item.dataType().sql() == parts[0].dataType().sql()  # views cast to their own types
        if kind == "Alias" or same or (len(parts) == 1 and is_a(item, "InheritAnalysisRules")):
            return holds[0]  # an expression of these rules has its replacement as its child, and nothing else
        if kind in {"IsNull", "IsNotNull"} and self._releases.discloses_nulls(holds[0]):
            return Held()
        if kind == "GetStructField":
            return holds[0].field(str(item.extractFieldName()))
        if kind not in _OF_ROW or str(item.getClass().getName()) != _EXPRESSIONS + kind:
            return Held.made_from(holds)
        names = [str(name) for name in items(item.names())] if kind == "CreateNamedStruct" else []
        return Held.of_row(f"{kind} {_own(item, parts)}", holds, list(zip(names, holds[1::2], strict=False)))

    def _released(self, mark: Mark, parts: list[Any], columns: Columns) -> Held:
        given = {"text": Held(), "id": Held()}
        for name, part in zip(("text", "id", "subject"), parts, strict=False):
            named = kind_of(part) == "NamedArgumentExpression"
            role = str(part.key()).casefold() if named else name
            value = next(items(part.children())) if named else part
            if role != "text":
                _require_id(value.dataType(), role)
            given[role] = self.held(value, columns)
        text = given.pop("text")
        if any(held.raw for held in given.values()):
            raise GateError("raw text enters a release as an id", "ids are public: take another column")
        if text.raw:
            self._releases.require(text, given["id"], mark.mechanism, mark.is_of)
        return Held()


def _require_id(dtype: Any, role: str) -> None:
    if str(dtype.typeName()).partition("(")[0] not in _ID_TYPES:
        said = f"a release takes {'record' if role == 'id' else role} ids of type {dtype.sql()}, which is not allowed"
        hint = (
            "allowed: strings, integers, decimals, dates, timestamps with a zone, bytes, and structs of these; cast it"
        )
        raise InputError(said, hint)


def _leaf(item: Any, kind: str, columns: Columns) -> Held:
    if kind == "CommonExpressionRef":
        return columns[str(item.id())]
    if is_a(item, "NamedExpression"):
        return columns.get(item.exprId().id(), Held())
    return Held.constant(f"{item.sql()} {item.dataType().sql()}") if kind == "Literal" else Held()


def _own(item: Any, parts: list[Any]) -> str:
    """Write an expression without its arguments, whose names differ between equal expressions."""
    names = sorted({str(part.sql()) for part in parts}, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, names)), "?", str(item.sql())) + f" {item.dataType().sql()}"


def items(sequence: Any) -> Iterator[Any]:
    """Return the items of a Scala sequence."""
    return (sequence.apply(at) for at in range(sequence.size()))


def kind_of(item: Any) -> str:
    """Name the class of a step or an expression."""
    return str(item.getClass().getSimpleName())


def is_a(item: Any, kind: str) -> bool:
    """Say whether an expression is of a kind."""
    from py4j.java_gateway import is_instance_of
    from pyspark import SparkContext

    return bool(is_instance_of(SparkContext._gateway, item, _EXPRESSIONS + kind))  # noqa: SLF001
