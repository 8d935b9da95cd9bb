"""What a run refuses, a run over a Spark frame refuses with the same words, and spends nothing."""

import os
import sys
from types import SimpleNamespace

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import ColumnPolicy, Ledger, device
from dptext_etl.engines.spark import spark_engine, worker_policy
from dptext_etl.engines.spark.tasks import TaskMessages
from dptext_etl.errors import BudgetError, DPTextError, InputError, LedgerError, PolicyError
from dptext_etl.ledger import Scope
from dptext_etl.mechanism import Mechanism
from dptext_etl.runner import scan_published
from dptext_etl.spark import run_frame
from dptext_etl.spark.spark_frame import stage_frame


def frame_of(spark, job, parts=3):
    return spark.read.parquet(str(job.folder / "raw.parquet")).repartition(parts)


def refusal(act):
    with pytest.raises(DPTextError) as caught:
        act()
    return type(caught.value), str(caught.value)


BAD = {
    "repeated ids": (lambda raw: raw.with_columns(id=pl.lit("same")), {}),
    "null ids": (lambda raw: raw.with_columns(id=pl.when(pl.col("id") > "r00100").then("id")), {}),
    "unknown subjects": (lambda raw: raw.with_columns(user_id=pl.lit(None, pl.String)), {}),
    "no rows": (lambda raw: raw.clear(), {}),
    "no id column": (lambda raw: raw.drop("id"), {}),
    "none of the columns": (lambda raw: raw.select("secret"), {}),
    "ids that are floats": (lambda raw: raw.with_columns(id=pl.int_range(240) / 3), {}),
    "texts that are numbers": (lambda raw: raw.with_columns(review=pl.col("stars")), {}),
    "columns that no one names": (lambda raw: raw, {"strict_columns": True}),
    "a key that was printed": (lambda raw: raw, {"key": "printed"}),
}


@pytest.mark.parametrize("case", BAD)
def test_the_words_are_those_of_a_run(spark, make_job, reviews, case):
    bad, changes = BAD[case]
    job = make_job("bad", bad(reviews()))
    if changes.get("key") == "printed":
        key = job.folder / "printed.key"
        key.write_text(bytes(range(32)).hex())
        key.chmod(0o600)
        changes = {"key": f"file:{key}"}
    said = refusal(lambda: run_frame(frame_of(spark, job), job.policy(**changes)))
    assert said == refusal(lambda: job.run(**changes))
    assert not (job.folder / "ledger.db").exists()
    assert not (job.folder / "published.manifest.json").exists()


@pytest.mark.thorough
def test_changed_texts(spark, make_job, reviews, save):
    job, other = make_job("spark"), make_job("polars")
    run_frame(frame_of(spark, job), job.policy())
    other.run()
    before = job.charged()
    for item in (job, other):
        save(reviews().with_columns(review=pl.lit("other words")), item.folder / "raw.parquet")
    kind, said = refusal(lambda: run_frame(frame_of(spark, job), job.policy()))
    assert kind is InputError
    elsewhere = refusal(other.run)[1].replace(str(other.folder), str(job.folder))
    assert said.partition("records changed")[2] == elsewhere.partition("records changed")[2]
    assert job.charged() == before
    assert not list((job.folder / "published.staging").rglob("messages"))


def capped(epsilon, **more):
    return {"cap": {"measure": "pure", "epsilon": epsilon, "period": "2026"}, **more}


def test_forgotten_records_are_left_out(spark, make_job):
    job = make_job("one")
    job.run()
    records, people = (pa.array(names, pa.large_string()) for names in (["r00007", "r00047"], ["u008"]))
    with Ledger.open(str(job.folder / "ledger.db")) as ledger:
        ledger.people.forget("reviews", records, people)
    with pytest.raises(LedgerError, match="8 rows of what is published here are of people or records"):
        run_frame(frame_of(spark, job), job.policy(incremental=True))
    table = pl.read_parquet(job.folder / "raw.parquet")
    late = table.filter(pl.col("user_id") == "u008").with_columns(id=pl.lit("late-") + pl.col("id"))
    pl.concat([table, late]).write_parquet(job.folder / "raw.parquet")
    again = run_frame(frame_of(spark, job, 5), job.policy(release="2026-12"))
    assert (again.rows["forgotten"], again.published_rows) == (14, 232), "records that were never charged, too"


@pytest.mark.thorough
def test_records_over_the_cap_are_left_out_the_same_ones_every_time(spark, make_job):
    one, two = make_job("one"), make_job("two")
    summary = run_frame(frame_of(spark, one), one.policy(**capped(100.0)))
    again = run_frame(frame_of(spark, two, 5).orderBy("review"), two.policy(**capped(100.0)))
    assert summary.rows["quarantined"] == again.rows["quarantined"] > 0
    assert summary.rows["quarantined"] + summary.rows["released"] == 240
    assert one.files() == two.files()
    listed = pl.concat([pl.read_parquet(path) for path in (one.folder / "published.staging").rglob("quarantine-*")])
    assert listed.height == summary.rows["quarantined"]
    assert not set(listed["id"]) & set(scan_published(summary.published).collect()["id"])
    with one.ledger() as ledger:
        assert ledger.verify().ok
        assert max(ledger.remaining(Scope.of(one.policy(**capped(100.0)))).used["eps_pure"].values()) <= 100 * 10**6


