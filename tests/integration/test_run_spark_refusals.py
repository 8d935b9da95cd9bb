"""Refusals of Spark's own: what executors lack, frames that change, and policies of one column."""

import os
import sys
from functools import partial
from types import SimpleNamespace

import pytest

from dptext_etl import ColumnPolicy, device
from dptext_etl.engines.spark import spark_engine, worker_policy
from dptext_etl.engines.spark.spark_engine import SparkEngine
from dptext_etl.engines.spark.tasks import TaskMessages
from dptext_etl.errors import DPTextError, InputError, LedgerError, PolicyError
from dptext_etl.mechanism import Mechanism
from dptext_etl.runner import plan
from dptext_etl.spark import register, register_view, run_frame
from dptext_etl.spark.spark_frame import stage_frame

from ..refusals import same_refusal
from .spark_runs import frame_of


@pytest.mark.thorough
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


def test_functions_and_views_refuse_what_only_a_run_can_do(spark, make_job, make_unlinked):
    with pytest.raises(PolicyError, match="needs a run"):
        register(spark, "released", make_unlinked().policy().column_policy())
    job = make_job("coarsened", keep=[{"column": "stars", "bins": [2, 4]}])
    with pytest.raises(PolicyError, match="a view shows kept columns as the table has them"):
        register_view(spark, "shown", table="raw", policy=job.policy())


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


@pytest.mark.thorough
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


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_mechanisms_are_not_rebuilt_from_other_inputs(spark, job, monkeypatch):
    """A worker whose configuration hash is another one refuses before it charges anything."""
    real = Mechanism.cfg
    monkeypatch.setattr(Mechanism, "cfg", lambda self: real(self)[::-1])
    with pytest.raises(PolicyError, match="another hash"):
        run_frame(frame_of(spark, job), job.policy())
    assert not (job.folder / "ledger.db").exists()
