"""The guard on Spark plans: its steps, its refusals, its messages."""

import pytest

from dptext_etl import ColumnPolicy, _kernel
from dptext_etl.errors import GateError, InputError, PolicyError
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.spark import guard, register
from tests.later import later
from tests.quick import quick

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
    "cleaned before the release": "SELECT rel(lower(trim(coalesce(review, ''))), id) AS r FROM films",
    "null where empty, and then empty": "SELECT rel(coalesce(nullif(trim(review), ''), ''), id) AS r FROM films",
    "a word where it is null": "SELECT rel(IF(review IS NULL, 'none', review), id) AS r FROM films",
    "null where a public column says so": "SELECT rel(CASE WHEN n > 1 THEN review END, id) AS r FROM films",
    "an outer join": (
        "SELECT rel(t, f.id) AS r FROM (SELECT id FROM films) f "
        "LEFT JOIN (SELECT id, coalesce(review, '') AS t FROM films) g ON f.id = g.id"
    ),
    "put together": "SELECT rel(concat_ws(' ', n, review), id) AS r FROM films",
    "replaced by a column": "SELECT rel(replace(review, 'a', id), id) AS r FROM films",
    "cut": "SELECT rel(left(review, 500), id) AS r FROM films",
    "a choice": "SELECT rel(CASE WHEN review <> '' THEN review ELSE 'none' END, id) AS r FROM films",
    "extracted": "SELECT rel(regexp_extract(review, '(good)', 1), id) AS r FROM films",
    "through a struct": "SELECT rel(s.t, s.i) AS r FROM (SELECT named_struct('t', review, 'i', id) AS s FROM films)",
    "prepared in one way twice": (
        "SELECT rel(nvl(nullif(review, 'a'), ''), id) AS a, rel(nvl(nullif(review, 'a'), ''), id) AS b FROM films"
    ),
    "where it is not null": "SELECT rel(review, id) AS r FROM films WHERE review IS NOT NULL",
    "trimmed on both sides": "SELECT rel(btrim(nvl(review, '')), id) AS r FROM films",
    "cleaned in a sub-query": (
        "SELECT rel(t, id) AS r FROM (SELECT id, regexp_replace(review, 'a', 'b') AS t FROM films)"
    ),
    "joined on ids": "SELECT rel(f.review, g.id) AS r FROM films f JOIN films g ON f.id = g.id",
    "joined on ids, by name": "SELECT rel(review, id) AS r FROM (SELECT id FROM films) LEFT JOIN films USING (id)",
    "repeated": "SELECT rel(f.review, f.id) AS r FROM films f CROSS JOIN films g",
    "union of texts": "SELECT rel(review, id) AS r FROM (SELECT * FROM films UNION ALL SELECT * FROM films)",
    "renamed in a view": "SELECT id, rel(body, id) AS r FROM renamed",
    "common table of texts": "WITH t AS (SELECT id, review FROM films) SELECT rel(review, id) AS r FROM t",
    "lateral": "SELECT f.id, r FROM films f, LATERAL (SELECT rel(f.review, f.id) AS r)",
    "never read": "SELECT id, n FROM films ORDER BY n LIMIT 1",
    "dropped in time": "SELECT id FROM (SELECT id, review FROM films) WHERE id > 'a'",
    "common table": "WITH t AS (SELECT id, review FROM films) SELECT l.id FROM t l JOIN t r ON l.id = r.id",
    "exists": "SELECT id FROM films f WHERE EXISTS (SELECT * FROM films g WHERE g.id = f.id)",
    "union": "SELECT id FROM films UNION SELECT id FROM safe",
    "window": "SELECT id, count(*) OVER (PARTITION BY n) AS c FROM films",
    "released in a sub-query": "SELECT id, (SELECT max(rel(review, id)) FROM films) AS r FROM films",
}


@pytest.mark.parametrize("query", quick(PASSES.values(), first=12), ids=PASSES)
def test_plans_that_release_pass_and_are_returned(films, policy, query):
    plan = films.sql(query)
    assert guard(plan, policy=policy, id="ID") is plan
    if "IS NOT NULL" not in query:  # only a policy says that this is disclosed
        assert guard(plan, raw="review") is plan


