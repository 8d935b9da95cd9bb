"""The guard on Spark plans: its steps, its refusals, its messages."""

import itertools

import pytest

from dptext_etl import ColumnPolicy, _kernel
from dptext_etl.errors import GateError, PolicyError
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.policy.plan_rules import Content, PlanRules
from dptext_etl.spark import guard, register
from dptext_etl.spark.spark_guard import _items, _Walk
from tests.later import later
from tests.quick import THOROUGH, quick

from .film_queries import ARROW
from .films import FORM

later("pyspark", reason="pyspark is not installed (extra: spark)")
ROWS = [("a", "good film", 1, ("good", 2)), ("b", "bad film", 2, ("bad", 3))]


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    key = tmp_path_factory.mktemp("keys") / "noise.key"
    _kernel.Secret().write(str(key))
    return ColumnPolicy(
        dataset="films", column="review", release="1", mechanism=CusText.example(), key=f"file:{key}", allow={"cluster"}
    )


@pytest.fixture(scope="module")
def films(spark, policy):
    """The view `films`, releases in both forms, a function that only looks like one, and a view over the release."""
    from pyspark.sql.functions import pandas_udf

    frame = spark.createDataFrame(ROWS, "id string, review string, n int, doc struct<text string, pages int>")
    frame.createOrReplaceTempView("films")
    register(spark, "rel", policy, form=FORM)
    register(spark, "rel_pandas", policy, form="pandas", spend=True)
    spark.udf.register("look_alike", pandas_udf(lambda text, id: text, "string"))  # noqa: A006
    spark.sql("CREATE OR REPLACE TEMP VIEW safe AS SELECT id, rel(review, id) AS review, n FROM films")
    spark.sql("CREATE OR REPLACE TEMP VIEW renamed AS SELECT id, review AS body, n FROM films")
    return spark


PASSES = {
    "released": "SELECT id, rel(review, id) AS review FROM films",
    "released, with what it costs": "SELECT id, rel_pandas(review, id).text FROM films",
    "released, then anything": "SELECT upper(review) AS r, count(*) FROM safe WHERE n > 0 GROUP BY 1 ORDER BY 1",
    "joined to others": "SELECT rel(f.review, f.id) AS r FROM films f LEFT JOIN films g ON f.id = g.id",
    "repeated": "SELECT rel(f.review, f.id) AS r FROM films f CROSS JOIN films g",
    "union of texts": "SELECT rel(review, id) AS r FROM (SELECT * FROM films UNION ALL SELECT * FROM films)",
    "renamed in a view": "SELECT id, rel(body, id) AS r FROM renamed",
    "common table of texts": "WITH t AS (SELECT id, review FROM films) SELECT rel(review, id) AS r FROM t",
    "chosen by other columns": "SELECT rel(review, id) AS r FROM films WHERE n > 1 ORDER BY doc.pages LIMIT 3",
    "exploded next to": "SELECT rel(f.review, f.id) AS r, x FROM films f LATERAL VIEW explode(array(1, n)) AS x",
    "never read": "SELECT id, n FROM films ORDER BY n LIMIT 1",
    "common table": "WITH t AS (SELECT id, review FROM films) SELECT l.id FROM t l JOIN t r ON l.id = r.id",
    "exists": "SELECT id FROM films f WHERE EXISTS (SELECT * FROM films g WHERE g.id = f.id)",
    "union": "SELECT id FROM films UNION SELECT id FROM safe",
    "window": "SELECT id, count(*) OVER (PARTITION BY n) AS c FROM films",
    "released in a sub-query": "SELECT id, (SELECT max(rel(review, id)) FROM films) AS r FROM films",
    "a function of kept columns": "SELECT transform(array(n), x -> x + 1) AS x, rel(review, id) AS r FROM films",
}


@pytest.mark.parametrize("query", quick(PASSES.values(), first=12), ids=PASSES)
def test_plans_that_release_pass_and_are_returned(films, policy, query):
    plan = films.sql(query)
    assert guard(plan, policy=policy, id="ID") is plan
    assert guard(plan, raw="review") is plan


