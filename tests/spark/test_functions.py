"""SQL functions in Spark: arguments, types, contents of a plan, how tables and keys reach the workers."""

import datetime as dt
import decimal
import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from dptext_etl import privatize
from dptext_etl.engines.spark.worker_policy import Location, WorkerPolicy, ship
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.spark import guard, label_function, register, worker
from tests.later import later
from tests.quick import quick

from .film_queries import ARROW, FORMS, ROWS, column, failure, probe

later("pyspark", reason="pyspark is not installed (extra: spark)")


@pytest.mark.parametrize("form", quick(FORMS))
@pytest.mark.skipif(not ARROW, reason="Spark 3.5 knows named arguments for its own functions alone")
def test_arguments_by_name_in_any_order_and_case(films, policy, expected, form):
    register(films, "private_review", policy, form=form)
    for arguments in ("ID => id, TEXT => review", "review, id => id"):
        assert column(films, f"SELECT private_review({arguments}) FROM films ORDER BY n") == expected


@pytest.mark.parametrize(
    ("columns", "named", "said"),
    [
        (["text"], {}, "a call of this function lacks id"),
        (["text", "id", "subject", "more"], {}, "has two or three arguments, got 4"),
        (["text"], {"key": "id"}, "it knows text, id, subject"),
        (["text"], {"Text": "id"}, "the argument text is given twice"),
    ],
)
def test_calls_with_other_arguments_are_told_how_to_call(columns, named, said):
    with pytest.raises(InputError, match=said) as caught:
        worker.arguments(columns, named)
    assert "call name(text, id" in caught.value.hint


def test_a_name_that_queries_would_not_find_is_refused(films, policy):
    for name in ("reverse", "MASK", "trim", "private review", "session.f", "f; drop table films"):
        with pytest.raises(PolicyError, match=r"has a built-in function '\w+'|a name in SQL has only letters"):
            register(films, name, policy, form=FORMS[0])
    assert column(films, "SELECT reverse('abc')") == ["cba"]


@pytest.mark.parametrize("form", quick(FORMS))
def test_spends_the_data_frame_api_and_empty_columns(films, policy, expected, form):
    register(films, "private_review", policy, form=form, spend=True)
    rows = films.sql(
        "SELECT r.*, review FROM (SELECT private_review(review, id) AS r, review, n FROM films) ORDER BY n"
    )
    assert [(row.text, row.positions, row.epsilon, row.delta) for row in rows.collect()] == [
        (text, words := len((row[1] or "").split()), 2.0 * words, 0.0) for text, row in zip(expected, ROWS, strict=True)
    ]
    function = register(films, "private_review", policy, form=form)
    out = films.table("films").select("n", function("review", "id").alias("review")).orderBy("n").collect()
    assert [row.review for row in out] == expected
    query = "SELECT private_review({}, id) FROM films WHERE n < {}"
    register(films, "private_review", policy, form=form)
    assert column(films, query.format("review", 0)) == []
    assert column(films, query.format("cast(NULL AS string)", 3)) == [None] * 3


IDS = {
    "int": list(range(4)),
    "bigint": [-(2**62), 0, 1, 2**62],
    "date": [dt.date(2026, 1, day) for day in (1, 2, 3, 4)],
    "decimal(10,2)": [decimal.Decimal(text) for text in ("1.50", "-2.00", "3.25", "0.10")],
    "binary": [b"a", b"\x00", b"\xff\xfe", b"long " * 20],
    "struct<a: int, b: string>": [(1, "x"), (2, "x"), (1, "y"), (2, "y")],
    "timestamp": [dt.datetime(2026, 1, day, 12, 30, 0, day, dt.UTC) for day in (1, 2, 3, 4)],
}


