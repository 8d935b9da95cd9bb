"""The guard on Polars plans: a release is the only way from a raw column to an output."""

import polars as pl
import pytest

import dptext_etl.polars
from dptext_etl.errors import GateError, PolicyError

from .guarded import FRAME, RAW, col, guard, release

pytestmark = pytest.mark.usefixtures("secret")
CLEAN = {
    "dropped": lambda lf: lf.drop("review"),
    "selected away": lambda lf: lf.select("id", "stars"),
    "other columns work": lambda lf: (
        lf.with_columns(twice=col("stars") * 2).filter(col("stars") > 1).sort("id").drop("review")
    ),
    "counted": lambda lf: lf.group_by("stars").agg(pl.len()),
    "joined next to": lambda lf: lf.join(lf.select("id", other="stars"), on="id").select("id", "other"),
    "overwritten": lambda lf: lf.with_columns(review=pl.lit("gone")),
    "unpivoted next to": lambda lf: lf.drop("review", "tags").unpivot(index="id"),
    "numbered": lambda lf: lf.drop("review").with_row_index(),
    "merged": lambda lf: (
        lf.drop("review").sort("id").merge_sorted(lf.drop("review").sort("id"), key="id").select("id", "stars")
    ),
    "exploded next to": lambda lf: lf.drop("review").explode("tags"),
}


def _extended():
    made = pl.Extension("held", pl.Struct({"review": pl.String}), None)
    return FRAME.select(s=pl.struct("review").ext.to(made))["s"]


LEAKS = {
    "as it is": lambda lf: lf,
    "renamed": lambda lf: lf.rename({"review": "q"}),
    "aliased": lambda lf: lf.select("id", x=col("review")),
    "made longer": lambda lf: lf.select(x=col("id") + " " + col("review")),
    "length": lambda lf: lf.select(x=col("review").str.len_chars()),
    "case": lambda lf: lf.select(x=col("review").str.to_uppercase().str.reverse()),
    "encoded": lambda lf: lf.select(x=col("review").str.encode("base64")),
    "in a struct": lambda lf: lf.select(s=pl.struct("id", "review")),
    "in a choice": lambda lf: lf.select(x=pl.when(col("review") == "good film").then(1).otherwise(0)),
    "in two steps": lambda lf: lf.with_columns(q=col("review")).drop("review").rename({"q": "z"}),
    "aggregated": lambda lf: lf.group_by("stars").agg(col("review").first()),
    "a window": lambda lf: lf.select(x=col("stars").sum().over("review")),
    "sorted by it": lambda lf: lf.select(x=col("stars").sort_by("review")),
    "joined in": lambda lf: lf.select("id").join(lf.select("id", x="review"), on="id"),
    "joined from the right": lambda lf: lf.select("id", x="review").join(lf.select("id"), on="id", how="right"),
    "joined twice": lambda lf: lf.join(lf, on="id").drop("review"),
    "stacked": lambda lf: pl.concat([lf.select("id"), lf.select(id="review")]),
    "side by side": lambda lf: pl.concat([lf.select("id"), lf.select("review")], how="horizontal"),
    "unpivoted": lambda lf: lf.drop("tags").unpivot(index="id", on=["review"]),
    "hashed": lambda lf: lf.select(x=col("review").hash()),
    "a series in the plan": lambda lf: lf.select("id", x=pl.lit(FRAME["review"])),
    "a struct series in the plan": lambda lf: lf.select("id", x=pl.lit(FRAME.select(s=pl.struct("review"))["s"])),
    "a list series in the plan": lambda lf: lf.select("id", x=pl.lit(FRAME["review"].implode())),
    "an extension series in the plan": lambda lf: lf.select("id", x=pl.lit(_extended())),
    "a series of replacements": lambda lf: lf.select("id", x=col("id").replace_strict(FRAME["id"], FRAME["review"])),
    "a series of some replacements": lambda lf: lf.select("id", x=col("id").replace(FRAME["id"], FRAME["review"])),
    "a series of members": lambda lf: lf.select("id", x=col("id").is_in(FRAME["review"].implode())),
    "a series that fills": lambda lf: lf.select("id", x=col("id").fill_null(FRAME["review"])),
}
CHOICES = {
    "filtered": lambda lf: lf.filter(col("review").str.contains("good")).select("id"),
    "filtered later": lambda lf: (
        lf.with_columns(x=col("review").str.len_chars()).head(100).filter(col("x") > 3).select("id")
    ),
    "ordered": lambda lf: lf.sort("review").select("id"),
    "distinct": lambda lf: lf.unique(subset=["review"]).select("id"),
    "joined on": lambda lf: lf.join(lf, on="review").select("id"),
    "merged": lambda lf: lf.merge_sorted(lf, key="review").select("id"),
    "joined to the nearest": lambda lf: (
        lf.sort("stars").join_asof(lf.sort("stars"), on="stars", by="review", check_sortedness=False).select("id")
    ),
    "filtered by a series": lambda lf: lf.filter(col("id").is_in(FRAME["review"].implode())).select("id"),
    "grouped": lambda lf: lf.group_by("review").agg(pl.len()).select("len"),
}
OPAQUE = {
    "a Python function": lambda lf: lf.select(x=col("review").map_elements(len, return_dtype=pl.Int64)),
    "a function of frames": lambda lf: lf.map_batches(lambda frame: frame),
    "an evaluation of lists": lambda lf: lf.select(x=pl.concat_list("review").list.eval(pl.element())),
}


@pytest.mark.parametrize("name", CLEAN)
def test_plans_without_raw_text_pass(source, name):
    plan = CLEAN[name](source)
    assert dptext_etl.polars.guard(plan, raw=RAW) is plan
    plan.collect()


