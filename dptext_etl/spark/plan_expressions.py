"""Find whether an expression of a Spark plan holds raw text, one column of its own row, or neither."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

from dptext_etl.errors import GateError, InputError
from dptext_etl.policy import ColumnPolicy
from dptext_etl.policy.plan_rules import Content, Releases, null_by_case, null_if_all, null_if_any
from dptext_etl.spark import functions, worker

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
    "ConcatWs": lambda holds: null_if_any(holds[:1]),  # it leaves out all nulls but that of the separator
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
            return Content() if kind == "Exists" else Content.made_from(inner.values())  # steps decide what exists
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
        return Content.of_row(f"{kind} {_own(item, parts)}", holds, fields, _nulls(item, kind, parts, holds))

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
            raise GateError("raw text enters a release as an id", "ids are public: take another column")
        if text.raw:
            self._releases.require(text, roles["id"], mark.mechanism, mark.is_of)
        return Content()


def _chosen(how: str, holds: Sequence[Content]) -> Content:
    """Return the content of pairs of a condition and a value, and of a value for all other rows."""
    *pairs, found = holds if len(holds) % 2 else [*holds, Content.constant("NULL")]
    for condition, value in zip(pairs[-2::-2], pairs[::-2], strict=True):
        found = Content.of_row(how, [condition, value, found], (), null_by_case(condition, [value, found]))
    return found


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
        msg = (
            f"a release takes {'record' if role == 'id' else role} ids of type {dtype.typeName()}, which is not allowed"
        )
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


def _own(item: Any, parts: list[Any]) -> str:
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