OTHER_ROWS = {
    "through a struct": "SELECT rel(s.t, s.i) AS r FROM (SELECT named_struct('t', review, 'i', id) AS s FROM films)",
    "joined on ids": "SELECT rel(f.review, g.id) AS r FROM films f JOIN films g ON f.id = g.id",
    "joined on ids, by name": "SELECT rel(review, id) AS r FROM (SELECT id FROM films) LEFT JOIN films USING (id)",
    "ids of other rows": "SELECT rel(f.review, g.id) AS r FROM films f CROSS JOIN films g",
    "ids of other rows of a common table": (
        "WITH t AS (SELECT id, review FROM films) SELECT rel(f.review, g.id) AS r FROM t f CROSS JOIN t g"
    ),
    "ids that a join does not find": (
        "SELECT rel(c.review, a.id) FROM films c CROSS JOIN (SELECT a.id FROM films a ANTI JOIN films b USING (id)) a"
    ),
    "ids of one case": (
        "SELECT rel(f.review, g.id) FROM films f JOIN films g ON f.id COLLATE UTF8_LCASE = g.id COLLATE UTF8_LCASE"
    ),
    "an id of an outer query": "SELECT (SELECT rel(g.review, f.id) FROM films g LIMIT 1) FROM films f",
    "a text of an outer query": "SELECT (SELECT rel(f.review, g.id) FROM films g LIMIT 1) FROM films f",
    "computed ids": "SELECT rel(review, concat(id, n)) AS r FROM films",
    "computed ids before": "SELECT rel(review, k) FROM (SELECT review, concat(id, n) AS k FROM films)",
    "exploded ids": "SELECT rel(review, k) FROM films LATERAL VIEW explode(sequence(1, 9)) AS k",
    "another id": "SELECT rel(review, n) AS r FROM films",
    "an aggregate": "SELECT rel(max(review), max(id)) AS r FROM films",
    "a window": "SELECT rel(first_value(review) OVER (ORDER BY id), id) AS r FROM films",
}


@pytest.mark.parametrize("query", OTHER_ROWS.values(), ids=OTHER_ROWS)
def test_texts_that_several_ids_could_have_are_refused(films, policy, query):
    with pytest.raises(GateError, match=r"different rows|computed record ids|not one column|names 'id'|is used in"):
        guard(films.sql(query), raw="text", policy=policy, id="id")


ATTACKS = {
    "an ANSI cast to a number": "cast(cast(review AS int) AS string)",
    "an ANSI cast to a date": "cast(cast(review AS date) AS string)",
    "an ANSI cast to a decimal": "cast(cast(review AS decimal(3, 1)) AS string)",
    "an ANSI cast of one person's text": (
        "coalesce(cast(cast(if(id='r1' and review like '%w%', 'x', '1') as int) as string), review)"
    ),
    "a word that is not there": "split(review, ' ')[2]",
    "an element that is not there": "element_at(split(review, ' '), 3)",
    "a pattern from a cell": "regexp_replace('a', review, 'b')",
    "JSON": "from_json(review, 'a string', map('mode', 'FAILFAST')).a",
    "XML": "from_xml(review, 'a string').a",
    "CSV": "from_csv(review, 'a string').a",
    "a part of a date": "cast(extract(year FROM cast(review AS date)) AS string)",
    "a null that a match decides": "CASE WHEN review LIKE '%bad%' THEN review END",
    "cleaned": "lower(trim(coalesce(review, '')))",
    "whether it is null": "if(review IS NULL, 'none', id)",
    "a type of the same name": "cast(review AS binary)",
    "an order": "array_join(array_sort(array(review, id)), ' ')",
}


@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS)
def test_a_prepared_text_is_refused(films, policy, text):
    """Whether such a query fails, and which texts are null, would depend on raw texts at no charge."""
    for query in ("SELECT rel({}, id) FROM films", "SELECT rel(t, id) FROM (SELECT {} AS t, id FROM films)"):
        with pytest.raises(GateError, match="is used in an expression") as caught:
            guard(films.sql(query.format(text)), policy=policy, id="id")
        assert "prepare the text in the source" in str(caught.value)
    with pytest.raises(GateError, match="is used in"):
        guard(films.sql(f"SELECT id FROM films WHERE {text} = 'a'"), policy=policy, id="id")


def test_session_variables_are_refused(films, policy):
    films.sql("DECLARE OR REPLACE VARIABLE word STRING")
    films.sql("SET VARIABLE word = (SELECT max(review) FROM films)")
    for query in ("SELECT id, word FROM films", "SELECT rel(review, id) FROM films WHERE id = word LIMIT 1"):
        with pytest.raises(GateError, match="a session variable"):
            guard(films.sql(query), policy=policy, id="id")


NO_COLUMN = 40  # functions of Spark without a column as argument, such as pi(), or with types and options