@pytest.mark.parametrize("form", quick(FORMS))
@pytest.mark.parametrize(
    "kind", quick(sorted(IDS, key=lambda kind: kind not in {"bigint", "binary", "timestamp"}), first=3)
)
def test_ids_of_every_type_name_the_same_records_as_elsewhere(spark, policy, form, kind):
    if form == "pandas" and kind == "timestamp":
        pytest.skip("tested below")
    texts = ["the plot was thin but the music is great"] * 4
    frame = spark.createDataFrame(list(zip(IDS[kind], texts, range(4), strict=True)), f"id {kind}, text string, n int")
    frame.createOrReplaceTempView("typed")
    register(spark, "private_text", policy, form=form)
    types = {
        "int": pa.int32(), "bigint": pa.int64(), "date": pa.date32(), "decimal(10,2)": pa.decimal128(10, 2),
        "binary": pa.binary(), "struct<a: int, b: string>": pa.struct({"a": pa.int32(), "b": pa.string()}.items()),
        "timestamp": pa.timestamp("us", "UTC"),
    }  # fmt: skip
    values = [{"a": item[0], "b": item[1]} for item in IDS[kind]] if kind.startswith("struct") else IDS[kind]
    wanted = privatize(pa.array(texts), pa.array(values, types[kind]), policy).to_pylist()
    assert len(set(wanted)) == 4
    assert column(spark, "SELECT private_text(text, id) FROM typed ORDER BY n") == wanted


def test_functions_of_pandas_refuse_ids_without_zone_and_policies_say_what_to_do(films, policy, tmp_path, monkeypatch):
    register(films, "private_review", policy, form="pandas")
    assert "timestamp" in failure(films, "SELECT private_review(review, timestamp_seconds(n)) FROM films")
    with pytest.raises(PolicyError, match="column="):
        register(films, "f", policy.model_copy(update={"column": None}))
    with pytest.raises(PolicyError, match='form="arrow" or form="pandas"'):
        register(films, "f", policy, form="json")
    monkeypatch.delattr("pyspark.sql.pandas.functions.arrow_udf")
    with pytest.raises(PolicyError, match='form="pandas"'):
        register(films, "f", policy)
    with pytest.raises(PolicyError, match=r"label_function needs Spark 4\.1 or newer"):
        label_function("published")
    with pytest.raises(PolicyError, match=r"guard needs Spark 4\.1 or newer"):
        guard(films.table("films"), "review")


@pytest.mark.parametrize("form", quick(FORMS))
def test_a_failing_query_says_our_sentence_and_quotes_nothing(films, policy, form):
    register(films, "private_review", policy, form=form)
    message = failure(films, "SELECT private_review(n, review) FROM films LIMIT 1")
    assert "the first argument is the text column and holds strings, got int" in message
    assert "no two of them are swapped" in message
    assert "film" not in message.replace("private_review", "").replace("FROM films", "")


TEXTS, NAMES, NUMBERS = pa.array(["fine", "fine", None]), pa.array(["a", "b", "c"]), pa.array([1, 2, 3])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([NUMBERS, TEXTS], "the first argument is the text column and holds strings, got int64"),
        ([NAMES, TEXTS], "1 record ids of a batch are null"),
        ([NAMES, pa.array(["fine", "fine", "bad"])], "belongs to several texts"),
        ([TEXTS, pa.array(["constant"] * 3)], "belongs to several texts"),
        ([TEXTS, NUMBERS.cast(pa.float64())], "double"),
        ([TEXTS, NAMES, NAMES], "charges no subjects"),
    ],
    ids=["numbers as text", "null ids", "texts as ids", "constant id", "float ids", "subjects without a ledger"],
)
def test_arguments_in_the_wrong_order_are_noticed(policy, monkeypatch, arguments, said):
    monkeypatch.setenv("DPTEXT_THREADS", "1")
    located = Location(sha256=policy.mechanism.table.sha256, name="table", path=str(policy.mechanism.table.path))
    carried = WorkerPolicy.of(policy, {"table": located}).written()
    with pytest.raises(InputError, match=said) as caught:
        worker.release(carried, *arguments)
    assert "Hint:" in str(caught.value)
    assert not {"fine", "bad", "constant"} & set(re.findall(r"\w+", str(caught.value)))


