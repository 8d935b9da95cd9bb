"""The functions that the guard on Spark plans accepts: their values are of their own row, their nulls as it says."""

import itertools
import random

import pytest

from dptext_etl import ColumnPolicy, _kernel
from dptext_etl.errors import GateError
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.spark import guard, register
from dptext_etl.spark.spark_guard import _OF_ROW, items, kind_of
from tests.later import later

from .films import FORM

later("pyspark", reason="pyspark is not installed (extra: spark)")
TEXTS = [None, "", " ", "a", "A b", "b a  a", '{"a": "b"}', '{"a": null}', "12", "ä'\\%_"]
"""Cells that are missing, empty, matched and not, long enough and not."""
ROWS = [
    (f"r{at}", text, other, number)
    for at, (text, other, number) in enumerate(itertools.product(TEXTS, [None, "a", ""], [None, -1, 0, 1, 9]))
]
SCHEMA = "id string, t string, u string, k int"
AS_INPUTS = {
    "Not": ["NOT t = u"],
    "EqualTo": ["t = u", "u = t"],
    "LessThan": ["t < u", "u < t"],
    "LessThanOrEqual": ["t <= u", "u <= t"],
    "GreaterThan": ["t > u", "u > t"],
    "GreaterThanOrEqual": ["t >= u", "u >= t"],
    "Like": ["t LIKE u", "'a' LIKE concat(u, '%')"],
    "RLike": ["t RLIKE u", "u RLIKE 'a'"],
    "Contains": ["contains(t, u)", "contains(u, t)"],
    "StartsWith": ["startswith(t, u)", "startswith(u, t)"],
    "EndsWith": ["endswith(t, u)", "endswith(u, t)"],
    "Length": ["length(t)"],
    "Lower": ["lower(t)"],
    "Upper": ["upper(t)"],
    "InitCap": ["initcap(t)"],
    "Reverse": ["reverse(t)"],
    "Concat": ["concat(t, u, k)", "concat(u, t)"],
    "Substring": ["substring(t, k, 2)", "substring(t, 1, k)", "substring(t, k)"],
    "SubstringIndex": ["substring_index(t, u, k)", "substring_index(t, 'a', -1)"],
    "Left": ["left(t, k)", "left(t, 1)"],
    "Right": ["right(t, k)", "right(t, 1)"],
    "Overlay": ["overlay(t, u, 1, 1)", "overlay(u, t, k, k)"],
    "Quote": ["quote(t)"],
    "StringTrim": ["trim(t)", "trim(BOTH u FROM t)"],
    "StringTrimLeft": ["ltrim(t)", "trim(LEADING u FROM t)"],
    "StringTrimRight": ["rtrim(t)", "trim(TRAILING u FROM t)"],
    "StringLPad": ["lpad(t, k, u)", "lpad(u, 5, t)"],
    "StringRPad": ["rpad(t, k, u)", "rpad(u, 5, t)"],
    "StringRepeat": ["repeat(t, k)"],
    "StringReplace": ["replace(t, u, id)", "replace(id, t, u)", "replace(u, 'a', t)"],
    "StringTranslate": ["translate(t, u, id)", "translate(id, t, u)"],
    "StringSplit": ["split(t, u, k)", "split(t, ' ')"],
    "RegExpReplace": ["regexp_replace(t, u, id)", "regexp_replace(t, '(a)|b', u)"],
    "RegExpExtract": [
        "regexp_extract(t, '(x)?(a)', 1)",
        "regexp_extract(t, '(z)', 1)",
        "regexp_extract(t, concat('(', u, ')'), length(u))",
    ],
    "ArrayJoin": [
        "array_join(split(t, ' '), u)",
        "array_join(split(t, ' '), u, id)",
        "array_join(array(t, u), ' ', '-')",
    ],
    "Slice": ["array_join(slice(split(t, ' '), 1, 3), ' ')", "slice(split(t, u), length(id), length(id))"],
    "ConcatWs": ["concat_ws(' ', t, u, k)", "concat_ws(u, t, split(t, ' '))"],
    "Cast": ["CAST(k AS STRING)", "CAST(length(t) AS STRING)", "CAST(t = u AS STRING)"],
    "Coalesce": ["coalesce(t, u)", "coalesce(t, id)", "coalesce(nullif(t, 'a'), '')"],
    "If": [
        "IF(k > 0, t, u)", "IF(t LIKE '%a%', t, '')", "IF(t LIKE '%a%', 'x', t)",
        "IF(t LIKE '%a%', coalesce(u, ''), t)",
    ],
    "CaseWhen": [
        "CASE WHEN k > 0 THEN t END",
        "CASE WHEN t LIKE '%a%' THEN t WHEN k > 0 THEN 'x' ELSE lower(t) END",
        "CASE WHEN k > 0 THEN t WHEN k < 0 THEN u ELSE '' END",
    ],
    "IsNull": ["t IS NULL"],
    "IsNotNull": ["t IS NOT NULL"],
    "EqualNullSafe": ["t <=> u"],
    "CreateArray": ["array(t, u)"],
    "CreateNamedStruct": ["named_struct('a', t, 'b', u).a", "named_struct('a', t, 'b', u)"],
}  # fmt: skip
"""Expressions whose nulls show which cells of `t` are null, and nothing else about `t`; other columns are public."""
OWN = {
    "NullIfResult": ["nullif(t, u)", "nullif(u, t)"],
    "CaseWhen": ["CASE WHEN t = 'a' THEN t END", "CASE WHEN t = 'a' THEN u ELSE '' END"],
    "If": ["IF(t = 'a', t, u)", "IF(t = 'a', concat(t, u), '')"],
    "Coalesce": ["coalesce(nullif(t, 'a'), u)"],
    "And": ["t = 'a' AND u = ''"],
    "Or": ["t = 'a' OR u = ''"],
    "In": ["t IN ('a', u)", "u IN (t, 'a')"],
    "Cast": ["try_cast(t AS INT)", "CAST(try_cast(t AS DATE) AS STRING)"],
    "GetJsonObject": ["get_json_object(t, '$.a')", "get_json_object(t, concat('$.', u))"],
    "GetArrayItem": ["array(t, u)[0]", "IF(k IN (0, 1), array(t, u)[k], '')"],
    "ElementAt": ["try_element_at(split(t, ' '), length(id))", "try_element_at(array(t, u), 2)"],
}
"""Expressions of their own row whose nulls may say more."""
CONSTANT = {"CreateNamedStruct": {0, 2}, "RegExpReplace": {3}}
"""Arguments for which Spark accepts only constants."""
EXPRESSIONS = [
    (kind, text, passes)
    for table, passes in ((AS_INPUTS, True), (OWN, False))
    for kind, texts in table.items()
    for text in texts
]


