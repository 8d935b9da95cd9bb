"""The guard on Polars plans: a release is the only way from a raw column to an output."""

import polars as pl
import pytest

import dptext_etl.polars
from dptext_etl import ColumnPolicy, available, load
from dptext_etl.errors import GateError, PolicyError

RAW = ["review"]
FRAME = pl.DataFrame({"id": ["a", "b"], "review": ["good film", "bad plot"], "stars": [5, 1], "tags": [["x"], ["y"]]})


@pytest.fixture
def lf(tmp_path):
    FRAME.write_parquet(tmp_path / "raw.parquet")
    return pl.scan_parquet(tmp_path / "raw.parquet")


@pytest.fixture(params=available())
def released(request, monkeypatch):
    monkeypatch.setenv("DPTEXT_SECRET", "5a" * 32)
    mechanism = load(request.param).example()
    allow = mechanism.guarantee.disclosures
    policy = ColumnPolicy(
        dataset="d", column="review", release="r", mechanism=mechanism, key="env:DPTEXT_SECRET", allow=allow
    )
    return lambda **options: pl.col("review").dptext.privatize(policy, id=pl.col("id"), **options)


col = pl.col
CLEAN = {
    "dropped": lambda lf: lf.drop("review"),
    "selected away": lambda lf: lf.select("id", "stars"),
    "other columns work": lambda lf: (
        lf.with_columns(twice=col("stars") * 2).filter(col("stars") > 1).sort("id").drop("review")
    ),
    "counted": lambda lf: lf.group_by("stars").agg(pl.len()),
    "joined beside": lambda lf: lf.join(lf.select("id", other="stars"), on="id").select("id", "other"),
    "overwritten": lambda lf: lf.with_columns(review=pl.lit("gone")),
    "unpivoted beside": lambda lf: lf.drop("review", "tags").unpivot(index="id"),
    "numbered": lambda lf: lf.drop("review").with_row_index(),
    "exploded beside": lambda lf: lf.drop("review").explode("tags"),
}
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
    "joined twice": lambda lf: lf.join(lf, on="id").drop("review"),
    "stacked": lambda lf: pl.concat([lf.select("id"), lf.select(id="review")]),
    "side by side": lambda lf: pl.concat([lf.select("id"), lf.select("review")], how="horizontal"),
    "unpivoted": lambda lf: lf.drop("tags").unpivot(index="id", on=["review"]),
    "hashed": lambda lf: lf.select(x=col("review").hash()),
}
CHOICES = {
    "filtered": lambda lf: lf.filter(col("review").str.contains("good")).select("id"),
    "filtered later": lambda lf: (
        lf.with_columns(x=col("review").str.len_chars()).head(100).filter(col("x") > 3).select("id")
    ),
    "ordered": lambda lf: lf.sort("review").select("id"),
    "distinct": lambda lf: lf.unique(subset=["review"]).select("id"),
    "joined on": lambda lf: lf.join(lf, on="review").select("id"),
    "grouped": lambda lf: lf.group_by("review").agg(pl.len()).select("len"),
}
OPAQUE = {
    "a Python function": lambda lf: lf.select(x=col("review").map_elements(len, return_dtype=pl.Int64)),
    "a function of frames": lambda lf: lf.map_batches(lambda frame: frame),
    "an evaluation of lists": lambda lf: lf.select(x=pl.concat_list("review").list.eval(pl.element())),
}


@pytest.mark.parametrize("name", CLEAN)
def test_plans_without_raw_text_pass(lf, name):
    plan = CLEAN[name](lf)
    assert dptext_etl.polars.guard(plan, raw=RAW) is plan
    plan.collect()


@pytest.mark.parametrize("name", LEAKS)
def test_raw_text_in_an_output_is_refused(lf, name):
    plan = LEAKS[name](lf)
    plan.collect()
    with pytest.raises(GateError, match="raw text reaches the output unreleased, in '") as caught:
        dptext_etl.polars.guard(plan, raw=RAW)
    assert caught.value.exit_code == 4
    assert "dptext.privatize" in str(caught.value)


@pytest.mark.parametrize("name", CHOICES)
def test_rows_that_raw_text_chooses_are_refused(lf, name):
    with pytest.raises(GateError, match=r"raw text.* decides"):
        dptext_etl.polars.guard(CHOICES[name](lf), raw=RAW)


@pytest.mark.parametrize("name", OPAQUE)
def test_what_cannot_be_followed_is_refused(lf, name):
    with pytest.raises(GateError, match=r"does not show|cannot be followed"):
        dptext_etl.polars.guard(OPAQUE[name](lf), raw=RAW)


def test_a_released_column_is_followed_no_further(lf, released):
    for plan in (
        lf.with_columns(released()),
        lf.with_columns(released()).filter(col("review").str.contains("good")).sort("review"),
        lf.select("id", text=released()).group_by("text").agg(pl.len()),
        lf.with_columns(released(spend=True)).select(col("review").struct.field("text")),
        lf.dptext.privatize(_policy_of(released), id="id"),
        pl.concat([lf.with_columns(released()), lf.with_columns(released())]),
    ):
        dptext_etl.polars.guard(plan, raw=RAW)
    with pytest.raises(GateError, match="unreleased, in 'copy'"):
        dptext_etl.polars.guard(lf.with_columns(released(), copy="review"), raw=RAW)
    with pytest.raises(GateError, match=r"raw text.* decides"):
        dptext_etl.polars.guard(lf.filter(col("review") != "").with_columns(released()), raw=RAW)


def _policy_of(released):
    return released.__closure__[0].cell_contents


def test_record_ids_are_no_raw_text(released, lf):
    policy = _policy_of(released)
    plan = lf.with_columns(col("review").dptext.privatize(policy, id=col("review").str.slice(0, 3)))
    with pytest.raises(GateError, match="enters a release as the record id"):
        dptext_etl.polars.guard(plan, raw=RAW)


def test_a_sink_is_an_output(lf, tmp_path, released):
    dptext_etl.polars.guard(lf.with_columns(released()).sink_parquet(tmp_path / "out.parquet", lazy=True), raw=RAW)
    with pytest.raises(GateError, match="unreleased"):
        dptext_etl.polars.guard(lf.sink_parquet(tmp_path / "out.parquet", lazy=True), raw=RAW)


def test_frames_in_memory_and_sql(released):
    frame = FRAME.lazy()
    dptext_etl.polars.guard(frame.with_columns(released()), raw=RAW)
    query = pl.SQLContext(t=frame).execute("select id, review as r from t where stars > 1")
    with pytest.raises(GateError, match="in 'r'"):
        dptext_etl.polars.guard(query, raw=RAW)
    dptext_etl.polars.guard(pl.SQLContext(t=frame).execute("select id from t"), raw=RAW)


def test_a_mistyped_name_is_said(lf):
    with pytest.raises(PolicyError, match="no source of the plan has a column 'reveiw'"):
        dptext_etl.polars.guard(lf.drop("review"), raw=["reveiw"])
