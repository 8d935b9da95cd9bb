"""Runs over a Spark frame, beyond the contract of all engines: contents of the driver, Connect, refusals."""

import datetime as dt
import json
import os
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from dptext_etl import device
from dptext_etl.cli.app import app
from dptext_etl.cli.commands import run as command
from dptext_etl.engines import run, stage
from dptext_etl.engines.spark import session, spark_engine, worker_policy
from dptext_etl.engines.spark.session import read_source
from dptext_etl.engines.spark.spark_engine import SparkEngine
from dptext_etl.errors import DPTextError, InputError, LedgerError, PolicyError
from dptext_etl.ledger import Scope
from dptext_etl.polars import run_frame as run_polars
from dptext_etl.runner import plan
from dptext_etl.spark import published as read_published
from dptext_etl.spark import run_frame

from ..quick import quick
from ..refusals import same_refusal
from .spark_runs import frame_of, published, used


@pytest.mark.thorough
def test_a_shard_holds_at_most_shard_rows_and_its_canaries(spark, job):
    staged = stage(job.policy(shard_rows=30, cap=None), engine=SparkEngine(frame_of(spark, job)))
    shards = [pl.read_parquet(part) for part in staged.parts]
    assert sum(shard.height for shard in shards) == 240 + 8 * len(staged.canaries)
    for shard, canary in zip(shards, staged.canaries, strict=True):
        assert shard.filter(~pl.col("__dptext_canary")).height <= 30
        assert set(shard.filter("__dptext_canary")["id"]) == set(canary.ids())


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
    assert (release, release[0], release[-1], reports[-1].phase) == (sorted(release), 0, 960, "publish")
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


