"""Guard Spark plans: raw text goes only into a release that the policy names (`policy.plan_rules` has the rule).

The analyzed plan is read, not run, and every column is followed by the id of Spark's analyzer, also in views, common
tables, and sub-queries. Steps and expressions that are not listed here are refused where raw text could enter them.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from itertools import count
from types import CodeType
from typing import TYPE_CHECKING, Any

from dptext_etl.errors import GateError, PolicyError, bare
from dptext_etl.policy import ColumnPolicy, PolicyLike
from dptext_etl.policy.plan_rules import Content, PlanRules, concatenated, mixed, refuse
from dptext_etl.spark import functions, worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CODES = [code for form in functions.FORMS.values() for code in form.__code__.co_consts if isinstance(code, CodeType)]
"""Code of the functions that `register` makes."""
_COMPARED_FIELDS = ("dataset", "column", "release", "key", "nonce")
_HAND_ON = frozenset(
    {
        *("SubqueryAlias", "View", "WithCTE", "GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample", "ResolvedHint"),
        *("Filter", "Sort", "Deduplicate", "Window", "Generate", "EventTimeWatermark"),
        *("Repartition", "RepartitionByExpression", "RebalancePartitions"),
    }
)
"""Steps that hand on the columns of their inputs, and may add columns that their expressions give."""

Columns = dict[int, Content]


@bare
def guard(
    df: DataFrame,
    raw: Sequence[str] | str = (),
    *,
    policy: PolicyLike | None = None,
    id: str | None = None,  # noqa: A002
) -> DataFrame:
    """Refuse a data frame in whose plan raw text goes anywhere except into the policy's release, and return it.

    It warns (`OtherTextWarning`) of unchanged strings in the output that the policy of a dataset does not name.

    Args:
        df: A frame of a classic session, which is not run.
        raw: Names of raw columns in the sources, in addition to the policy's; one or several, in any case.
        policy: The policy of the releases; None judges only the path of the text, and no budget.
        id: Column of record ids, if the policy is for one column.

    Raises:
        GateError: A raw column has another use, or is in the output; a release is not the policy's; or the plan has a
            session variable.
        PolicyError: The frame is one of Spark Connect, no source has such a column, or the policy is for benchmarks.
    """
    if getattr(df, "_jdf", None) is None:
        raise PolicyError(
            "a frame of Spark Connect shows its client no analyzed plan, so the guard cannot judge it",
            "guard the same query in a classic session; run_frame keeps only the columns of the policy in both",
        )
    functions.arrow_udf("guard", "publish by run_frame")  # it knows the plans of Spark 4.1 and newer
    plan = df._jdf.queryExecution().analyzed()  # noqa: SLF001  (the analyzed plan has no public interface)

    def output(releases: PlanRules) -> Iterator[tuple[Content, bool]]:
        columns = _Walk(releases).step(plan, {})
        return ((columns[_id(item)], str(item.dataType().typeName()) == "string") for item in _items(plan.output()))

    PlanRules(policy, id, raw).judge(output)
    return df


class _Walk:
    """Follow columns through a plan; `_union` follows a step "Union" of Spark, and so on. Ids are keys of contents."""

    def __init__(self, releases: PlanRules) -> None:
        self._releases, self._rows = releases, count()
        self._tables: dict[int, Any] = {}  # definitions of common tables

    def step(self, node: Any, outer: Columns) -> Columns:
        """Return the contents of the output of a step; `outer` has those around a sub-query."""
        kind, output = _kind(node), list(_items(node.output()))
        inputs = [self.step(child, outer) for child in _items(node.children())]
        below = {number: content for columns in inputs for number, content in columns.items()}
        follow = getattr(self, f"_{kind.lower()}", None if inputs else self._source)
        if follow is not None:
            return dict(zip(map(_id, output), follow(node, inputs, outer | below), strict=True))
        if kind not in _HAND_ON:
            refuse(below.values(), f"a step that cannot be followed ({kind})")
        new = {_id(item): Content() for item in output if _id(item) not in below}
        refuse(self._all(node.expressions(), outer | below | new), f"a step of kind {kind}")
        return {number: (below | new)[number] for number in map(_id, output)}

    def _source(self, node: Any, _: Any, __: Columns) -> Iterator[Content]:
        rows = next(self._rows)
        for item in _items(node.output()):
            yield self._releases.column(str(item.name()), _fields(item.dataType().json()), rows)

    def _cterelationdef(self, node: Any, _: Any, columns: Columns) -> Iterator[Content]:
        self._tables[node.id()] = node
        return (columns[_id(item)] for item in _items(node.output()))

    def _cterelationref(self, node: Any, _: Any, outer: Columns) -> Iterator[Content]:
        table = self._tables[node.cteId()]
        columns = self.step(table, outer)  # again, because each use of the table has separate rows
        return (columns[_id(item)] for item in _items(table.output()))

    def _project(self, node: Any, _: Any, columns: Columns) -> Iterator[Content]:
        return self._all(node.projectList(), columns)

    def _aggregate(self, node: Any, _: Any, columns: Columns) -> Iterator[Content]:
        refuse(self._all(node.groupingExpressions(), columns), "groups")
        return (mixed([content]) for content in self._all(node.aggregateExpressions(), columns))

    def _union(self, node: Any, inputs: Sequence[Columns], _: Columns) -> Iterator[Content]:
        outputs = (
            [columns[_id(item)] for item in _items(child.output())]
            for child, columns in zip(_items(node.children()), inputs, strict=True)
        )
        return map(concatenated, zip(*outputs, strict=True))

    def _join(self, node: Any, _: Any, columns: Columns) -> Iterator[Content]:
        refuse(self._all(node.expressions(), columns), "a join")
        return (columns[_id(item)] for item in _items(node.output()))

    def _all(self, expressions: Any, columns: Columns) -> Iterator[Content]:
        return (self._content(item, columns) for item in _items(expressions))

    def _content(self, item: Any, columns: Columns) -> Content:
        kind, children = _kind(item), list(_items(item.children()))
        if kind == "VariableReference":
            raise GateError(
                "the plan has a session variable, which may hold raw text", "write its value into the query"
            )
        if kind == "Alias" or (kind == "Cast" and item.dataType().sql() == children[0].dataType().sql()):
            return self._content(children[0], columns)  # views cast columns to their own types
        if not children and kind != "NamedLambdaVariable" and _is_a(item, "NamedExpression"):
            content = columns.get(_id(item)) or mixed(columns.values())
            return content if kind == "AttributeReference" else mixed([content])  # an outer query has other rows
        carried = _carried(item.func()) if kind == "PythonUDF" else None
        if carried is not None:
            self._release(carried, children, columns)
            return Content()
        parts = [self._content(child, columns) for child in children]
        if _is_a(item, "PlanExpression"):
            inner = self.step(item.plan(), {number: mixed([content]) for number, content in columns.items()})
            parts += [] if kind == "Exists" else inner.values()  # EXISTS only reads whether there are rows
        refuse(parts, f"an expression ({kind})")
        return Content()

    def _release(self, carried: dict[str, Any], arguments: Sequence[Any], columns: Columns) -> None:
        roles = {}
        for role, item in zip(("text", "id", "subject"), arguments, strict=False):
            named = _kind(item) == "NamedArgumentExpression"
            value = next(_items(item.children())) if named else item
            roles[str(item.key()).casefold() if named else role] = self._content(value, columns)
        if not {"text", "id"} <= roles.keys() <= {"text", "id", "subject"}:
            problem = "a release is called by other names of arguments than text, id, and subject"
            raise GateError(problem, "write the columns in this order, without names: pt(review, id)")
        refuse([roles.get("subject", Content())], "a subject")
        part = carried["mechanism"]

        def same(policy: ColumnPolicy) -> bool:
            written, artifacts = policy.model_dump(mode="json"), policy.mechanism.artifacts()
            hashes = {role: located["sha256"] for role, located in part["artifacts"].items()}
            return (
                all(carried["policy"][name] == written[name] for name in _COMPARED_FIELDS)
                and part["cfg"] == policy.mechanism.cfg()
                and hashes == {role: artifact.sha256 for role, artifact in artifacts.items()}
            )

        self._releases.require(roles["text"], roles["id"], part["parameters"].get("mode"), same)


def _carried(function: Any) -> dict[str, Any] | None:
    """Return the data that a release sends to workers; None if a function is not ours, or calls another module."""
    command = bytes(function.command().unsafeArray())
    if functions.__name__.encode() not in command:
        return None
    function = pickle.loads(command)[0]  # noqa: S301  (this process wrote it into its own plan)
    if getattr(function, "__globals__", {}).get("worker") is not worker or function.__code__ not in _CODES:
        return None
    (cell,) = function.__closure__
    carried: dict[str, Any] = json.loads(cell.cell_contents)
    return carried


def _fields(dtype: str) -> list[str]:
    """Return the names of the fields of all structs inside a type, which is written in JSON."""
    names: list[str] = []
    json.loads(dtype, object_hook=lambda part: names.append(str(part.get("name"))))
    return names


def _items(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(at) for at in range(sequence.size()))


def _id(item: Any) -> int:
    number: int = item.exprId().id()
    return number


def _kind(item: Any) -> str:
    package, _, name = str(item.getClass().getName()).rpartition(".")
    return name if package.startswith("org.apache.spark.sql.catalyst") else f"{package}.{name}"


def _is_a(item: Any, kind: str) -> bool:
    from py4j.java_gateway import is_instance_of
    from pyspark import SparkContext

    name = f"org.apache.spark.sql.catalyst.expressions.{kind}"
    return bool(is_instance_of(SparkContext._gateway, item, name))  # noqa: SLF001