@pytest.fixture(scope="module")
def values(spark):
    """The values of all expressions by id, for the rows in several orders and for some of the rows."""
    shuffled = random.Random(1).sample(ROWS, len(ROWS))
    orders = [ROWS, ROWS[::-1], shuffled, shuffled[::3]]
    rows = [(number, *row) for number, order in enumerate(orders) for row in order]
    frame = spark.createDataFrame(rows, f"number int, {SCHEMA}")
    columns = (f"({text}) AS c{at}" for at, (_, text, _) in enumerate(EXPRESSIONS))
    found = [{} for _ in orders]
    for row in frame.selectExpr("number", "id", *columns).collect():
        found[row[0]][row[1]] = tuple(row)[2:]
    return found[0], found[1:]


def test_no_value_depends_on_other_rows(values):
    first, others = values
    for other in others:
        assert {row: first[row] for row in other} == other


@pytest.mark.parametrize(("at", "passes"), [(at, passes) for at, (_, _, passes) in enumerate(EXPRESSIONS)])
def test_nulls_show_which_cells_are_null_and_nothing_else(query_of, values, at, passes):
    """With the public columns given, whether the value is null is a function of whether the cell of `t` is null."""
    _, text, _ = EXPRESSIONS[at]
    seen = {}
    for row in ROWS:
        seen.setdefault((row[1] is None, *row[2:]), set()).add(values[0][row[0]][at] is None)
    decided = all(len(kinds) == 1 for kinds in seen.values())
    plan = query_of(f"SELECT private_t({text}, id) AS r FROM cells")
    if passes:
        assert decided
        assert guard(plan, raw="t") is plan
    else:
        with pytest.raises(GateError, match="may be null although its source is not"):
            guard(plan, raw="t")


def test_each_accepted_function_is_tested_with_a_column_in_each_position(query_of):
    constant, found = ({kind: set() for kind in _OF_ROW} for _ in range(2))
    columns = ", ".join(f"({text}) AS c{at}" for at, (_, text, _) in enumerate(EXPRESSIONS))
    for node in _nodes(query_of(f"SELECT {columns} FROM cells")):
        kind = kind_of(node)
        for position, part in enumerate(items(node.children()) if kind in _OF_ROW else ()):
            (found if _has_column(part) else constant)[kind].add(position)
    assert [kind for kind, positions in found.items() if not positions] == []
    assert {kind: only for kind in _OF_ROW if (only := constant[kind] - found[kind])} == CONSTANT


@pytest.fixture(scope="module")
def query_of(spark, tmp_path_factory):
    key = tmp_path_factory.mktemp("keys") / "noise.key"
    _kernel.Secret().write(str(key))
    policy = ColumnPolicy(
        dataset="cells", column="t", release="1", mechanism=CusText.example(), key=f"file:{key}", allow={"cluster"}
    )
    spark.createDataFrame(ROWS, SCHEMA).createOrReplaceTempView("cells")
    register(spark, "private_t", policy, form=FORM)
    return spark.sql


def _has_column(part):
    return part.references().nonEmpty() or kind_of(part) == "CommonExpressionRef"


def _nodes(frame):
    """Yield the expressions of the last step of a plan."""
    waiting = list(items(frame._jdf.queryExecution().analyzed().expressions()))
    while waiting:
        here = waiting.pop()
        yield here
        waiting += items(here.children())
