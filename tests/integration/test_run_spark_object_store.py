"""Spark with staging and sink in an object store: driver and executors share nothing else."""

import os
import tempfile

import pytest
from polars.testing import assert_frame_equal

from dptext_etl import files
from dptext_etl.engines import stage
from dptext_etl.engines.spark.session import read_source
from dptext_etl.engines.spark.spark_engine import SparkEngine
from dptext_etl.errors import InputError
from dptext_etl.runner import check, publish, scan_published
from dptext_etl.spark import run_frame
from dptext_etl.storage import Objects

from ..object_store import remote
from .spark_runs import frame_of, used

SINK = "s3://bucket/published/reviews"


@pytest.fixture
def place(store, tmp_path, monkeypatch):
    """Make a job whose staging and sink lie in the store; the driver's folder for its own files is separate."""

    def placed(job, **changes):
        options = {**store.options, "aws_secret_access_key": "env:DPTEXT_STORE_SECRET", "max_retries": "3"}
        changes = {"source": job.values["source"], "staging": "s3://bucket/inside", **changes}
        job.values.update(remote(job, store, **changes) | {"storage_options": options})
        return job

    (tmp_path / "driver").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "driver"))
    files.folder_of.cache_clear()
    yield placed
    files.folder_of.cache_clear()


def published(store):
    return scan_published(SINK, store.options).collect().sort("id")


def staged_names(store):
    return [
        name
        for name in store.objects
        if name.startswith("inside/") and "/ledger-" not in name and not name.endswith(("left-out.json", "texts.txt"))
    ]


def sink_parts(store):
    return sum("/part-" in name for name in store.objects)


@pytest.mark.thorough
def test_what_is_published_and_charged_is_what_a_run_over_folders_does(spark, make_job, place, store, monkeypatch):
    """Every task dies after it has staged rows and before it commits them; another attempt uses them."""
    here, job = make_job("here", shard_rows=200), place(make_job("apart", shard_rows=200))
    here.run()
    seen, fetched, shown = job.folder / "seen", [], []
    seen.mkdir()

    def checkpoint(name):
        import tempfile
        from pathlib import Path

        from pyspark import TaskContext

        task = TaskContext.get()
        if task is None or name not in {"computed", "staged"}:
            return
        (seen / f"{task.partitionId()}-{task.attemptNumber()}-{name}").touch()
        if name == "staged" and not task.attemptNumber():
            own = [path for path in Path(tempfile.gettempdir()).glob("dptext-staged-*") if any(path.rglob("shard-*"))]
            (seen / f"{task.partitionId()}.folders").write_text("\n".join(map(str, own)))
            os._exit(13)

    engine = SparkEngine(frame_of(spark, job))
    with monkeypatch.context() as driver:
        real = Objects.local_path
        driver.setattr(Objects, "local_path", lambda self, name, **how: fetched.append(name) or real(self, name, **how))
        staged = stage(job.policy(), engine=engine, checkpoint=checkpoint)
        verdicts = check(staged, judge=engine.judge)
        assert staged_names(store)
        publish(staged, verdicts, write=engine.write, checkpoint=lambda name: shown.append((name, sink_parts(store))))
    assert dict(shown)["recorded"] == 0 < dict(shown)["version written"], "no part is in the sink before it is recorded"
    assert not [name for name in fetched if not name.startswith("ledger-")], "the driver fetched staged files"
    assert_frame_equal(published(store), scan_published(here.policy().sink).collect().sort("id"))
    assert used(job) == used(here)
    done = sorted(path.name for path in seen.glob("*-*"))
    assert done == ["0-0-computed", "0-0-staged", "1-0-computed", "1-0-staged"], "staged rows are used"
    folders = [path for file in seen.glob("*.folders") for path in file.read_text().split()]
    assert folders
    assert not any(path.startswith(tempfile.gettempdir()) for path in folders)
    assert not staged_names(store)
    assert not [path for path in files.process_folder().rglob("*") if "shard-" in path.name]


def test_executors_read_csv_objects_with_the_options_of_the_policy(spark, make_job, place, store, reviews):
    table = reviews(40)
    store.objects["raw/a.csv"] = table.head(15).write_csv().encode()
    store.objects["raw/b.csv"] = table.tail(25).write_csv().encode()
    policy = place(make_job(), source="s3://bucket/raw/*.csv").policy()
    rows = read_source(spark, policy)
    assert sorted(row.review for row in rows.collect()) == sorted(table["review"])
    assert "not-to-be-printed" not in str(rows._jdf.queryExecution().toString())


def test_what_executors_lack_is_said_before_anything_is_charged(spark, make_job, place, store):
    job = place(make_job())
    job.values["storage_options"] = store.options  # only the driver has that variable
    with pytest.raises(InputError, match=r"an executor cannot use .*DPTEXT_TEST_SECRET, which is not set") as caught:
        run_frame(frame_of(spark, job), job.policy())
    assert "spark.executorEnv" in caught.value.hint
    assert not (job.folder / "ledger.db").exists(), "a run that is refused before it charges makes no ledger"
