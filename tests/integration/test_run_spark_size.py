"""A frame of a million rows: the driver's memory does not grow with it, and no rows are collected there."""

import json
import subprocess
import sys

import pytest

ROWS = 1_000_000
WORDS = 12
TEXT_BYTES = ROWS * WORDS * 7
"""About what the raw texts take; the released ones take as much again."""

DRIVER = """
import json, os, sys
values, settings, rows, words = json.loads(sys.argv[1])
os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"}
from pyspark.sql import SparkSession, functions as F
from dptext_etl import Policy
from udfs.spark import privatize_frame

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
privatize_frame(frame(rows, rows + 20_000), policy, sink=policy.sink + "-small", release="small")
small = peak()
summary = privatize_frame(frame(0, rows), policy)
print(json.dumps({"rows": summary.rows, "words": summary.words, "seconds": summary.seconds, "grown": peak() - small}))
"""


@pytest.mark.slow
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
    assert facts["grown"] < 1.5 * TEXT_BYTES  # raw and released rows together take twice as much, and more as objects
    with job.ledger() as ledger:
        assert ledger.verify().ok
