"""Streams that fail, are killed and start again: one release, one charge, every record once in the sink."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dptext_etl.policy import Cap
from tests.later import later

from .films import ROWS, charged, counts, epsilon_of, expected, register

errors = later("pyspark.errors", reason="pyspark is not installed (extra: spark)")
NAMES = ("id", "review", "user", "n")
SCHEMA = "id string, review string, user string, n int"


def arrive(folder, name, rows):
    (folder / "arriving").mkdir(exist_ok=True)
    lines = "".join(f"{json.dumps(dict(zip(NAMES, row, strict=True)))}\n" for row in rows)
    (folder / "arriving" / f"{name}.json").write_text(lines)


def sink(spark, folder):
    return [tuple(row) for row in spark.read.parquet(str(folder / "released")).orderBy("n", "batch").collect()]


@pytest.mark.thorough
def test_a_stream_that_failed_after_its_sink_goes_on_without_a_second_row_or_charge(spark, policy, url, tmp_path):
    register(spark, "streamed_review", policy, ledger=url, cap=Cap(epsilon=10_000))

    def run(*, broken=False):
        def publish(batch, number):
            rows = batch.selectExpr("n", "streamed_review(review, id, user) AS review")
            rows.write.mode("overwrite").parquet(f"{tmp_path}/released/batch={number}")
            if broken:
                raise ConnectionError

        stream = spark.readStream.schema(SCHEMA).json(f"{tmp_path}/arriving").writeStream.foreachBatch(publish)
        stream = stream.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True)
        stream.start().awaitTermination()

    arrive(tmp_path, "monday", ROWS[:30])
    with pytest.raises(errors.StreamingQueryException):
        run(broken=True)  # the sink has the rows, and the checkpoint does not know of it
    first = [(n, text, 0) for n, text in enumerate(expected(policy)[:30])]
    assert sink(spark, tmp_path) == first
    arrive(tmp_path, "tuesday", [*ROWS[30:], ROWS[29]])
    run()
    released = expected(policy)
    again = (29, released[29], 1)  # came twice: one release and one charge, in both batches
    assert sorted(sink(spark, tmp_path)) == sorted([*first, again, *((n, released[n], 1) for n in range(30, 60))])
    assert charged(url) == [epsilon_of(f"u{i}") for i in range(4)]
    assert counts(url)["records"] == counts(url)["committed"] == len(ROWS)


@pytest.mark.thorough
def test_a_stream_that_is_killed_before_and_after_its_sink_releases_and_charges_once(
    java, spark, spark_settings, policy, key, url, tmp_path
):
    told = {"dataset": "films", "column": "review", "release": "1", "allow": ["cluster"], "key": key}
    mechanism = {"name": "custext", **policy.mechanism.model_dump(mode="json", exclude_unset=True)}
    asked = {"settings": spark_settings, "policy": {**told, "mechanism": mechanism}, "ledger": url}
    asked |= {"schema": SCHEMA, "folder": str(tmp_path)}
    arrive(tmp_path, "monday", ROWS)

    def run(die):
        command = [
            sys.executable,
            str(Path(__file__).parents[1] / "spark_stream.py"),
            json.dumps({**asked, "die": die}),
        ]
        env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=1500)
        assert done.returncode == (-signal.SIGKILL if die else 0), done.stderr[-4000:]

    run("before the sink")
    assert counts(url)["committed"] == len(ROWS)
    assert not (tmp_path / "released").exists()
    run("after the sink")
    assert not list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    run("")
    assert sink(spark, tmp_path) == [(n, text, 0) for n, text in enumerate(expected(policy))]
    assert counts(url)["records"] == counts(url)["committed"] == len(ROWS)
