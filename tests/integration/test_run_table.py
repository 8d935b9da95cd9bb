"""A raw table or frame becomes a published one: replay, keep, steps, reports, and expressions with the same draws."""

import hashlib
import json
import pickle

import polars as pl
import pytest

import dptext_etl.polars
from dptext_etl import ColumnPolicy, load, run
from dptext_etl.checks.text_counts import SAMPLE_ROWS
from dptext_etl.engines import stage
from dptext_etl.errors import GateError, InputError, PolicyError
from dptext_etl.polars import guard, privatize, released, run_frame
from dptext_etl.runner import check, publish

from ..review_jobs import STAGED


def test_the_summary_counts_the_manifest_fits_and_progress_is_told(job, reviews):
    seen, raw = [], reviews()
    summary = run(job.policy(), progress=seen.append)
    none = dict.fromkeys(("already_published", "resumed", "replayed", "quarantined"), 0)
    assert summary.rows == {"read": 240, "new": 240, "released": 240, "null": raw["note"].null_count(), **none}
    words = raw.select(pl.col("review", "note").str.count_matches(r"\w+").fill_null(0)).sum_horizontal()
    assert (summary.draws, summary.spend["sum_over_records"]["eps_pure"]) == (words.sum(), 2.0 * words.sum())
    assert (summary.spend["largest_record"]["eps_pure"], summary.remaining["units"]) == (2.0 * words.max(), 40)
    assert {gate["name"] for gate in summary.gates if gate["passed"]} >= {"canary_text_absent", "rows_ledgered"}
    assert (summary.version, summary.changed) == (1, True)
    assert json.loads(json.dumps(summary.as_dict(), allow_nan=False)) == summary.as_dict()
    text = (job.folder / "published.manifest.json").read_bytes()
    manifest = json.loads(text)
    assert hashlib.sha256(text).hexdigest() == summary.manifest
    assert manifest["rows"] == 240
    for part in manifest["parts"]:
        path = job.folder / "published.versions" / part["path"]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == part["sha256"]
        assert pl.read_parquet(path).height == part["rows"]
    assert [item["name"] for item in manifest["columns"]] == ["review", "note"]
    assert manifest["columns"][0]["disclosures"] == ["cluster", "length", "nullness"]
    ends = {report.phase: report for report in seen}
    assert list(ends) == ["ids", "release", "gates", "publish"]
    assert all(report.ended for report in ends.values())
    assert [report.rows_done for report in ends.values()] == [240, 240, 240 + 2 * 8, 240]
    assert ([report.share for report in seen], seen[-1].share) == (sorted(report.share for report in seen), 1)


def test_steps_one_by_one_and_through_a_pickle(make_job):
    one, two = make_job("one"), make_job("two")
    one.run()
    staged = pickle.loads(pickle.dumps(stage(two.policy())))
    verdicts = check(staged)
    published = publish(staged, verdicts)
    assert (one.files(), published.version) == (two.files(), 1)
    with pytest.raises(InputError, match="staged"):
        publish(staged, verdicts)


def test_without_verdicts_nothing_is_published(job):
    staged = stage(job.policy())
    with pytest.raises(GateError, match="no gate"):
        publish(staged, ())
    assert not (job.folder / "published.manifest.json").exists()


def test_publish_false_stays_staged_and_can_be_published_later(job):
    summary = job.run(publish=False)
    assert summary.version is None
    assert summary.published is None
    assert "publish = false" in summary.notes[0]
    assert not (job.folder / "published").exists()
    assert not list((job.folder / "published.versions").iterdir())
    charged = job.charged()
    later = job.run()
    assert (later.version, later.rows["new"], job.charged()) == (1, 0, charged)


def test_a_faithful_mechanism_stays_staged(job, sentinel):
    column = job.policy().columns[0].model_dump()
    allow = ["cluster", "punct", "numbers", "oov", "case"]
    faithful = {**column, "mechanism": {**column["mechanism"], "mode": "faithful"}, "allow": allow}
    with pytest.raises(PolicyError, match="publish = false"):
        job.policy(column=[faithful])
    summary = job.run(column=[faithful], publish=False)
    assert summary.version is None
    staged = pl.read_parquet(job.folder / STAGED / "*" / "*" / "shard-*.parquet")
    assert staged["review"].str.contains(sentinel).any()  # faithful keeps unknown words: that is why it stays inside


GATE = {"copy_gate_false_alarm": 1e-6, "cap": {"measure": "approx", "epsilon": 1e5, "delta": 0.1, "period": "2026"}}


@pytest.fixture
def large(job, reviews, save):
    save(reviews(rows=2 * SAMPLE_ROWS + 100), job.folder / "raw.parquet")
    return job


def reported(summary):
    return {(item["name"], item["message"].split("'")[1]): item for item in summary.reports}


def test_a_report_looks_at_a_sample_of_every_shard_and_says_so(large):
    found = reported(large.run(shard_rows=SAMPLE_ROWS + 50))
    report = found["copies_within_chance", "review"]
    assert report["counts"]["rows"] == 2 * SAMPLE_ROWS
    assert f"a sample: at most {SAMPLE_ROWS} of every shard" in report["message"]


@pytest.mark.parametrize("asked", [{"reports": ["copies"]}, GATE], ids=["asked for", "it decides"])
def test_all_rows_count_where_the_policy_asks_for_it_or_the_count_decides(large, asked):
    found = reported(large.run(shard_rows=SAMPLE_ROWS + 50, **asked))
    report = found["copies_within_chance", "review"]
    assert report["counts"]["rows"] == 2 * SAMPLE_ROWS + 100
    assert "sample" not in report["message"]


def test_what_is_released_does_not_depend_on_the_reports(make_job):
    jobs = [make_job("sampled"), make_job("all")]
    for job, asked in zip(jobs, ({}, {"reports": ["copies"]}), strict=True):
        job.run(**asked)
    assert jobs[0].files() == jobs[1].files()


col = pl.col


def test_a_run_over_a_frame_is_the_run_over_its_file(make_job, reviews):
    file, frame = make_job("file", frame=reviews(40)), make_job("frame", frame=reviews(40))
    first = file.run()
    policy = frame.policy(source=str(frame.folder / "nothing here.parquet"))
    second = run_frame(reviews(40).lazy(), policy)
    assert (second.rows, second.spend) == (first.rows, first.spend)
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


def test_rows_are_dropped_where_the_released_text_is_null(job, reviews):
    policy, lazy = job.policy(), reviews(40).lazy()
    plan = lazy.dptext.privatize(policy, select=True).drop_nulls("note")
    assert 0 < guard(plan, policy=policy).collect().height < 40
    for raw in (lazy.drop_nulls("note"), lazy.filter(col("note").str.to_integer(strict=False).is_null())):
        with pytest.raises(GateError, match="is used in an expression"):
            guard(raw.select("id"), policy=policy)