OTHER_ROWS = {
    "a window": "SELECT rel(first_value(review) OVER (ORDER BY id), id) AS r FROM films",
    "a window before": "SELECT rel(t, id) AS r FROM (SELECT id, lag(review) OVER (ORDER BY id) AS t FROM films)",
    "an aggregate": "SELECT rel(max(review), max(id)) AS r FROM films",
    "an aggregate before": "SELECT rel(t, id) FROM films, (SELECT max(review) AS t FROM films)",
    "a sub-query": "SELECT rel((SELECT max(review) FROM films), id) AS r FROM films",
    "ids of other rows": "SELECT rel(f.review, g.id) AS r FROM films f CROSS JOIN films g",
    "ids of other rows of a common table": (
        "WITH t AS (SELECT id, review FROM films) SELECT rel(f.review, g.id) AS r FROM t f CROSS JOIN t g"
    ),
    "ids of an outer query": "SELECT r FROM films f, LATERAL (SELECT rel(g.review, f.id) AS r FROM films g LIMIT 1)",
    "computed ids": "SELECT rel(review, concat(id, n)) AS r FROM films",
    "computed ids before": "SELECT rel(review, k) FROM (SELECT review, concat(id, n) AS k FROM films)",
    "exploded ids": "SELECT rel(review, k) FROM films LATERAL VIEW explode(sequence(1, 9)) AS k",
    "another id": "SELECT rel(review, n) AS r FROM films",
    "drawn anew": "SELECT rel(concat(review, rand()), id) AS r FROM films",
    "at another time": "SELECT rel(concat(review, current_timestamp()), id) AS r FROM films",
    "another table's column": "SELECT rel(concat(f.review, g.id), f.id) AS r FROM films f JOIN films g ON f.n = g.n",
    "prepared in two ways": (
        "SELECT rel(nvl(nullif(review, 'b'), ''), id) AS a, rel(nvl(nullif(review, 'a'), ''), id) AS b FROM films"
    ),
    "put together in two ways": "SELECT rel(concat(review, id), id) AS a, rel(concat(id, review), id) AS b FROM films",
    "quoted": "SELECT rel(review, id) AS a, rel(quote(review), id) AS b FROM films",
    "quoted twice": "SELECT rel(quote(review), id) AS a, rel(quote(quote(review)), id) AS b FROM films",
    "encoded": "SELECT rel(review, id) AS a, rel(url_encode(review), id) AS b FROM films",
    "its collation": "SELECT rel(review, id) AS a, rel(collation(review), id) AS b FROM films",
    "two forms": "SELECT rel(review, id) AS a, rel(lower(review), id) AS b FROM films",
}


@pytest.mark.parametrize("query", OTHER_ROWS.values(), ids=OTHER_ROWS)
def test_texts_that_several_ids_could_have_are_refused(films, policy, query):
    with pytest.raises(GateError, match=r"own row|different rows|computed record ids|several forms|names 'id'"):
        guard(films.sql(query), raw="text", policy=policy, id="id")


NULLS = {
    "empty": "nullif(trim(review), '')",
    "a choice": "CASE WHEN review LIKE '%bad%' THEN review END",
    "a choice by a copy": "IF(contains(doc.text, 'bad'), review, '')",
    "a choice of a column that may be null": "IF(contains(review, 'bad'), concat(review, n), '')",
    "no number": "CAST(try_cast(review AS INT) AS STRING)",
    "a word that is not there": "try_element_at(split(review, ' '), -3)",
    "an element that is not there": "try_element_at(split(review, ' '), 3)",
    "a path that is not there": "get_json_object(review, '$.a')",
    "a field of a chosen struct": "IF(contains(review, 'bad'), named_struct('t', review), named_struct('t', NULL)).t",
    "coalesce with a column": "coalesce(nullif(review, ''), nullif(id, 'a'))",
    "coalesce with itself": "coalesce(nullif(review, ''), nullif(review, 'a'))",
    "a piece of it": "concat('a', nullif(review, ''))",
    "and a joined one": "nullif(other, '')",
}
UNKNOWN = {
    "of another row": "IF(contains(other, 'bad'), review, '')",
    "a map": "map(review, id)['bad film']",
    "JSON": "from_json(review, 'a string').a",
    "a match that is not there": "regexp_substr(review, 'b.d')",
    "a word that is not there": "get(split(review, ' '), 2)",
    "a part that is not there": "try_divide(length(review), 0)",
    "an address": "try_url_decode(review)",
}


@pytest.mark.parametrize("text", (NULLS | UNKNOWN).values(), ids=NULLS | UNKNOWN)
def test_nulls_that_a_text_decides_are_refused(films, policy, text):
    """`r IS NOT NULL` and `count(r)` would select and count just the texts that a predicate fits."""
    joined = "(SELECT f.*, g.review AS other FROM films f LEFT JOIN films g ON f.id = g.id)"
    table = joined if "other" in text else "films"
    for query, options in (
        ("SELECT count({r}) FROM {t}", {"raw": ["review", "text"]}),
        ("SELECT id FROM {t} WHERE {r} IS NOT NULL", {"policy": policy, "id": "id", "raw": "text"}),
    ):
        plan = films.sql(query.format(r=f"rel({text}, id)", t=table))
        with pytest.raises(GateError, match=r"may be null although its source is not|only from its own row"):
            guard(plan, **options)
    if text in NULLS.values():
        plan = films.sql(f"SELECT rel(coalesce({text}, ''), id) AS r FROM {table}")
        assert guard(plan, policy=policy, id="id") is plan


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


