"""A run over a Spark frame releases what a run over the same rows releases, at the same charge."""

import datetime as dt
import json
import subprocess
import sys
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

from dptext_etl import ColumnPolicy
from dptext_etl.checks import canaries, find
from dptext_etl.checks.canaries import policy_tokens
from dptext_etl.engines.spark.session import read_source
from dptext_etl.errors import InputError
from dptext_etl.keys import resolve
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.runner import check, publish, scan_published
from dptext_etl.spark import run_frame
from dptext_etl.spark.spark_frame import stage_frame
from tests.quick import quick


def frame_of(spark, job, parts=3):
    return spark.read.parquet(str(job.folder / "raw.parquet")).repartition(parts)


def published(job, by="id"):
    return scan_published(str(job.folder / "published")).collect().sort(by)


def used(job):
    with job.ledger() as ledger:
        assert ledger.verify().ok
        return ledger.remaining(Scope.of(job.policy())).used


def test_the_release_and_the_charge_are_those_of_a_run(spark, make_job):
    job, other = make_job("spark"), make_job("polars")
    expected, seen = other.run(), []
    summary = run_frame(frame_of(spark, job), job.policy(), progress=seen.append)
    assert_frame_equal(published(job), published(other))
    assert used(job) == used(other)
    release = [report for report in seen if report.phase == "release"]
    assert [report.rows_done for report in release] == sorted(report.rows_done for report in release)
    assert (release[0].rows_done, release[-1].rows_done, release[-1].rows_total) == (0, 240, 240)
    assert seen[-1].phase == "publish"
    assert (summary.rows, summary.draws, summary.spend) == (expected.rows, expected.draws, expected.spend)
    assert [gate["name"] for gate in summary.gates] == [gate["name"] for gate in expected.gates]
    assert summary.version == 1
    assert json.loads(json.dumps(summary.as_dict(), allow_nan=False)) == summary.as_dict()


@pytest.mark.thorough
def test_a_run_on_spark_over_what_another_engine_published_makes_no_new_version(spark, job):
    """Order is not part of a release: rows that are published with these texts are not published again."""
    first = job.run()
    before = published(job)
    again = run_frame(frame_of(spark, job), job.policy())
    assert (again.changed, again.version, again.manifest) == (False, 1, first.manifest)
    assert (again.rows["new"], again.rows["replayed"]) == (0, 240)
    assert_frame_equal(published(job), before)


@pytest.mark.thorough
def test_spellings_of_a_person_share_a_budget_and_a_shard_as_in_a_run(spark, make_job, reviews):
    """With a cap that is too small for all, the same records fit, so all spellings are judged together, in order."""
    spelled = ["Zo\u00eb@x", "zoe\u0308@X ", "STRASSE", "stra\u00dfe"] * 15
    frame = reviews(60).with_columns(user_id=pl.Series(spelled))
    terms = {"normalize": ["nfc", "casefold", "strip"], "min_released": 0.0, "shard_rows": 20}
    terms["cap"] = {"measure": "pure", "epsilon": 200.0, "period": "2026"}
    job, other = (make_job(name, frame=frame, **terms) for name in ("spark", "polars"))
    expected = other.run()
    summary = run_frame(frame_of(spark, job), job.policy())
    assert 0 < summary.rows["quarantined"] < 60
    assert summary.rows == expected.rows
    assert summary.table["selection"] == expected.table["selection"]
    one, two = (next((made.folder / "published.staging").rglob("texts.txt")).read_text() for made in (job, other))
    assert one == two != ""
    assert_frame_equal(published(job), published(other))
    assert used(job) == used(other)
    with job.ledger() as ledger:
        assert ledger.remaining(Scope.of(job.policy())).units == 2


@pytest.mark.thorough
def test_a_run_in_one_shard_plants_several_sets_of_canary_rows(spark, job, monkeypatch):
    monkeypatch.setattr(canaries, "SET_ROWS", 100)
    staged = stage_frame(frame_of(spark, job), job.policy(shard_rows=300))
    assert len(staged.shards) == 1
    assert len(staged.canaries) == 3
    frame = pl.read_parquet(staged.parts[0])
    assert frame.filter("__dptext_canary").height == 8 * 3
    assert all(verdict.passed for verdict in check(staged))


@pytest.mark.thorough
def test_a_shard_holds_at_most_shard_rows_and_its_canaries(spark, job):
    staged = stage_frame(frame_of(spark, job), job.policy(shard_rows=30, cap=None))
    shards = [pl.read_parquet(part) for part in staged.parts]
    assert sum(shard.height for shard in shards) == 240 + 8 * len(staged.canaries)
    for shard, plan in zip(shards, staged.canaries, strict=True):
        assert shard.filter(~pl.col("__dptext_canary")).height <= 30
        assert set(shard.filter("__dptext_canary")["id"]) == set(plan.ids())


