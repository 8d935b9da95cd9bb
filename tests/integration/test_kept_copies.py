"""A column that would be published unchanged, and holds the raw texts of its rows, is refused before any charge."""

import polars as pl
import pytest

from dptext_etl.checks.published import check_published
from dptext_etl.engines.spark.frames import examine, open_table
from dptext_etl.errors import GateError, PolicyError
from dptext_etl.runner import plan
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.source import examine as examine_module
from dptext_etl.runner.source.examine import copied_over, count_copied

from ..refusals import same_refusal

LONG = pl.col("review")
"""Every review has more than 20 characters; half of the notes have."""
OTHER = pl.lit("something that no review says")
NOBODY = pl.lit(None, pl.String)
FORMS = {
    "a copy": LONG,
    "a part": LONG.str.slice(5, 20),
    "in upper case": LONG.str.to_uppercase(),
    "more than it": pl.concat_str(pl.lit("From: a person. "), LONG),
    "bytes": LONG.cast(pl.Binary),
    "an enum": LONG.cast(pl.Categorical),
    "a list": pl.concat_list(OTHER, NOBODY, LONG),
    "an array": pl.concat_list(OTHER, LONG).list.to_array(2),
    "a struct": pl.struct(n=1, deep=pl.struct(x=OTHER, y=LONG)),
    "structs in a list": pl.concat_list(pl.struct(x=OTHER), pl.struct(x=LONG)),
    "another column": pl.when(pl.col("note").str.len_chars() >= 20).then("note"),
}
SPARK = ("structs in a list", "a copy", "bytes", "a list", "a struct", "another column")
"""Forms that Spark reads from Parquet files as they are written; a part is the same to it as a copy."""


def with_copy(frame, form):
    return frame.with_columns(FORMS[form].alias("body"))


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_copy_is_refused_before_any_charge(make_job, reviews, form):
    job = make_job(frame=with_copy(reviews(), form), keep=["stars", "body"])
    refused = same_refusal(job, {}, PolicyError)
    message = "the column 'body' holds raw texts of the rows, and would be published unchanged; no budget used"
    assert (refused.message, refused.fields) == (message, {"columns": ["body"]})  # no count: it depends on texts
    assert not (job.folder / "ledger.db").exists()
    assert not (job.folder / "published").exists()
    assert job.run(keep_copies=["body"]).published_rows == 240


def test_ids_are_compared_if_they_are_published(make_job, reviews):
    frame = reviews(60).with_columns(id=pl.concat_str("id", pl.lit(" "), LONG))
    job = make_job(frame=frame, unit="record", subject=None)
    with pytest.raises(PolicyError, match=r'write ids = "keyed"'):
        job.run()
    assert job.run(ids="keyed").published_rows == 60
    assert make_job("other", frame=frame, unit="record", subject=None, keep_copies=["id"]).run().published_rows == 60


def few(reviews, copied, compared, rows=240):
    """Rows, a few of which have a long string, and fewer a copy."""
    place = pl.int_range(pl.len())
    cell = pl.when(place < copied).then(LONG).when(place < compared).then(OTHER).otherwise(pl.lit("short"))
    return reviews(rows).with_columns(body=cell)


@pytest.mark.parametrize(
    ("copied", "compared", "refused"), [(1, 1, False), (2, 2, True), (2, 200, True), (2, 201, False), (3, 240, True)]
)
def test_the_share_is_of_rows_with_long_strings(reviews, copied, compared, refused):
    names = copied_over([count_copied(few(reviews, copied, compared), ["body"], ["review", "note"])])
    assert names == (("body",) if refused else ())


def test_counts_of_parts_of_a_table_add_up(reviews):
    frame = few(reviews, 2, 200)
    parts = [count_copied(frame.slice(start, 7), ["body"], ["review"]) for start in range(0, 240, 7)]
    assert copied_over(parts) == ("body",)


def test_other_columns_pass(make_job, reviews):
    frame = reviews(60).with_columns(
        short=LONG.str.slice(0, 19), other=OTHER, shifted=LONG.shift(1), stars=pl.col("stars"), none=NOBODY
    )
    job = make_job(frame=frame, keep=["short", "other", "shifted", "stars", "none"])
    assert job.run().published_rows == 60