REFUSED = {
    "as it is": ("SELECT id, review FROM films", "unreleased, in column"),
    "all columns": ("SELECT * FROM films", "unreleased, in column"),
    "alias": ("SELECT review AS r FROM films", "unreleased, in column"),
    "other case": ("SELECT REVIEW AS r FROM FILMS", "unreleased, in column"),
    "concat": ("SELECT concat(id, ':', reverse(review)) AS x FROM films", "unreleased, in column"),
    "released next to raw": ("SELECT rel(review, id) AS a, length(review) AS b FROM films", "unreleased, in column"),
    "released and raw in one": ("SELECT concat(rel(review, id), review) AS a FROM films", "unreleased, in column"),
    "struct": ("SELECT named_struct('t', review).t AS x FROM films", "unreleased, in column"),
    "higher-order": ("SELECT transform(array(review), x -> upper(x)) AS x FROM films", "unreleased, in column"),
    "aggregate": ("SELECT n, max(review) AS m FROM films GROUP BY n", "unreleased, in column"),
    "window": ("SELECT id, lag(review) OVER (ORDER BY id) AS l FROM films", "unreleased, in column"),
    "window order": ("SELECT id, row_number() OVER (ORDER BY review) AS l FROM films", "decides a window"),
    "filter": ("SELECT id FROM films WHERE review LIKE '%bad%'", "decides which rows are kept"),
    "filter on a length": (
        "SELECT id FROM (SELECT id, length(review) AS l FROM films) WHERE l > 3",
        "which rows are kept",
    ),
    "sort": ("SELECT id FROM films ORDER BY review", "decides the order of rows"),
    "group": ("SELECT count(*) FROM films GROUP BY review", "decides the groups"),
    "distinct": ("SELECT DISTINCT id, review FROM films", "decides which rows are distinct"),
    "join": ("SELECT a.id FROM films a JOIN films b ON a.review = b.review", "decides which rows are joined"),
    "union": ("SELECT id AS x FROM films UNION ALL SELECT review FROM films", "unreleased, in column"),
    "except": ("SELECT review FROM films EXCEPT SELECT id FROM films", "decides which rows are distinct"),
    "explode": ("SELECT explode(split(review, ' ')) AS w FROM films", "decides how many rows there are"),
    "scalar sub-query": ("SELECT id, (SELECT max(review) FROM films) AS m FROM films", "unreleased, in column"),
    "in a sub-query": ("SELECT id FROM films WHERE id IN (SELECT review FROM films)", "which rows are kept"),
    "correlated": (
        "SELECT id FROM safe s WHERE EXISTS (SELECT 1 FROM films f WHERE f.review = s.id)",
        "which rows are kept",
    ),
    "outer column": ("SELECT id, (SELECT f.review) AS m FROM films f", "unreleased, in column"),
    "lateral": ("SELECT id, q FROM films f, LATERAL (SELECT f.review AS q)", "unreleased, in column"),
    "common table": ("WITH t AS (SELECT id, review AS body FROM films) SELECT body FROM t", "unreleased, in column"),
    "view": ("SELECT body FROM renamed", "unreleased, in column"),
    "another function": ("SELECT look_alike(review, id) AS x FROM films", "unreleased, in column"),
    "raw as the id": ("SELECT rel(id, review) AS x FROM films", "as an id"),
    "pivot": (
        "SELECT * FROM (SELECT n, review FROM films) PIVOT (max(review) FOR n IN (1, 2))",
        "unreleased|cannot be",
    ),
    "unpivot": ("SELECT v FROM films UNPIVOT (v FOR k IN (id, review))", "in 'v'|which rows"),
    "rollup": ("SELECT max(review) AS m FROM films GROUP BY ROLLUP (id, n)", "unreleased, in column"),
}


@pytest.mark.parametrize(("query", "said"), REFUSED.values(), ids=REFUSED)
def test_plans_that_get_around_the_release_are_refused(films, query, said):
    with pytest.raises(GateError, match=said) as refused:
        guard(films.sql(query), raw=["review"])
    assert refused.value.exit_code == 4
    assert "good film" not in str(refused.value)