def test_every_function_of_spark_over_a_raw_column_is_refused(films):
    """Functions of the registry are built over the raw column, in each position, by Spark's own builders.

    In `make test`, every third function: the guard has one rule for all of them.
    """
    jvm, registry = films._jvm, films._jsparkSession.sessionState().functionRegistry()
    plan = films.sql("SELECT 1, 'a', review FROM films")._jdf.queryExecution().analyzed()
    one, word, raw = _items(plan.projectList())
    one, word = (next(_items(item.children())) for item in (one, word))
    columns = {raw.exprId().id(): Content(frozenset({"review"}), ("review",), frozenset({0}))}
    forms = [[raw], [raw, one], [raw, word], [one, raw], [word, raw], [raw] * 3, [raw, one, one], [raw] * 4, [raw] * 6]
    judged = missed = 0
    for function in itertools.islice(_items(registry.listFunction()), 0, None, 1 if THOROUGH else 3):
        builder, name, built = registry.lookupFunctionBuilder(function).get(), str(function.funcName()), 0
        for form in forms:
            try:
                expression = builder.apply(jvm.PythonUtils.toSeq(form))
            except Exception:  # noqa: BLE001  (another number of arguments, or a column for a constant)
                continue
            if expression.references().isEmpty():  # an argument that Spark does not read
                continue
            built += 1
            try:
                content = _Walk(PlanRules(None, None, "review"))._content(expression, columns)
            except Exception:  # noqa: BLE001  (the guard refuses what it cannot read)
                content = None
            assert content is None or content.raw == {"review"}, name
            if built == (2 if THOROUGH else 1):
                break
        judged, missed = judged + (built > 0), missed + (not built)
    assert judged > (400 if THOROUGH else 130)
    assert missed < NO_COLUMN


OTHER_POLICIES = {
    "mechanism": lambda p: {"mechanism": CusText(**{**p.mechanism.model_dump(), "epsilon": 100.0})},
    "release": lambda _: {"release": "2"},
    "key": lambda _: {"key": "env:ANOTHER_SECRET"},
    "nonce": lambda _: {"nonce": 1},
}


@pytest.mark.parametrize("what", OTHER_POLICIES)
def test_a_release_that_is_not_the_policys_is_refused(films, policy, what):
    register(films, "another_release", policy.model_copy(update=OTHER_POLICIES[what](policy)), form=FORM)
    plan = films.sql("SELECT another_release(review, id) AS r FROM films")
    with pytest.raises(GateError, match="differs from the policy's"):
        guard(plan, policy=policy, id="id")


def test_benchmarks_are_no_releases(films, policy):
    faithful = CusText(**{**policy.mechanism.model_dump(), "mode": "faithful"})
    consented = {"mechanism": faithful, "allow": faithful.guarantee.disclosures}
    register(films, "faithful_review", policy.model_copy(update=consented), form=FORM)
    plan = films.sql("SELECT faithful_review(review, id) AS r FROM films")
    for options in ({"raw": "review"}, {"policy": policy, "id": "id"}):
        with pytest.raises(GateError, match="mode faithful"):
            guard(plan, **options)


@pytest.mark.skipif(not ARROW, reason="Spark 3.5 knows named arguments for its own functions alone")
def test_arguments_are_known_by_their_names(films, policy):
    assert guard(films.sql("SELECT rel(id => id, TEXT => review) FROM films"), policy=policy, id="id")
    with pytest.raises(GateError, match="as an id"):
        guard(films.sql("SELECT rel(id => review, text => id) FROM films"), policy=policy, id="id")
    with pytest.raises(GateError, match="other names of arguments than text, id, and subject"):
        guard(films.sql("SELECT rel(review => review, id => id) FROM films"), policy=policy, id="id")


