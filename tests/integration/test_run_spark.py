"""Runs over a Spark frame, beyond the contract of all engines: what executors and the driver hold, and Connect."""

import datetime as dt
import json
import subprocess
import sys

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

from dptext_etl import ColumnPolicy
from dptext_etl.checks import canaries
from dptext_etl.engines.spark.session import read_source
from dptext_etl.errors import InputError
from dptext_etl.ledger import Ledger
from dptext_etl.polars import run_frame as run_polars
from dptext_etl.runner import check, scan_published
from dptext_etl.spark import published as read_published
from dptext_etl.spark import run_frame
from dptext_etl.spark.spark_frame import stage_frame

from .spark_runs import frame_of, published, used


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
    mine = scan_published(str(job.folder / "published")).collect().rename({"record": "id"}).sort("id")
    assert_frame_equal(mine, other)


@pytest.mark.thorough
def test_the_path_of_a_policy_and_a_partition(spark, job):
    path = job.write_policy(source="{partition}.parquet", sink=str(job.folder / "out" / "{partition}"))
    summary = run_frame(frame_of(spark, job), path, partition="2026-10")
    assert (summary.partition, summary.rows["released"]) == ("2026-10", 240)
    assert summary.published.endswith("out/2026-10")


def test_strings_that_are_not_utf8_are_refused_before_the_charge(spark, make_job, reviews):
    job = make_job(frame=reviews(40), keep=["stars", "a.b"])
    raw = frame_of(spark, job).selectExpr("*", "array(named_struct('x', cast(unhex('ff') as string))) as `a.b`")
    with pytest.raises(InputError, match=r"strings of the kept columns 'a\.b' are not UTF-8"):
        run_frame(raw, job.policy())
    assert not (job.folder / "ledger.db").exists()


def test_uuids_are_refused_and_a_text_without_a_type_is_a_string(spark, job):
    pq.write_table(pa.table({"review": pa.array(['"a"'], pa.json_()), "note": pa.nulls(1)}), job.folder / "raw.parquet")
    assert [field.dataType.typeName() for field in read_source(spark, job.policy()).schema] == ["string", "string"]
    pq.write_table(pa.table({"id": pa.array([b"x" * 16], pa.uuid())}), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="a column of UUIDs, which Spark does not read"):
        read_source(spark, job.policy())


@pytest.mark.thorough
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
    reports = []
    summary = run_frame(frame, job.policy(shard_rows=400), progress=reports.append)
    assert summary.rows["released"] == 960
    release = [report.rows_done for report in reports if report.phase == "release"]
    assert release == sorted(release)
    assert (release[0], release[-1], reports[-1].phase) == (0, 960, "publish")
    assert 9 <= len(sent) <= 40  # of each shard what became of it, what gates saw, its part; and counts of each task
    assert sentinel not in "".join(sent)


CONNECT = """
import json, sys
from pyspark.sql import SparkSession
from dptext_etl import Policy
from dptext_etl.polars import run_frame as run_polars
from dptext_etl.spark import published as read_published
from dptext_etl.spark import run_frame
values, remote = json.loads(sys.argv[1])
spark = SparkSession.builder.remote(remote).getOrCreate()
assert not hasattr(spark, "_jvm")
policy = Policy.parse(values)
frame = spark.read.parquet(policy.source).repartition(3)
summaries = [run_frame(frame, policy).as_dict() for _ in range(2)]
print(json.dumps([summary["rows"] for summary in summaries]))
"""


@pytest.mark.thorough
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


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_spark_reads_one_version_by_its_manifest(spark, make_job, reviews, save, suffix):
    job = make_job(suffix=suffix)
    job.run()
    sink = str(job.folder / "published")
    before = read_published(spark, sink)
    save(reviews(300), job.folder / f"raw{suffix}")
    job.run()
    ids = reviews(300)["id"].to_list()
    assert sorted(row.id for row in read_published(spark, sink).collect()) == ids
    assert before.count() == 240
    if suffix == ".parquet":
        assert sorted(row.id for row in spark.read.parquet(sink).collect()) == ids
    job.part(0).write_bytes(b"")
    with pytest.raises(InputError, match="do not match their manifest"):
        read_published(spark, sink)


def test_spark_reads_types_of_a_csv_release_that_it_lacks(spark, make_job, reviews):
    job = make_job()
    job.values |= {"sink": str(job.folder / "published.csv"), "keep": ["small", "large", "at", "infinite"]}
    more = {"small": pl.col("stars").cast(pl.UInt8), "large": pl.col("stars").cast(pl.UInt64), "at": pl.time("stars")}
    run_polars(reviews().with_columns(**more, infinite=pl.lit(float("inf"))), job.policy())
    rows = read_published(spark, job.values["sink"])
    assert {name: kind for name, kind in rows.dtypes if name in job.values["keep"]} == {
        "small": "smallint",
        "large": "decimal(20,0)",
        "at": "string",
        "infinite": "double",
    }
    assert rows.agg({"small": "sum", "infinite": "max"}).collect()[0].asDict() == {
        "sum(small)": 720,
        "max(infinite)": float("inf"),
    }