def test_the_command_and_relative_paths_which_start_at_the_working_folder(spark, make_job, monkeypatch):
    job, other = make_job("spark"), make_job("polars")
    monkeypatch.chdir(job.folder)
    policy = job.write_policy(source="raw.parquet", sink="published", staging="published.staging")
    done = CliRunner().invoke(app, ["run", policy.name, "--engine", "spark", "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert tuple(facts) == command.KEYS
    assert facts["rows"] == other.run().rows
    assert_frame_equal(published(job), published(other))
    assert read_published(spark, "published").count() == 240
    assert spark.range(1).count() == 1  # the session was there before, so it stays


def test_without_pyspark(monkeypatch, job):
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    done = CliRunner().invoke(app, ["run", str(job.write_policy()), "--engine", "spark"])
    assert done.exit_code == 5
    assert "pip install 'dptext-etl[spark]" in done.stderr


@pytest.mark.parametrize("home", [None, "/nowhere"])
def test_without_java(monkeypatch, home):
    monkeypatch.setattr(session, "find_spec", lambda _: object())
    monkeypatch.setattr(session.shutil, "which", lambda _: None)
    for name in ("JAVA_HOME", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    if home:
        monkeypatch.setenv("JAVA_HOME", home)
    with pytest.raises(PolicyError, match="Java") as caught:
        session.require_spark()
    assert "openjdk" in caught.value.hint
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    session.require_spark()


def test_a_plan_asks_spark(spark, job, monkeypatch):
    path = str(job.write_policy())
    done = CliRunner().invoke(app, ["plan", path, "--engine", "spark", "--json"])
    assert done.exit_code == 0, done.output
    monkeypatch.setattr(worker_policy, "is_local", lambda _: False)
    done = CliRunner().invoke(app, ["plan", path, "--engine", "spark"])
    assert done.exit_code == 5
    assert "file of one machine" in done.stderr


def persons_of(frame, draw):
    """The frame with other persons in it, which `draw` names anew whenever the frame is evaluated."""

    def drawn(batches):
        for batch in batches:
            at = batch.schema.get_field_index("user_id")
            yield batch.set_column(at, "user_id", pa.array([draw() for _ in range(batch.num_rows)]))

    return frame.mapInArrow(drawn, frame.schema)


@pytest.mark.parametrize("entries", quick([{"per_subject": 3}, {}]))
def test_persons_that_differ_between_two_evaluations_are_refused_before_the_charge(spark, job, entries):
    frame = persons_of(frame_of(spark, job), lambda: f"u{os.urandom(1)[0] % 40}")
    with pytest.raises(InputError, match="their persons, are not those that were checked"):
        run_frame(frame, job.policy(**entries))
    assert not (job.folder / "published.manifest.json").exists()
    assert not (job.folder / "ledger.db").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("lost_before", ["reserve", "release"])
def test_persons_that_differ_after_an_executor_is_lost_are_refused(spark, job, lost_before):
    """Executors keep the rows of a run; rows that are lost with one are read again."""
    gone = job.folder / "gone"
    frame = persons_of(frame_of(spark, job), lambda: f"u{os.path.exists(gone)}")  # noqa: PTH110  (a path of a worker)

    class Losing(SparkEngine):
        def compute(self, work, phase, meter):
            if phase == lost_before:
                gone.touch()
                self.close()
            return super().compute(work, phase, meter)

    policy = job.policy(cap={"epsilon": 1e6}, on_cap="refuse")
    with pytest.raises(InputError, match="their persons, are not those that were checked"):
        run(policy, engine=Losing(frame))
    assert not (job.folder / "published.manifest.json").exists()
    with job.ledger() as ledger:
        charged = ledger.remaining(Scope.of(policy)).units
    assert charged == (0 if lost_before == "reserve" else 1), "the persons of the second evaluation are not charged"


def test_columns_of_ours_and_columns_of_one_name(spark, job):
    frame = frame_of(spark, job)
    for name in ("__dptext_canary", "__dptext_shard"):
        with pytest.raises(InputError, match="is ours"):
            run_frame(frame.withColumnRenamed("secret", name), job.policy())
    with pytest.raises(InputError, match="several columns 'stars'"):
        run_frame(frame.withColumnRenamed("secret", "stars"), job.policy())


def planned_and_refused(spark, job, kind, **entries):
    frame = frame_of(spark, job)
    running, planning = (lambda **given: run_frame(frame, job.policy(**given))), SparkEngine(frame).open
    return same_refusal(job, entries, kind, running=running, planning=partial(plan, require=planning))


def test_a_sqlite_ledger_and_executors_elsewhere(spark, job, monkeypatch):
    monkeypatch.setattr(worker_policy, "is_local", lambda _: False)
    error = planned_and_refused(spark, job, LedgerError)
    assert "file of one machine" in error.message
    assert "local master" in error.hint
    assert not (job.folder / "ledger.db").exists()


def test_staging_in_a_store_and_a_sink_in_a_folder(spark, job):
    error = planned_and_refused(spark, job, PolicyError, staging="s3://bucket/staging")
    assert "executors may share nothing" in error.message


def test_gpus_come_from_a_cluster(spark, job, monkeypatch):
    with pytest.raises(PolicyError, match="hands out no GPUs"):
        run_frame(frame_of(spark, job), job.policy(), gpus_per_task=1)
    for wrong in (-1, 1.5, 0.7, True):
        with pytest.raises(PolicyError, match="must be an integer"):
            run_frame(frame_of(spark, job), job.policy(), gpus_per_task=wrong)
    monkeypatch.setattr(spark_engine, "is_local", lambda _: False)
    if spark.version.startswith("3."):
        with pytest.raises(PolicyError, match=r"Spark 4\.0"):
            spark_engine.gpu_profile(spark, 2)
        return
    asked = spark_engine.gpu_profile(spark, 2).taskResources
    assert {name: request.amount for name, request in asked.items()} == {"cpus": 1.0, "gpu": 2.0}
    assert spark_engine.gpu_profile(spark, 0.5).taskResources["gpu"].amount == 0.5
    assert spark_engine.gpu_profile(spark, 0) is None


def test_a_task_computes_on_the_gpu_that_spark_gave_it(monkeypatch):
    """Also in a reused process that computed on another one: its models there are dropped."""
    pytest.importorskip("pyspark", reason="pyspark is not installed (extra: spark)")
    used = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False, empty_cache=lambda: None))
    monkeypatch.setitem(sys.modules, "torch", used)
    monkeypatch.setattr(device, "_taken", [0])
    monkeypatch.setattr(device, "_caches", [])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    loaded = device.drops_with_gpu({})

    def task(*addresses):
        resources = {"gpu": SimpleNamespace(addresses=addresses)} if addresses else {}
        monkeypatch.setattr("pyspark.TaskContext.get", lambda: SimpleNamespace(resources=lambda: resources))
        worker_policy.take_gpu()
        return device.place("cuda"), os.environ["CUDA_VISIBLE_DEVICES"]

    assert task() == ("cuda:0", "7")
    assert task("2") == ("cuda:0", "2,7")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    place, seen = task("2", "0")
    assert (place, seen[:8]) == ("cuda:0", "2,0,1,3,")  # CUDA reads this list once
    used.cuda.is_initialized = lambda: True
    loaded["model"] = "on GPU 2"
    assert task("2") == task() == ("cuda:0", seen)
    assert loaded
    assert task("3") == ("cuda:3", seen)
    assert not loaded
    assert task("0") == ("cuda:1", seen)
    assert device.place("cpu") == "cpu"
    with pytest.raises(PolicyError, match="cannot reach the GPU"):
        task("GPU-0123")


@pytest.mark.thorough
def test_a_defect_is_no_quotation(spark, job, sentinel, capfd):
    def checkpoint(name):
        from pyspark import TaskContext

        if TaskContext.get() is not None and name == "reserved":
            raise ValueError(sentinel)

    with pytest.raises(DPTextError, match=r"computing on Spark failed \(\w+\)") as caught:
        stage(job.policy(), engine=SparkEngine(frame_of(spark, job)), checkpoint=checkpoint)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "run it again" in caught.value.hint
    assert sentinel not in "".join([str(caught.value), *capfd.readouterr()])


"""About the size of the raw texts; the released ones have the same size."""