REFUSED = {
    "as it is": ("SELECT id, review FROM films", "unreleased, in column"),
    "all columns": ("SELECT * FROM films", "unreleased, in column"),
    "alias": ("SELECT review AS r FROM films", "unreleased, in column"),
    "other case": ("SELECT REVIEW AS r FROM FILMS", "unreleased, in column"),
    "concat": ("SELECT concat(id, ':', reverse(review)) AS x FROM films", "is used in"),
    "released next to raw": ("SELECT rel(review, id) AS a, length(review) AS b FROM films", "is used in"),
    "released and raw in one": ("SELECT concat(rel(review, id), review) AS a FROM films", "is used in"),
    "struct": ("SELECT named_struct('t', review).t AS x FROM films", "is used in"),
    "higher-order": ("SELECT transform(array(review), x -> upper(x)) AS x FROM films", "is used in"),
    "aggregate": ("SELECT n, max(review) AS m FROM films GROUP BY n", "is used in"),
    "window": ("SELECT id, lag(review) OVER (ORDER BY id) AS l FROM films", "is used in"),
    "window order": ("SELECT id, row_number() OVER (ORDER BY review) AS l FROM films", "is used in"),
    "filter": ("SELECT id FROM films WHERE review LIKE '%bad%'", "is used in"),
    "filter on a length": (
        "SELECT id FROM (SELECT id, length(review) AS l FROM films) WHERE l > 3",
        "is used in",
    ),
    "sort": ("SELECT id FROM films ORDER BY review", "is used in"),
    "group": ("SELECT count(*) FROM films GROUP BY review", "is used in"),
    "distinct": ("SELECT DISTINCT id, review FROM films", "is used in"),
    "join": ("SELECT a.id FROM films a JOIN films b ON a.review = b.review", "is used in"),
    "union": ("SELECT id AS x FROM films UNION ALL SELECT review FROM films", "unreleased, in column"),
    "except": ("SELECT review FROM films EXCEPT SELECT id FROM films", "is used in"),
    "explode": ("SELECT explode(split(review, ' ')) AS w FROM films", "is used in"),
    "scalar sub-query": ("SELECT id, (SELECT max(review) FROM films) AS m FROM films", "is used in"),
    "in a sub-query": ("SELECT id FROM films WHERE id IN (SELECT review FROM films)", "is used in"),
    "correlated": (
        "SELECT id FROM safe s WHERE EXISTS (SELECT 1 FROM films f WHERE f.review = s.id)",
        "is used in",
    ),
    "outer column": ("SELECT id, (SELECT f.review) AS m FROM films f", "is used in"),
    "lateral": ("SELECT id, q FROM films f, LATERAL (SELECT f.review AS q)", "is used in"),
    "common table": ("WITH t AS (SELECT id, review AS body FROM films) SELECT body FROM t", "unreleased, in column"),
    "view": ("SELECT body FROM renamed", "unreleased, in column"),
    "another function": ("SELECT look_alike(review, id) AS x FROM films", "is used in"),
    "raw as the id": ("SELECT rel(id, review) AS x FROM films", "as an id"),
    "pivot": (
        "SELECT * FROM (SELECT n, review FROM films) PIVOT (max(review) FOR n IN (1, 2))",
        "is used in",
    ),
    "unpivot": ("SELECT v FROM films UNPIVOT (v FOR k IN (id, review))", "is used in"),
    "rollup": ("SELECT max(review) AS m FROM films GROUP BY ROLLUP (id, n)", "is used in"),
}


@pytest.mark.parametrize(("query", "said"), REFUSED.values(), ids=REFUSED)
def test_plans_that_get_around_the_release_are_refused(films, query, said):
    with pytest.raises(GateError, match=said) as refused:
        guard(films.sql(query), raw=["review"])
    assert refused.value.exit_code == 4
    assert "good film" not in str(refused.value)


def test_a_struct_that_holds_a_raw_field_is_raw(films, policy):
    text = policy.model_copy(update={"column": "text"})
    register(films, "private_text", text, form=FORM)
    for query, said in (
        ("SELECT doc FROM films", "unreleased, in column"),
        ("SELECT doc.pages FROM films", "is used in"),
        ("SELECT private_text(doc.text, id) AS r FROM films", "is used in"),
        ("SELECT private_text(doc, id) AS r FROM films", "not one column of a source"),
    ):
        with pytest.raises(GateError, match=said):
            guard(films.sql(query), policy=text, id="id")


def test_frames_of_the_api_are_followed_like_sql(films):
    from pyspark.sql import functions as f

    frame = films.table("films")
    released = frame.withColumn("review", f.call_function("rel", "review", "id")).drop("doc")
    assert guard(released, raw=["review"]) is released
    with pytest.raises(GateError, match="unreleased, in column"):
        guard(frame.withColumn("copy", f.col("review")).drop("review"), raw=["review"])
    with pytest.raises(GateError, match="a step that cannot be followed"):
        guard(
            frame.select("id", "review").mapInArrow(lambda batches: batches, "id string, review string"), raw=["review"]
        )
    assert guard(released.mapInArrow(lambda batches: batches, "id string, review string"), raw=["review"])
    with pytest.raises(GateError, match="is used in"):
        guard(frame.select("id", "review").distinct(), raw=["review"])


def test_names_that_are_taken_over_or_lacking_and_spark_connect_are_refused(films):
    from pyspark.sql.functions import pandas_udf

    register_again = "private_for_a_while"
    films.udf.register(register_again, pandas_udf(lambda text, id: text, "string"))  # noqa: A006
    with pytest.raises(GateError, match="is used in an expression"):
        guard(films.sql(f"SELECT {register_again}(review, id) AS x FROM films"), raw=["review"])
    with pytest.raises(PolicyError, match="no source of the plan has a column 'body'"):
        guard(films.table("renamed"), raw=["body"])

    class ConnectFrame:
        def __getattr__(self, name):
            raise AttributeError(name)

    with pytest.raises(PolicyError, match="Spark Connect shows its client no analyzed plan"):
        guard(ConnectFrame(), raw=["review"])