@pytest.mark.thorough
def test_again_and_otherwise_partitioned_costs_nothing_and_gives_the_same_bytes(spark, job):
    first = run_frame(frame_of(spark, job, 1), job.policy())
    before, charged = job.files(), job.charged()
    second = run_frame(frame_of(spark, job, 7).orderBy("stars"), job.policy())
    assert job.files() == before
    assert job.charged() == charged
    assert (second.rows["new"], second.rows["replayed"]) == (0, 240)
    assert (second.version, second.manifest, second.changed) == (first.version, first.manifest, False)


IDS = {
    "int": lambda i: i - 5,
    "decimal": lambda i: Decimal(i) / 4,
    "date": lambda i: dt.date(2020, 1, 1) + dt.timedelta(days=i),
    "timestamp": lambda i: dt.datetime(2020, 1, 1, 0, 0, 0, 250 + i, dt.UTC),
    "binary": lambda i: i.to_bytes(2, "big"),
    "struct": lambda i: {"shop": f"s{i % 3}", "number": i},
}


@pytest.mark.parametrize("kind", quick(["struct", "timestamp", "decimal", "int", "date", "binary"]))
def test_ids_of_every_type(spark, make_job, reviews, kind):
    raw = reviews().with_columns(pl.Series("id", [IDS[kind](i) for i in range(240)]))
    job, other = make_job("spark", raw), make_job("polars", raw)
    other.run(shard_rows=200)
    summary = run_frame(frame_of(spark, job), job.policy(shard_rows=200))
    assert summary.rows["released"] == 240
    order = pl.col("id").struct.field("field_2") if kind == "struct" else "id"
    assert published(job, order)["review"].to_list() == published(other, order)["review"].to_list()
    assert published(job, order).schema == published(other, order).schema


@pytest.mark.thorough
def test_the_policy_of_one_column(spark, job):
    whole = job.policy()
    column = ColumnPolicy(**dict(whole.column_policies()[0]))
    places = {"sink": whole.sink, "staging": whole.staging, "ledger": whole.ledger.url}
    entries = {**places, "cap": whole.cap.model_dump(), "keep": ["stars"]}
    renamed = frame_of(spark, job).withColumnRenamed("id", "record")
    summary = run_frame(renamed, column, id="record", subject="user_id", **entries)
    assert summary.rows["released"] == 240
    with Ledger.open(whole.ledger.url) as ledger:
        ledger.people.accept_units("reviews", {"eps_pure": 0.0}, "the column of ids was renamed")
    job.run(column=[whole.columns[0].model_dump()], sink=str(job.folder / "other"))
    other = scan_published(str(job.folder / "other")).collect().sort("id")
    assert_frame_equal(published(job, "record").rename({"record": "id"}), other)


@pytest.mark.thorough
def test_the_path_of_a_policy_and_a_partition(spark, job):
    path = job.write_policy(source="{partition}.parquet", sink=str(job.folder / "out" / "{partition}"))
    summary = run_frame(frame_of(spark, job), path, partition="2026-10")
    assert (summary.partition, summary.rows["released"]) == ("2026-10", 240)
    assert summary.published.endswith("out/2026-10")


def test_incremental_runs_add_parts(spark, make_job, reviews, save):
    job, other = make_job("spark", incremental=True), make_job("polars", incremental=True)
    for item in (job, other):
        if item is job:
            run_frame(frame_of(spark, item), item.policy())
        else:
            item.run()
        save(reviews(400), item.folder / "raw.parquet")
    summary = run_frame(frame_of(spark, job), job.policy())
    assert summary.rows["already_published"] == 240
    assert summary.rows["new"] == 160
    other.run()
    assert_frame_equal(published(job), published(other))
    again = run_frame(frame_of(spark, job), job.policy())
    assert (again.rows["released"], again.changed) == (0, False)
    assert used(job) == used(other)


def test_nothing_raw_is_left_in_any_artefact(spark, job, sentinel, capfd, caplog):
    caplog.set_level("DEBUG", logger="dptext_etl")
    policy = job.policy()
    staged = stage_frame(frame_of(spark, job), policy)
    verdicts = check(staged)
    everything = job.files("published.staging")
    assert sorted({path.rpartition(".")[2] for path in everything}) == ["draws", "json", "parquet", "txt"]
    publish(staged, verdicts)
    everything |= job.files()
    everything |= {path.name: path.read_bytes() for path in job.folder.glob("ledger*")}
    everything["said"] = "\n".join([caplog.text, repr(staged), *capfd.readouterr()]).encode()
    tokens = [word for words in policy_tokens(policy, resolve(policy.key)).values() for word in words]
    for name, content in everything.items():
        assert not sum(find([sentinel, *tokens], content).values()), name
    assert not list((job.folder / "published.staging").rglob("messages"))


def test_types_carry_nothing_out_of_a_run(spark, make_job, reviews, sentinel):
    frame = reviews(120).with_columns(id=pl.struct(pl.lit("x").alias(sentinel), "id"))
    job = make_job(frame=frame, keep=["named", "inner", "nothing"], incremental=True)
    columns = (f"named_struct('{sentinel}', stars) as named", "map(stars, named_struct('a', stars)) as inner")
    raw = frame_of(spark, job).selectExpr("*", *columns, "null as nothing")
    raw = raw.withMetadata("named", {"comment": sentinel})
    assert run_frame(raw, job.policy()).rows["released"] == 120
    assert run_frame(raw, job.policy()).rows["already_published"] == 120
    assert not any(sentinel.encode() in content for content in job.files().values())
    schema = json.loads((job.folder / "published.manifest.json").read_text())["schema"]
    assert schema["id"] == "Struct of 2 fields (String, String)"
    assert schema["named"] == "Struct of 1 field (Int64)"
    assert schema["inner"] == "Map of Int64 to Struct of 1 field (Int64)"
    assert schema["nothing"] == "String"