def test_records_that_are_repeated_or_filtered_have_one_release(films, policy, expected):
    register(films, "private_review", policy, form=FORMS[0])
    out = films.sql("SELECT n, private_review(review, id) r FROM films JOIN (SELECT explode(array(1, 2))) ORDER BY n")
    assert [row.r for row in out.collect()] == [text for text in expected for _ in range(2)]
    register(films, "private_review", policy, form=FORMS[0])
    inner = "SELECT n, private_review(review, id) r FROM films"
    frame = films.sql(f"SELECT n, r FROM ({inner}) WHERE r > 'm' AND length(r) > 3 ORDER BY n")
    wanted = [(row[2], text) for row, text in zip(ROWS, expected, strict=True) if text is not None and text > "m"]
    assert [(row.n, row.r) for row in frame.collect()] == [pair for pair in wanted if len(pair[1]) > 3]
    assert [tuple(row) for row in frame.collect()] == [tuple(row) for row in frame.collect()]


@pytest.mark.skipif(not ARROW, reason="Spark 3.5 has no Arrow UDFs")
def test_large_strings(films, policy, expected):
    register(films, "private_review", policy)
    register(films, "private_spend", policy, spend=True)
    films.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        assert column(films, "SELECT private_review(review, id) FROM films ORDER BY n") == expected
        assert column(films, "SELECT private_spend(review, id).text FROM films ORDER BY n") == expected
    finally:
        films.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


def test_a_worker_loads_once_and_uses_one_thread(films, policy):
    policy = policy.model_copy(update={"release": "loaded once"})
    carried = WorkerPolicy.of(policy, ship(films, policy.mechanism.artifacts())).written()
    films.udf.register("look", probe(carried))
    said = {text for _ in range(3) for text in column(films, "SELECT look(id) FROM films")}
    by_worker = {}
    for text in said:
        worker, *state, threads, seat = text.split()
        by_worker.setdefault(worker, set()).add((tuple(state), threads, seat))
    for states in by_worker.values():
        assert (len(states), next(iter(states))[1]) == (1, "1")


def test_a_worker_imports_nothing_heavy():
    program = "import json, sys, dptext_etl.spark.worker, dptext_etl.spark; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {"great_expectations", "torch", "pandas", "polars", "dagster", "pyspark"}


@pytest.mark.parametrize("form", quick(FORMS))
def test_a_plan_carries_configuration_locations_hashes_and_references_alone(films, policy, form, tmp_path):
    from pyspark.cloudpickle import dumps

    secret = Path(policy.key.removeprefix("file:")).read_text().strip()
    function = register(films, "private_review", policy, form=form)
    (cell,) = function.func.__closure__
    carried = json.loads(cell.cell_contents)
    assert set(carried) == set(WorkerPolicy.model_fields)
    assert carried["mechanism"]["artifacts"]["table"]["sha256"] == policy.mechanism.table.sha256
    pickled = dumps(function.func)
    assert len(pickled) < 4000
    for hidden in (secret.encode(), bytes.fromhex(secret)):
        assert hidden not in pickled
    frame = films.sql("SELECT private_review(review, id) AS review FROM films")
    plans = frame._jdf.queryExecution().toString()
    assert "private_review(review" in plans
    assert policy.key not in plans
    assert secret not in plans


def test_models_are_nondeterministic_so_that_a_sub_select_is_evaluated_once(films, policy, expected, monkeypatch):
    assert register(films, "private_review", policy, form=FORMS[0]).deterministic
    monkeypatch.setattr(CusText, "reproducible", False)
    assert not register(films, "private_review", policy, form=FORMS[0]).deterministic
    chosen = films.sql("SELECT r FROM (SELECT n, private_review(review, id) r FROM films) WHERE r > 'm' ORDER BY n")
    assert chosen._jdf.queryExecution().executedPlan().toString().count("EvalPython") == 1
    assert [row.r for row in chosen.collect()] == [text for text in expected if text is not None and text > "m"]