@pytest.mark.parametrize("name", LEAKS | CHOICES | OPAQUE)
def test_any_other_use_of_raw_text_is_refused(lf, name):
    plan = (LEAKS | CHOICES | OPAQUE)[name](lf)
    plan.collect_schema()
    with pytest.raises(
        GateError, match=r"raw text of '.*' (reaches the output unreleased, in column|is used in)"
    ) as caught:
        dptext_etl.polars.guard(plan, raw=RAW)
    assert caught.value.exit_code == 4
    assert "prepare the text in the source" in str(caught.value)


@pytest.mark.parametrize("name", ["as it is", "length", "joined twice", "filtered"])
def test_raw_text_of_every_source_is_refused(source, name):
    with pytest.raises(GateError, match="raw text of 'review'"):
        dptext_etl.polars.guard((LEAKS | CHOICES)[name](source), raw=RAW)


def test_a_column_that_a_join_renames_is_followed(lf):
    """The right side has a column of the name that Polars would give to its key if it kept both."""
    other = lf.select("id", id_right="review")
    with pytest.raises(GateError, match="unreleased, in column 2"):
        dptext_etl.polars.guard(lf.select("id").join(other, on="id"), raw=RAW)


def test_raw_text_beside_a_proper_release_is_refused(source, lf, policy):
    """The ways that were found: another source of the same text, joined or put below the released rows."""
    released = lf.select("id", release(policy))
    for plan in (
        released.join(source.select("id", comment="review"), on="id"),
        pl.concat([released, source.select("id", "review")]),
        pl.concat([released, source.select(other="review")], how="horizontal"),
        pl.SQLContext(a=released, b=source).execute("select a.id, b.review as c from a join b on a.id = b.id"),
    ):
        with pytest.raises(GateError, match="unreleased, in column"):
            guard(plan, policy)


def test_fields_of_structs_and_the_storage_of_extensions_are_columns():
    nested = pl.LazyFrame({"id": ["a"], "doc": [{"review": "good film"}], "many": [[{"review": "x"}]]})
    for plan in (nested.select("doc"), nested.select(x=col("doc").struct.field("review")), nested.select("many")):
        with pytest.raises(GateError, match=r"unreleased, in column|is used in"):
            dptext_etl.polars.guard(plan, raw=RAW)
    dptext_etl.polars.guard(nested.select("id"), raw=RAW)
    nested = FRAME.select("id", doc=_extended()).lazy()
    for plan in (nested, nested.select(x=col("doc").ext.storage()), nested.select(pl.concat_list("doc"))):
        with pytest.raises(GateError, match=r"unreleased, in column|is used in"):
            dptext_etl.polars.guard(plan, raw=RAW)
    dptext_etl.polars.guard(nested.select("id"), raw=RAW)


def test_a_released_column_is_followed_no_further(lf, any_policy):
    for plan in (
        lf.with_columns(release(any_policy)),
        lf.with_columns(release(any_policy)).filter(col("review").str.contains("good")).sort("review"),
        lf.select("id", text=release(any_policy)).group_by("text").agg(pl.len()),
        lf.with_columns(release(any_policy, spend=True)).select(col("review").struct.field("text")),
        lf.dptext.privatize(any_policy, id="id"),
        pl.concat([lf.with_columns(release(any_policy)), lf.with_columns(release(any_policy))]),
        lf.with_columns(release(any_policy)).unique(),
        lf.with_columns(release(any_policy)).map_batches(lambda frame: frame),
        lf.with_columns(release(any_policy)).set_sorted("id"),
        lf.select(release(any_policy, spend=True)).unnest("review"),
        lf.with_columns(release(any_policy), mean=pl.col("stars").rolling_mean(2)),
    ):
        guard(plan, any_policy)
        dptext_etl.polars.guard(plan, raw=RAW)
    with pytest.raises(GateError, match="unreleased, in column 5"):
        guard(lf.with_columns(release(any_policy), copy="review"), any_policy)
    with pytest.raises(GateError, match="is used in"):
        guard(lf.filter(col("review") != "").with_columns(release(any_policy)), any_policy)


def test_memory_sql_and_unknown_steps_are_followed_or_refused(policy, lf, monkeypatch):
    frame = FRAME.lazy()
    guard(frame.with_columns(release(policy)), policy)
    query = pl.SQLContext(t=frame).execute("select id, review as r from t where stars > 1")
    with pytest.raises(GateError, match="unreleased, in column"):
        guard(query, policy)
    guard(pl.SQLContext(t=frame).execute("select id from t"), policy)
    monkeypatch.setattr("dptext_etl.polars.namespace._Walk._content", lambda *_: {}[FRAME["review"][0]])
    with pytest.raises(GateError, match="a form that the guard does not know") as caught:
        dptext_etl.polars.guard(lf.select("id"), raw=RAW)
    assert "good film" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_names_that_are_mistyped_or_missing_are_said(lf, tmp_path, policy):
    for raw in (["reveiw"], "reveiw"):
        with pytest.raises(PolicyError, match="no source of the plan has a column 'reveiw'"):
            dptext_etl.polars.guard(lf.drop("review"), raw=raw)
    with pytest.raises(PolicyError, match="knows no raw column"):
        dptext_etl.polars.guard(lf)
    with pytest.raises(GateError, match="unreleased, in column"):
        dptext_etl.polars.guard(lf, raw="review")
    guard(lf.with_columns(release(policy)).sink_parquet(tmp_path / "out.parquet", lazy=True), policy)
    with pytest.raises(GateError, match="unreleased"):
        guard(lf.sink_parquet(tmp_path / "out.parquet", lazy=True), policy)
    plan = lf.with_columns(release(policy, id=col("review").str.slice(0, 3)))
    with pytest.raises(GateError, match="is used in an expression"):
        guard(plan, policy)
