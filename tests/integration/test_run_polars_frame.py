"""A run over a Polars frame releases what a run over its file does; a policy names ids and columns of lazy frames."""

import polars as pl
import pytest

import dptext_etl.polars
from dptext_etl import ColumnPolicy, load
from dptext_etl.errors import GateError, InputError, PolicyError
from dptext_etl.polars import guard, privatize, released, run_frame

col = pl.col


def test_a_run_over_a_frame_is_the_run_over_its_file(make_job, reviews):
    file, frame = make_job("file", frame=reviews(40)), make_job("frame", frame=reviews(40))
    first = file.run()
    policy = frame.policy(source=str(frame.folder / "nothing here.parquet"))
    second = run_frame(reviews(40).lazy(), policy)
    assert second.rows == first.rows
    assert second.spend == first.spend
    mine, theirs = frame.files(), file.files()
    parts = [name for name in theirs if name.endswith(".parquet")]
    assert parts
    assert all(mine[name] == theirs[name] for name in parts)
    assert frame.charged() == file.charged()
    again = run_frame(reviews(60).filter(col("id") < "r00050"), policy)
    assert (again.rows["new"], again.rows["replayed"], again.changed) == (10, 40, True)
    assert released(again.published).collect().height == 50


def test_a_frame_of_other_names_and_types_is_refused_before_anything_is_charged(job, reviews):
    frame, policy = reviews(40), job.policy()
    summary = run_frame(frame.rename({"id": "key"}).with_columns(col("note").cast(pl.Categorical)), policy, id="key")
    assert released(summary.published).collect_schema().names()[0] == "key"
    for wrong, said in (
        (frame.drop("note"), "has no column 'note'"),
        (frame.with_columns(note=pl.lit(7)), "text column 'note' must hold strings"),
        (frame.with_columns(id=pl.lit("r00001")), "occurs more than once"),
    ):
        with pytest.raises(InputError, match=said):
            run_frame(wrong, policy.model_copy(update={"release": "other"}))
    with pytest.raises(PolicyError, match="names no column"):
        run_frame(frame, policy.column_policy("note").model_copy(update={"column": None}), id="id")


def test_a_policy_names_ids_and_columns_of_expressions(job, reviews):
    policy, frame = job.policy(), reviews(40)
    out = frame.lazy().dptext.privatize(policy).collect()
    run_frame(frame, policy)
    published = released(policy.sink).collect()
    assert out.select(published.columns).equals(published)
    assert frame.dptext.privatize(policy, spend=True)["note"].dtype == dptext_etl.polars.SPEND
    alone = policy.column_policy("note")
    assert frame.select(privatize("note", alone, id="id"))["note"].equals(out["note"])
    assert frame.lazy().select(privatize(col("note"), policy, id=col("id"))).collect()["note"].equals(out["note"])
    with pytest.raises(PolicyError, match="names no id column"):
        frame.dptext.privatize(alone)


@pytest.mark.parametrize("name", ["custext", "madlib"], ids=["plugin", "batches"])
def test_a_column_of_another_type_fails_when_the_schema_is_known(name, monkeypatch):
    monkeypatch.setenv("DPTEXT_SECRET", "5a" * 32)
    mechanism = load(name).example()
    allow = mechanism.guarantee.disclosures
    policy = ColumnPolicy(
        dataset="d", column=None, release="r", key="env:DPTEXT_SECRET", mechanism=mechanism, allow=allow
    )
    lazy = pl.LazyFrame({"id": ["a"], "text": ["x"], "stars": [5], "mean": [0.5], "at": [b"x"]})
    for text, ids, said in (
        ("stars", "id", "holds strings; got int64"),
        ("at", "id", "holds strings; got"),
        ("text", "mean", "record ids of type float64 are not allowed"),
    ):
        plan = lazy.with_columns(privatize(text, policy, id=ids))
        with pytest.raises(pl.exceptions.ComputeError, match=said):
            plan.collect_schema()
    for ids in ("stars", "at", col("id").map_batches(lambda ids: ids)):
        assert lazy.select(privatize("text", policy, id=ids)).collect_schema() == {"text": pl.String}
    nothing = privatize(pl.lit(None).alias("text"), policy.model_copy(update={"column": "text"}), id="id")
    assert lazy.select(nothing).collect_schema() == {"text": pl.String}


def test_rows_are_dropped_where_the_text_is_null_if_the_policy_tells_that(job, reviews):
    policy, lazy = job.policy(), reviews(40).lazy()
    for chosen in (
        lazy.drop_nulls("note"),
        lazy.select("id", "review", "note").drop_nulls(),
        lazy.filter(col("id") < "r00030", ~col("note").is_null() | (col("stars") > 1)),
    ):
        plan = chosen.dptext.privatize(policy).select("id", "note")
        assert 0 < guard(plan, policy=policy).collect().height < 40
    hidden = load("surrogate").example().model_copy(update={"null_as_empty": True})
    quiet = policy.column_policy("note").model_copy(update={"mechanism": hidden})
    for refused, by in (
        (lazy.drop_nulls("note"), {"policy": quiet, "id": "id"}),  # it says of no row whether it is null
        (lazy.drop_nulls("note"), {"raw": "note"}),  # without a policy, nothing is disclosed
        (lazy.drop_nulls("secret"), {"policy": policy, "raw": "secret"}),
        (lazy.filter(col("note").str.to_integer(strict=False).is_null()), {"policy": policy}),
    ):
        with pytest.raises(GateError, match="decides which rows are kept"):
            guard(refused.select("id"), **by)