def test_a_subject_that_fills_a_shard_alone_is_cut_and_judged_in_the_order_of_ids(spark, make_job, reviews):
    raw = reviews().with_columns(user_id=pl.lit("one"))
    job, other = make_job("spark", raw), make_job("polars", raw.sort("id"))
    entries = capped(900.0, min_released=0.0)
    summary = run_frame(frame_of(spark, job), job.policy(**entries))
    expected = other.run(**entries)
    assert summary.rows == expected.rows
    mine, theirs = (scan_published(str(item.folder / "published")).collect().sort("id") for item in (job, other))
    assert mine.equals(theirs)
    assert summary.rows["quarantined"] > 100


def test_refuse_charges_and_computes_nothing(spark, job):
    with pytest.raises(BudgetError, match="nothing was computed or charged") as caught:
        run_frame(frame_of(spark, job), job.policy(**capped(100.0, on_cap="refuse")))
    assert caught.value.exit_code == 3
    assert not (job.folder / "ledger.db").exists()
    assert not list((job.folder / "published.staging").rglob("shard-*"))


@pytest.mark.thorough
def test_refuse_with_a_cap_that_fits(spark, make_job):
    job, other = make_job("spark"), make_job("polars")
    summary = run_frame(frame_of(spark, job), job.policy(on_cap="refuse"))
    assert summary.rows == other.run(on_cap="refuse").rows


def test_a_frame_that_gives_other_rows_every_time(spark, job):
    def some(batches):
        import os

        for batch in batches:
            yield batch.slice(int.from_bytes(os.urandom(2), "big") % 50)

    frame = frame_of(spark, job)
    frame = frame.mapInArrow(some, frame.schema)
    with pytest.raises(InputError, match="changed while it was read"):
        run_frame(frame, job.policy())
    assert not (job.folder / "published.manifest.json").exists()


def test_columns_of_ours_and_columns_of_one_name(spark, job):
    frame = frame_of(spark, job)
    for name in ("__dptext_canary", "__dptext_shard"):
        with pytest.raises(InputError, match="is ours"):
            run_frame(frame.withColumnRenamed("secret", name), job.policy())
    with pytest.raises(InputError, match="several columns 'stars'"):
        run_frame(frame.withColumnRenamed("secret", "stars"), job.policy())


def test_a_sqlite_ledger_and_executors_elsewhere(spark, job, monkeypatch):
    monkeypatch.setattr(worker_policy, "is_local", lambda _: False)
    with pytest.raises(LedgerError, match="file of one machine") as caught:
        run_frame(frame_of(spark, job), job.policy())
    assert "local master" in caught.value.hint
    assert not (job.folder / "ledger.db").exists()


def test_gpus_come_from_a_cluster(spark, job, monkeypatch):
    with pytest.raises(PolicyError, match="hands out no GPUs"):
        run_frame(frame_of(spark, job), job.policy(), gpus_per_task=1)
    for wrong in (-1, 1.5, 0.7, True):
        with pytest.raises(PolicyError, match="whole number"):
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
    """Also in a reused process that computed on another one: what it loaded there is dropped."""
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


def test_an_executor_that_does_not_see_the_staging_folder(spark, job):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskMessages, "create", lambda self: None)
        with pytest.raises(InputError, match="cannot use the staging folder") as caught:
            run_frame(frame_of(spark, job), job.policy())
    assert "share" in caught.value.hint
    assert not (job.folder / "ledger.db").exists()


def test_policies_of_one_column_that_make_no_run(spark, job):
    whole = job.policy()
    column = ColumnPolicy(**dict(whole.column_policies()[0]))
    rest = {"id": "id", "sink": whole.sink, "ledger": whole.ledger.url}
    for bad, error, words in (
        (column.model_copy(update={"nonce": 1}), PolicyError, "nonce"),
        (column.model_copy(update={"column": None}), PolicyError, "names no column"),
    ):
        with pytest.raises(error, match=words):
            run_frame(frame_of(spark, job), bad, subject="user_id", **rest)
    with pytest.raises(PolicyError, match="subject"):
        run_frame(frame_of(spark, job), column, **rest)
    with pytest.raises(PolicyError, match="ledger"):
        run_frame(frame_of(spark, job), column, id="id", sink=whole.sink, subject="user_id")


def test_a_defect_is_no_quotation(spark, job, sentinel, capfd):
    def checkpoint(name):
        from pyspark import TaskContext

        if TaskContext.get() is not None and name == "reserved":
            raise ValueError(sentinel)

    with pytest.raises(DPTextError, match=r"computing on Spark failed \(\w+\)") as caught:
        stage_frame(frame_of(spark, job), job.policy(), checkpoint=checkpoint)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "run it again" in caught.value.hint
    assert sentinel not in "".join([str(caught.value), *capfd.readouterr()])


def test_mechanisms_are_not_rebuilt_from_other_inputs(spark, job, monkeypatch):
    """A worker whose configuration hash is another one refuses before it charges anything."""
    real = Mechanism.cfg
    monkeypatch.setattr(Mechanism, "cfg", lambda self: real(self)[::-1])
    with pytest.raises(PolicyError, match="another hash"):
        run_frame(frame_of(spark, job), job.policy())
    assert not (job.folder / "ledger.db").exists()
