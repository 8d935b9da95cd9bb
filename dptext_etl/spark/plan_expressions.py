"""Find whether an expression of a Spark plan holds raw text, one column of its own row, or neither."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dptext_etl.errors import GateError
from dptext_etl.policy.in_plans import Held, Releases
from dptext_etl.spark.plan_marks import Mark

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
        if kind in {"IsNull", "IsNotNull"} and self._releases.nulls_are_told(holds[0]):
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
            given[str(part.key()).casefold() if named else name] = self.held(
                next(items(part.children())) if named else part, columns
            )
        text = given.pop("text")
        if any(held.raw for held in given.values()):
            raise GateError("raw text enters a release as an id", "ids are public: take another column")
        if text.raw:
            self._releases.require(text, given["id"], mark.mechanism, mark.is_of)
        return Held()


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