def test_a_field_of_a_struct_is_a_column_and_may_be_released(films, policy):
    with pytest.raises(GateError, match="unreleased, in column"):
        guard(films.table("films").select("doc"), raw=["text"])
    with pytest.raises(GateError, match="unreleased, in column"):
        guard(films.sql("SELECT doc.text FROM films"), raw=["text"])
    text = policy.model_copy(update={"column": "text"})
    register(films, "private_text", text, form=FORM)
    assert guard(films.sql("SELECT private_text(doc.text, id) AS r FROM films"), policy=text, id="id")
    with pytest.raises(GateError, match="no text column 'text'"):
        guard(films.sql("SELECT rel(doc.text, id) AS r FROM films"), raw="text", policy=policy, id="id")


PLANS = {
    "in a sub-query": "SELECT count(rel(t, id)) FROM (SELECT id, nullif(review, 'x') AS t FROM films)",
    "in a common table": "WITH c AS (SELECT id, nullif(review, 'x') t FROM films) SELECT rel(t, id) FROM c",
    "in a union": (
        "SELECT rel(t, id) FROM (SELECT id, nullif(review, 'x') AS t FROM films UNION ALL "
        "SELECT id, nullif(review, 'x') AS t FROM films)"
    ),
    "in a struct": "SELECT rel(s.t, id) FROM (SELECT id, struct(nullif(review, 'x') AS t) AS s FROM films)",
    "in a join": (
        "SELECT rel(t, f.id) FROM (SELECT id FROM films) f LEFT JOIN "
        "(SELECT id, nullif(review, 'x') AS t FROM films) g ON f.id = g.id"
    ),
    "in a lateral join": "SELECT rel(t, id) FROM films, LATERAL (SELECT nullif(review, 'x') AS t)",
    "in a choice of another column": (
        "SELECT rel(t, f.id) FROM (SELECT id, review AS t, doc.text AS d FROM films) f "
        "WHERE rel(IF(d LIKE '%bad%', t, ''), id) IS NOT NULL"
    ),
}


@pytest.mark.parametrize("query", PLANS.values(), ids=PLANS)
def test_nulls_are_followed_through_each_step(films, policy, query):
    with pytest.raises(GateError, match="may be null although its source is not"):
        guard(films.sql(query), policy=policy, id="id", raw="text")


def test_frames_of_the_api_are_followed_like_sql(films):
    from pyspark.sql import functions as f

    frame = films.table("films")
    released = frame.withColumn("review", f.call_function("rel", "review", "id")).drop("doc")
    assert guard(released, raw=["review"]) is released
    with pytest.raises(GateError, match="unreleased, in column"):
        guard(frame.withColumn("copy", f.col("review")).drop("review"), raw=["review"])
    with pytest.raises(GateError, match="a step of kind MapInArrow, which cannot be followed"):
        guard(
            frame.select("id", "review").mapInArrow(lambda batches: batches, "id string, review string"), raw=["review"]
        )
    assert guard(released.mapInArrow(lambda batches: batches, "id string, review string"), raw=["review"])
    with pytest.raises(GateError, match="decides which rows are distinct"):
        guard(frame.select("id", "review").distinct(), raw=["review"])


def test_names_that_are_taken_over_or_lacking_and_spark_connect_are_refused(films):
    from pyspark.sql.functions import pandas_udf

    register_again = "private_for_a_while"
    films.udf.register(register_again, pandas_udf(lambda text, id: text, "string"))  # noqa: A006
    with pytest.raises(GateError, match="unreleased, in column"):
        guard(films.sql(f"SELECT {register_again}(review, id) AS x FROM films"), raw=["review"])
    with pytest.raises(PolicyError, match="no source of the plan has a column 'body'"):
        guard(films.table("renamed"), raw=["body"])

    class ConnectFrame:
        def __getattr__(self, name):
            raise AttributeError(name)

    with pytest.raises(PolicyError, match="Spark Connect shows its client no analyzed plan"):
        guard(ConnectFrame(), raw=["review"])


@pytest.mark.parametrize("arguments", ["review, cast(n AS double)", "id => n > 1, text => review", "review, id, n / 2"])
def test_ids_of_a_type_that_ids_cannot_have_are_refused_in_the_plan(films, policy, arguments):
    if "=>" in arguments and not ARROW:
        pytest.skip("Spark 3.5 knows named arguments for its own functions alone")
    with pytest.raises(InputError, match=r"ids have the type (double|boolean), which is not allowed"):
        guard(films.sql(f"SELECT rel({arguments}) AS r FROM films"), policy=policy, id="id")