def test_published_values_are_compared(make_job, reviews):
    frame = reviews(60).with_columns(body=LONG)
    assert make_job(frame=frame, keep=[{"column": "body", "top": ["public"]}]).run().published_rows == 60


@pytest.mark.parametrize("suffix", [".csv", ".ndjson"])
def test_other_files(make_job, reviews, suffix):
    job = make_job(frame=reviews(60).with_columns(body=LONG), suffix=suffix, keep=["body"])
    with pytest.raises(PolicyError, match="'body'"):
        job.run()


def test_texts_are_read_only_if_another_column_has_long_strings(make_job, reviews, monkeypatch):
    counted = []
    monkeypatch.setattr(examine_module, "count_copied", lambda frame, *_: counted.append(frame.height) or {})
    job = make_job(frame=reviews(60).with_columns(city=pl.lit("Boston"), title=OTHER))
    plan(job.policy(keep=["stars", "city"]))
    assert not counted
    plan(job.policy(keep=["stars", "city", "title"]))
    assert counted == [60]


def test_a_policy_accepts_only_published_columns(job):
    with pytest.raises(PolicyError, match="keep_copies names secret"):
        job.policy(keep_copies=["secret"])
    assert "keep_copies" not in job.policy().model_dump()


@pytest.mark.parametrize("form", ["a copy", "a list", "structs in a list", "another column"])
def test_gates_compare_kept_columns_with_identities_of_the_ledger(make_job, reviews, monkeypatch, form):
    """As if the column had been replaced on its way to publication."""
    job = make_job(frame=with_copy(reviews(), form), keep=["stars", "body"])
    monkeypatch.setattr(examine_module, "copied_columns", lambda *_: ())
    with pytest.raises(GateError, match="kept columns hold raw texts of their rows: 'body'") as failed:
        job.run()
    assert failed.value.fields["failed"] == ["rows_ledgered"]
    assert job.run(release="accepted", keep_copies=["body"]).published_rows == 240


def test_gates_find_no_part_of_a_text_and_pass_few_copies(make_job, reviews, monkeypatch):
    monkeypatch.setattr(examine_module, "copied_columns", lambda *_: ())
    frame = few(reviews, 2, 201).with_columns(part=LONG.str.slice(1))
    job = make_job(frame=frame, keep=["body", "part"])
    assert job.run().published_rows == 240
    copied = pl.read_parquet(job.folder / "raw.parquet").select("id", part="review")
    edited = job.published().drop("part").join(copied, on="id").select(job.published().columns)
    verdicts = {item.name: item for item in check_published(edited, job.policy())}
    assert {name for name, item in verdicts.items() if not item.passed} == {"rows_ledgered"}
    assert verdicts["rows_ledgered"].counts["copied_columns"] == 1


@pytest.mark.thorough
@pytest.mark.parametrize("form", SPARK)
def test_spark_finds_the_same(spark, make_job, reviews, form):
    job = make_job(form, frame=with_copy(reviews(60), form), keep=["stars", "body"])
    policy, layout = job.policy(), Layout.of(job.policy(), None)
    frame = spark.read.parquet(str(job.folder / "raw.parquet")).repartition(3)
    assert examine(open_table(frame, policy, layout), policy, layout).copied == ("body",)
    accepted = job.policy(keep_copies=["body"])
    assert examine(open_table(frame, accepted, layout), accepted, layout).copied == ()


def test_a_run_on_spark_is_refused_before_any_charge(spark, make_job, reviews):
    from dptext_etl.spark import run_frame

    job = make_job(frame=with_copy(reviews(60), "structs in a list"), keep=["body"])
    with pytest.raises(PolicyError, match="the column 'body' holds raw texts of the rows"):
        run_frame(spark.read.parquet(str(job.folder / "raw.parquet")).repartition(3), job.policy())
    assert not (job.folder / "ledger.db").exists()


def test_gates_of_spark_compare_kept_columns(spark, make_job, reviews, monkeypatch):
    from dptext_etl.spark import run_frame

    job = make_job(frame=with_copy(reviews(20), "structs in a list"), keep=["body"])
    monkeypatch.setattr("dptext_etl.engines.spark.frames.copied_over", lambda _: ())
    with pytest.raises(GateError, match="kept columns hold raw texts of their rows: 'body'"):
        run_frame(spark.read.parquet(str(job.folder / "raw.parquet")), job.policy())
