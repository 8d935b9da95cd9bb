"""The check to put downstream: all text of a wider table is released for its row, or declared public."""

import json

import polars as pl
import pytest

from dptext_etl.errors import GateError
from tests.later import later

gx = later("great_expectations")

dptx = later("dptext_etl.checks.great_expectations.expectations")

col = pl.col


def raw(bench, column="review"):
    return bench.raw.select("id", comment=column)


PASSES = {
    "the release itself": (lambda table, _: table, ()),
    "renamed": (lambda table, _: table.select("id", body="review", other="note"), ()),
    "joined to itself": (lambda table, _: table.join(table.select("id", again="note"), on="id"), ()),
    "rows repeated and excluded": (lambda table, _: pl.concat([table.head(50), table.head(10)]), ()),
    "numbers more": (lambda table, _: table.with_columns(length=col("review").str.len_chars()), ()),
    "nested": (lambda table, _: table.select("id", doc=pl.struct("review", many=pl.concat_list("note", "review"))), ()),
    "exploded": (
        lambda table, _: table.select("id", text=pl.concat_list("review", "note")).explode("text", keep_nulls=True),
        (),
    ),
    "as categories": (lambda table, _: table.with_columns(col("note").cast(pl.Categorical)), ()),
    "with a city": (lambda table, _: table.with_columns(city=pl.lit("Graz")), ["city"]),
    "with a city inside": (
        lambda table, _: table.with_columns(place=pl.struct(city=pl.lit("Graz"), zip=pl.lit(8010))),
        "place.city",
    ),
    "unmatched rows": (lambda table, _: table.select("id").join(table.head(9), on="id", how="left"), ()),
}
FAILS = {
    "raw text joined under another name": lambda table, bench: table.join(raw(bench), on="id"),
    "raw text in a struct": lambda table, bench: table.join(raw(bench), on="id").with_columns(pl.struct("comment")),
    "raw text in a list": lambda table, bench: table.join(raw(bench), on="id").with_columns(
        pl.concat_list("review", "comment").alias("comment")
    ),
    "raw text in a list of structs": lambda table, bench: (
        table.join(raw(bench), on="id").group_by("id").agg(pl.struct("comment").alias("turns"))
    ),
    "raw text as bytes": lambda table, bench: table.join(raw(bench), on="id").with_columns(
        col("comment").cast(pl.Binary)
    ),
    "raw text as categories": lambda table, bench: table.join(raw(bench), on="id").with_columns(
        col("comment").cast(pl.Categorical)
    ),
    "raw text in the released column": lambda table, bench: table.drop("review").join(
        raw(bench).rename({"comment": "review"}), on="id"
    ),
    "a column that was computed": lambda table, _: table.with_columns(upper=col("note").str.to_uppercase()),
    "releases of other rows": lambda table, _: table.with_columns(col("note").shift(1)),
    "other ids": lambda table, _: table.with_columns(col("id") + 5000),
    "no ids": lambda table, _: table.drop("id"),
    "ids that are texts": lambda table, bench: table.select(id=bench.raw["review"].drop_nulls().head(table.height)),
    "a city that no one declared": lambda table, _: table.with_columns(city=pl.lit("Graz")),
    "one cell": lambda table, _: table.with_columns(
        pl.when(col("id") == col("id").max()).then(pl.lit("my name is")).otherwise("note").alias("note")
    ),
}


@pytest.mark.parametrize(("change", "public"), PASSES.values(), ids=PASSES)
def test_tables_of_released_and_public_text_pass(bench, change, public):
    record = dptx.validate_downstream(change(bench.published, bench), bench.policy, public)
    record.require()
    assert record.evaluated == 1


@pytest.mark.parametrize("change", FAILS.values(), ids=FAILS)
def test_text_that_nobody_released_is_stopped_and_not_quoted(bench, change):
    record = dptx.validate_downstream(change(bench.published, bench), bench.policy, ["else"])
    assert not record.success
    assert not any(item.errored for item in record.outcomes)
    with pytest.raises(GateError, match="did not hold") as caught:
        record.require()
    said = (str(caught.value) + json.dumps(record.as_dict())).lower()
    assert "unreleased_in_column_" in said
    assert not any(word in said for word in (bench.sentinel.lower(), "graz", "my name is", "comment", "upper"))


def test_a_text_column_of_the_policy_cannot_be_declared_public(bench):
    change = FAILS["raw text in the released column"]
    assert not dptx.validate_downstream(change(bench.published, bench), bench.policy, ["review"]).success


def test_the_expectation_is_stored_and_read_like_any_other(bench):
    made = dptx.ExpectOnlyReleasedText(policy=bench.policy, public=["city"])
    again = dptx.ExpectOnlyReleasedText(**made.configuration.kwargs)
    assert again.configuration.kwargs == made.configuration.kwargs
    assert json.loads(made.public) == ["city"]
    assert dptx.ExpectOnlyReleasedText(policy=bench.policy, public="city").public == made.public


def test_every_expectation_says_what_it_does_not_see():
    from dptext_etl.checks.great_expectations import expectations

    ours = [item for name, item in vars(expectations).items() if name.startswith("Expect") and isinstance(item, type)]
    ours = [item for item in ours if item.__module__ == expectations.__name__]
    assert len(ours) == 2
    assert not [item.__name__ for item in ours if "Not seen:" not in item.__doc__]


def test_tables_of_a_database_are_judged_alike(bench, tmp_path):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    url = f"sqlite:///{tmp_path / 'tables.db'}"
    bench.published.to_pandas().to_sql("fine", sqlalchemy.create_engine(url), index=False)
    leaking = FAILS["raw text joined under another name"](bench.published, bench)
    leaking.to_pandas().to_sql("leaking", sqlalchemy.create_engine(url), index=False)
    assert dptx.validate_table(url, "fine", bench.policy, suite=dptx.downstream_suite(bench.policy)).success
    found = dptx.validate_table(url, "leaking", bench.policy, suite=dptx.downstream_suite(bench.policy))
    assert [item.counts["unreleased_in_column_5"] for item in found.outcomes] == [leaking["comment"].count()]
