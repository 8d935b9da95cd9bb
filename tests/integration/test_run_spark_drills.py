"""Tasks that die, run twice or leak: one release, one charge, and gates that look at the output of executors."""

import json
import os
import signal
import subprocess
import sys

import pytest

from dptext_etl import _kernel
from dptext_etl.engines import stage
from dptext_etl.engines.spark.spark_engine import SparkEngine
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.runner import check, publish
from dptext_etl.spark import run_frame

from .spark_runs import failing_once, frame_of, used


@pytest.fixture
def undisturbed(spark, make_job):
    job = make_job("undisturbed", shard_rows=100)
    run_frame(frame_of(spark, job), job.policy())
    return job


RETRIED = [
    ("dies", "committed"),
    ("raises", "reserved"),
    ("dies", "computed"),
    ("dies", "staged"),
    ("raises", "staged"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("how", "step"), RETRIED)
def test_every_task_fails_once_after_a_step_and_is_retried(spark, undisturbed, make_job, how, step):
    job = make_job("job", shard_rows=100)
    failures = job.folder / "failures"
    checkpoint = failing_once(failures, step, how)
    staged = stage(job.policy(), engine=SparkEngine(frame_of(spark, job)), checkpoint=checkpoint)
    # a worker that dies ends the first attempts of other partitions in it, before their step
    assert 0 < len(list(failures.iterdir())) <= len(staged.canaries)
    publish(staged, check(staged))
    assert (job.files(), job.charged()) == (undisturbed.files(), undisturbed.charged())
    assert used(job) == used(undisturbed)


def went_on(spark, job, undisturbed):
    summary = run_frame(frame_of(spark, job), job.policy())
    assert summary.rows["resumed"] + summary.rows["replayed"] > 0
    assert (job.files(), job.charged()) == (undisturbed.files(), undisturbed.charged())
    assert used(job) == used(undisturbed)
    left = {path.name for path in (job.folder / "published.staging").rglob("*") if path.is_file()}
    assert left == {"left-out.json", "manifest.draft.json", "texts.txt"}


DRIVER = """
import json, os, signal, sys
values, step, times = json.loads(sys.argv[1])
os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": values.pop("settings")}
from pathlib import Path
from pyspark.sql import SparkSession
from dptext_etl import Policy, _kernel
from dptext_etl.engines import stage
from dptext_etl.engines.spark.spark_engine import SparkEngine
driver, seen = os.getpid(), Path(values.pop("seen"))
def checkpoint(name):
    import os, signal
    from pyspark import TaskContext
    if name == step:
        if TaskContext.get() is not None:
            (seen / f"{TaskContext.get().partitionId()}-{os.urandom(4).hex()}").touch()
            if len(list(seen.iterdir())) < times:
                return
        os.kill(driver, signal.SIGKILL)
spark = SparkSession.builder.master("local[2]").getOrCreate()
policy = Policy.parse(values)
stage(policy, engine=SparkEngine(spark.read.parquet(policy.source)), checkpoint=checkpoint)
"""


@pytest.mark.thorough
def test_a_driver_killed_half_way_and_a_run_that_goes_on(spark, spark_settings, undisturbed, make_job):
    job = make_job("killed", shard_rows=100)
    settings = " ".join(f"--conf '{name}={value}'" for name, value in spark_settings.items())
    for step, times, ends in (("staged", 2, {-signal.SIGKILL}), ("committed", 3, {-signal.SIGKILL, 0})):
        # tasks of the first driver may outlive it for a moment and leave the second one too little to be killed in
        seen = job.folder / step
        seen.mkdir()
        values = job.policy().model_dump(mode="json", by_alias=True)
        values |= {"settings": f"{settings} pyspark-shell", "seen": str(seen)}
        given = json.dumps([values, step, times])
        done = subprocess.run([sys.executable, "-c", DRIVER, given], capture_output=True, text=True, check=False)
        assert done.returncode in ends, done.stderr[-2000:]
        assert not (job.folder / "published.manifest.json").exists()
    went_on(spark, job, undisturbed)


@pytest.mark.thorough
def test_a_run_in_one_process_goes_on_with_what_executors_staged(spark, job):
    """Shards are cut otherwise there, so they are computed again; nothing is charged again."""
    stage(job.policy(), engine=SparkEngine(frame_of(spark, job)))
    charged = used(job)
    summary = job.run()
    assert summary.rows["replayed"] == 240
    assert used(job) == charged


SPECULATION = """
import json, os, sys
values, settings, master, seen, step = json.loads(sys.argv[1])
from pathlib import Path
from pyspark.sql import SparkSession
from dptext_etl import Policy, _kernel
from dptext_etl.runner import check, publish
from dptext_etl.engines import stage
from dptext_etl.engines.spark.spark_engine import SparkEngine
def checkpoint(name):
    import time
    from pyspark import TaskContext
    task = TaskContext.get()
    if task is None:
        return
    (Path(seen) / f"{task.partitionId()}-{task.attemptNumber()}-{name}").touch()
    if task.partitionId() == 0 and task.attemptNumber() == 0 and name == step:
        time.sleep(30)
spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
policy = Policy.parse(values)
staged = stage(policy, engine=SparkEngine(spark.read.parquet(policy.source)), checkpoint=checkpoint)
publish(staged, check(staged))
"""


@pytest.mark.parametrize("step", ["reserved", "staged"])
def test_speculation_in_a_cluster_is_one_release_and_one_charge(
    undisturbed, cluster, postgres, speculating, spark_settings, make_job, step
):
    """Tables and references travel to the executors, and all of them charge one ledger on a server."""
    job = make_job("job", shard_rows=100)
    seen = job.folder / "seen"
    seen.mkdir()
    _kernel.Secret().write(str(job.folder / "ids.key"))
    place = {"url": postgres.url(), "id_key": f"file:{job.folder / 'ids.key'}"}
    values = job.policy(ledger=place).model_dump(mode="json", by_alias=True)
    given = json.dumps([values, {**spark_settings, **speculating}, cluster, str(seen), step])
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", SPECULATION, given], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr[-3000:]
    done = {path.name for path in seen.iterdir()}
    assert {f"0-0-{step}", "0-1-reserved", "0-1-committed"} <= done, "no speculative attempt was started"
    assert ("0-1-computed" in done) == (step == "reserved")  # rows that were staged before are used
    assert "0-0-committed" not in done
    assert job.files() == undisturbed.files()
    with Ledger.open(**place, create=False) as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        assert {
            row["column"]: (row["records"], row["committed"]) for row in ledger.reports.show()
        } == undisturbed.charged()
        assert ledger.remaining(Scope.of(job.policy())).used == used(undisturbed)