def test_strings_that_are_not_utf8_are_refused_before_the_charge(spark, make_job, reviews):
    job = make_job(frame=reviews(40), keep=["stars", "a.b"])
    raw = frame_of(spark, job)
    for kept in ("cast(unhex('ff') as string)", "array(named_struct('x', cast(unhex('ff') as string)))"):
        with pytest.raises(InputError, match=r"strings of the kept columns 'a\.b' are not UTF-8"):
            run_frame(raw.selectExpr("*", f"{kept} as `a.b`"), job.policy())
    assert not (job.folder / "ledger.db").exists()


def test_uuids_are_refused_and_a_text_without_a_type_is_null(spark, make_job, reviews):
    job = make_job(frame=reviews(40), keep=[])
    assert (
        run_frame(frame_of(spark, job).drop("note").selectExpr("*", "null as note"), job.policy()).published_rows == 40
    )
    assert published(job)["note"].null_count() == 40
    pq.write_table(pa.table({"review": pa.array(['"a"'], pa.json_()), "note": pa.nulls(1)}), job.folder / "raw.parquet")
    assert [field.dataType.typeName() for field in read_source(spark, job.policy()).schema] == ["string", "string"]
    pq.write_table(pa.table({"id": pa.array([b"x" * 16], pa.uuid())}), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="a column of UUIDs, which Spark does not read"):
        read_source(spark, job.policy())


def test_a_kept_column_and_a_column_with_dots(spark, job):
    frame = frame_of(spark, job).withColumnRenamed("stars", "st.ars `x`")
    summary = run_frame(frame, job.policy(keep=["st.ars `x`"]))
    assert summary.rows["released"] == 240
    assert "st.ars `x`" in scan_published(summary.published).collect_schema()


def test_the_driver_is_sent_counts_and_no_rows(spark, make_job, reviews, monkeypatch, sentinel):
    job, sent = make_job("job", reviews(960)), []
    frame = frame_of(spark, job)
    collect = type(frame).collect

    def counted(frame):
        rows = collect(frame)
        sent.extend(str(row) for row in rows)
        return rows

    monkeypatch.setattr(type(frame), "collect", counted)
    for other in ("toLocalIterator", "toPandas", "toArrow", "take", "head", "foreach"):
        monkeypatch.setattr(type(frame), other, None, raising=False)  # Spark 3.5 inherits some of them
    summary = run_frame(frame, job.policy(shard_rows=400))
    assert summary.rows["released"] == 960
    assert 9 <= len(sent) <= 40  # of each shard what became of it, what gates saw, its part; and counts of each task
    assert sentinel not in "".join(sent)


CONNECT = """
import json, sys
from pyspark.sql import SparkSession
from dptext_etl import Policy
from dptext_etl.spark import run_frame
values, remote = json.loads(sys.argv[1])
spark = SparkSession.builder.remote(remote).getOrCreate()
assert not hasattr(spark, "_jvm")
policy = Policy.parse(values)
frame = spark.read.parquet(policy.source).repartition(3)
summaries = [run_frame(frame, policy).as_dict() for _ in range(2)]
print(json.dumps([summary["rows"] for summary in summaries]))
"""


def test_spark_connect(spark_connect, make_job, reviews):
    raw = reviews().with_columns(id=dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + pl.duration(seconds=pl.int_range(240)))
    job, other = make_job("connect", raw), make_job("polars", raw)
    other.run()
    given = json.dumps([job.policy().model_dump(mode="json", by_alias=True), spark_connect])
    done = subprocess.run([sys.executable, "-c", CONNECT, given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = json.loads(done.stdout)
    assert (first["new"], second["new"], second["replayed"]) == (240, 0, 240)
    assert_frame_equal(published(job), published(other))
    assert used(job) == used(other)


@pytest.mark.parametrize("suffix", quick([".parquet", ".csv"]))
def test_spark_reads_one_version_by_its_manifest(spark, make_job, reviews, save, suffix):
    from dptext_etl.errors import InputError
    from dptext_etl.spark import published as read

    job = make_job(suffix=suffix)
    job.run()
    sink = str(job.folder / "published")
    before = read(spark, sink)
    save(reviews(300), job.folder / f"raw{suffix}")
    job.run()
    ids = reviews(300)["id"].to_list()
    assert sorted(row.id for row in read(spark, sink).collect()) == ids
    assert before.count() == 240
    if suffix == ".parquet":
        assert sorted(row.id for row in spark.read.parquet(sink).collect()) == ids
    job.part(0).write_bytes(b"")
    with pytest.raises(InputError, match="not those of their manifest"):
        read(spark, sink)
