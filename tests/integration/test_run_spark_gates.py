"""Gates and publication of a Spark run: executors read the staged rows and write the parts, the driver does neither."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from dptext_etl.checks import CANARY, gate
from dptext_etl.checks.comparison import counted
from dptext_etl.engines import stage
from dptext_etl.engines.spark.judging import Pack, batches_of, exchange, packed, totals
from dptext_etl.engines.spark.spark_engine import SparkEngine, WriteConfig, draft
from dptext_etl.errors import InputError
from dptext_etl.files import sha256
from dptext_etl.runner import check, publish
from dptext_etl.runner.publish.publication import judge_here
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.spark import run_frame
from dptext_etl.spark.spark_frame import stage_frame

from .spark_runs import frame_of


def edited(staged, at, change):
    """The staged run after a defect changed one shard, in one file, and its record."""
    staging, shard = Staging(staged.layout.staging), staged.shards[at]
    path = staging.path(shard)
    change([pl.read_parquet(staging.path(item)) for item in staged.shards]).write_parquet(path)
    changed = replace(shard, sha256=sha256(path))
    return replace(staged, shards=(*staged.shards[:at], changed, *staged.shards[at + 1 :]))


def nobody(_):
    pass


def again_in_another_shard(frames):
    """Rows of the first shard, half of them with another text: each shard by itself is in order."""
    other = pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.lit("wordaa wordab")).otherwise("review")
    return pl.concat([frames[1], frames[0].filter(~pl.col(CANARY)).with_columns(review=other)])


def raw(frames):
    """Canary rows that came through as they are, and a column that no one declared."""
    return frames[1].with_columns(review=pl.lit("zzqsentinelqzz"), size=pl.lit(1))


def unpaid(frames):
    """Rows whose ids the ledger never saw, next to rows of another column's text."""
    never = pl.when(pl.int_range(pl.len()) < 7).then("never-" + pl.col("id")).otherwise("id")
    return frames[1].with_columns(id=never, note=pl.when(pl.col(CANARY)).then("note").otherwise("review"))


def withheld(frames):
    """Nulls, and texts that are cut: their positions were committed."""
    half = pl.int_range(pl.len()) % 2 == 0
    return frames[1].with_columns(review=pl.when(half).then(pl.col("review").str.extract(r"^(\S+)")))


def unmarked(frames):
    return frames[1].drop(CANARY)


def test_executors_and_driver_say_together_what_one_process_says(spark, job):
    engine, policy = SparkEngine(frame_of(spark, job)), job.policy()
    staged = stage(policy)
    heard = []

    def both(run, candidate, seen):
        here = judge_here(run, candidate, nobody)
        heard.append((engine.judge(run, candidate, seen), here))
        return ()

    for defect in (again_in_another_shard, raw, unpaid, withheld, unmarked):
        check(edited(staged, 1, defect), judge=both)
        there, here = heard[-1]
        assert there == here, defect.__name__
        if defect is withheld:
            assert {one.name: one for one in there}["rows_ledgered"].counts["misshapen"] > 9
        assert not all(verdict.passed for verdict in here)
    counts = {verdict.name: verdict.counts for verdict in heard[0][0]}["one_text_per_record"]
    assert counts["repeated"] == 100
    assert counts["conflicting"] == 50
    ledgered = {verdict.name: verdict.counts for verdict in heard[2][0]}["rows_ledgered"]
    assert ledgered["uncommitted"] == 14
    assert ledgered["different"] > 50


@pytest.mark.thorough
def test_what_executors_refuse_is_refused_in_their_words(spark, job):
    staged = stage(job.policy())
    engine = SparkEngine(frame_of(spark, job))
    path = staged.parts[1]
    whole = path.read_bytes()
    path.write_bytes(whole + b" ")
    with pytest.raises(InputError, match="has changed since it was staged"):
        check(staged, judge=engine.judge)
    path.write_bytes(whole)
    verdicts = check(staged)
    path.write_bytes(whole + b" ")
    with pytest.raises(InputError, match="has changed since it was staged"):
        publish(staged, verdicts, write=engine.write)
    assert not list(job.folder.glob("published*/part-*"))
    path.write_bytes(whole)
    assert publish(staged, verdicts, write=engine.write).rows == 240
    assert not [file for file in job.files() if "elsewhere" in file or "incomplete" in file]


@pytest.mark.thorough
def test_a_driver_reads_no_staged_row_and_writes_no_part(spark, make_job, monkeypatch):
    job, other = make_job("spark"), make_job("here")

    def never(*_):
        raise AssertionError

    with monkeypatch.context() as driver:
        driver.setattr(gate, "batches", never)
        driver.setattr(Staging, "read", never)
        driver.setattr(Staging, "require", never)
        seen = []
        run_frame(frame_of(spark, job), job.policy(), progress=seen.append)
    last = {report.phase: report for report in seen}
    assert last["publish"].rows_done == 240
    assert 240 < last["gates"].rows_done == last["gates"].rows_total
    staged = stage_frame(frame_of(spark, other), other.policy())
    publish(staged, check(staged))
    assert [name for name in job.files() if "part-" in name]
    assert job.files() == other.files()


def test_two_attempts_at_a_part_do_not_meet(job):
    staged = stage(job.policy())
    folder = job.folder / "drafts"
    folder.mkdir()
    messages = type("Messages", (), {"stopped": False, "done": lambda *_: None})()
    order = WriteConfig(staged.layout.staging, staged.layout.staging, folder, "parquet", None, messages)
    packs = [pack for _ in range(2) for pack in draft(order, 0, staged.shards[0])]
    assert len({pack.name for pack in packs}) == 2
    assert [json.loads(pack.cells)[1] for pack in packs] == [sha256(folder / pack.name) for pack in packs]
    messages.stopped = True
    assert list(draft(order, 0, staged.shards[0])) == []


def test_digests_are_counted_across_tasks():
    rows = np.random.default_rng(0).integers(0, 256, (3000, 32), np.uint8)
    rows[1000:1400] = rows[:400]
    rows[1000:1200, 16:] += 1
    packs = [pack for part in np.array_split(rows, 7) for pack in packed("gate/0:ids", part)]
    packs.sort(key=lambda pack: pack[:3])
    state = Pack("states", "", 4, 0, b"state")
    found = [Pack(**row) for batch in exchange(batches_of([state, *packs])) for row in batch.to_pylist()]
    assert totals(found) == {"gate/0:ids": counted(rows)}
    assert found[0] == state
    assert len(found) == 2
