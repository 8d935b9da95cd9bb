"""A frame of a million rows: the driver's memory does not grow with it, and no rows are collected there.

`test_run_spark.py` sees what the driver is sent, with fewer rows.
"""

import json
import subprocess
import sys

import pytest

ROWS = 1_000_000
WORDS = 12
TEXT_BYTES = ROWS * WORDS * 7
"""About what the raw texts take; the released ones take as much again."""

LEDGER_BYTES = 400 << 20
"""Gates look every record up: the ledger's cache and the index of a release, whatever the texts are."""

DRIVER = """
import json, os, sys
values, settings, rows, words = json.loads(sys.argv[1])
os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"}
from pyspark.sql import SparkSession, functions as F
from dptext_etl import Policy
from dptext_etl.spark import run_frame
from dptext_etl.runner import check, publish
from dptext_etl.spark.spark_frame import stage_frame

def frame(first, last):
    numbers = [(F.xxhash64("id", F.lit(i)) % 50 + 50).cast("int") for i in range(words)]
    letters = [F.concat(F.lit("word"), F.chr(97 + n / 26), F.chr(97 + n % 26)) for n in numbers]
    text = F.concat_ws(" ", *letters).alias("review")
    return spark.range(first, last).select("id", (F.col("id") % 9973).alias("user_id"), text)

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) << 10

spark = SparkSession.builder.master("local[2]").getOrCreate()
policy = Policy.parse(values)
run_frame(frame(rows, rows + 20_000), policy, sink=policy.sink + "-small", release="small")
small = peak()
staged = stage_frame(frame(0, rows), policy)
before = peak()
published = publish(staged, check(staged))
words = sum(shard.counts["words"] for shard in staged.shards)
facts = {"rows": staged.rows, "words": words, "published": published.rows}
print(json.dumps(facts | {"grown": before - small, "judged": peak() - small}))
"""


@pytest.mark.thorough
def test_the_driver_stays_small(java, spark_settings, make_job):
    job = make_job("million")
    column = job.policy().columns[0].model_dump(mode="json")
    policy = job.policy(keep=None, column=[column], shard_rows=25_000, cap={"measure": "pure", "epsilon": 1e6})
    settings = " ".join(f"--conf '{name}={value}'" for name, value in spark_settings.items())
    given = json.dumps([policy.model_dump(mode="json", by_alias=True), settings, ROWS, WORDS])
    done = subprocess.run([sys.executable, "-c", DRIVER, given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    facts = json.loads(done.stdout)
    assert facts["rows"]["released"] == ROWS
    assert facts["words"] == ROWS * WORDS
    assert facts["published"] == ROWS
    assert facts["grown"] < TEXT_BYTES / 4  # what went through Spark; the raw rows would need four times as much
    assert facts["judged"] < LEDGER_BYTES
    with job.ledger() as ledger:
        assert ledger.verify().ok
