"""Tasks of a run on Spark: attempts that meet, die, or outlive their run; gates and parts on executors."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from dptext_etl import Policy, _kernel, errors
from dptext_etl.checks import CANARY, gate
from dptext_etl.checks.comparison import counted
from dptext_etl.engines import stage
from dptext_etl.engines.spark import tasks
from dptext_etl.engines.spark.spark_engine import SparkEngine, WriteConfig, draft
from dptext_etl.engines.spark.tasks import (
    Pack,
    TaskConfig,
    batches_of,
    exchange,
    packed,
    policy_json,
    read,
    records,
    totals,
)
from dptext_etl.engines.spark.worker_policy import WorkerPolicy
from dptext_etl.errors import DPTextError, InputError, KeyReferenceError, LedgerError, LockedLedgerError
from dptext_etl.files import sha256
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.storage import store
from dptext_etl.runner import check, publish
from dptext_etl.runner.publish.publication import judge_here
from dptext_etl.runner.shard.attempt import Attempt
from dptext_etl.runner.shard.shard import ShardResult
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.spark import run_frame

from ..object_store import remote
from ..toy_mechanisms import toys  # noqa: F401  (a fixture)
from .spark_runs import frame_of
from .test_run_staged_files import forge_draws


def done(record):
    return ShardResult.of_json(read(record))


class Bench:
    """The tasks of a run, without Spark: what one of them is given, and as many attempts at it as wanted."""

    def __init__(self, staging_job):
        self.policy = staging_job.policy(shard_rows=1000)
        attempt = Attempt.of(self.policy, None)
        attempt.layout.staging.prepare()
        with Ledger.open(self.policy.ledger.url) as ledger:
            refs = attempt.register(ledger, "string", None)
        columns = tuple(WorkerPolicy.of(item, {}).written() for item in attempt.columns)
        raw = pl.read_parquet(self.policy.source)
        names = ("id", "stars", "review", "note", "user_id")
        marks = {"__dptext_canary": False, "__dptext_shard": pl.lit(0, pl.Int32)}
        self.batches = raw.select(*names).with_columns(**marks).to_arrow().to_batches(max_chunksize=100)
        self.order = TaskConfig(
            policy=policy_json(self.policy),
            columns=columns,
            names=names,
            refs=refs,
            job=attempt.job,
            staging=attempt.layout.staging,
            step=1,
            most=1000,
            phase="release",
            checkpoint=lambda _: None,
        )
        self.order.messages.create()

    def attempt(self):
        return records(self.order, iter(self.batches))

    def staged(self):
        return {*self.order.staging.glob("shard-*.parquet")}


@pytest.fixture(params=["folder", "store"])
def staging_job(request, make_job):
    """A job that stages in a folder, or in an object store."""
    staging_job = make_job()
    if request.param == "store":
        store = request.getfixturevalue("store")
        staging_job.values.update(
            remote(staging_job, store, source=staging_job.values["source"], staging="s3://bucket/inside")
        )
    return staging_job


@pytest.fixture
def drifting(monkeypatch):
    """A mechanism that gives other bytes whenever it computes again, as a model on another machine may."""
    from dptext_etl.families.stored_distributions import MappedMechanism
    from dptext_etl.mechanism import Released

    real, calls = MappedMechanism.release, []

    def release(self, texts, keys):
        calls.append(self)
        released = real(self, texts, keys)
        turned = released.text.take([*range(len(calls), len(released.text)), *range(len(calls))])
        return Released(turned, released.positions)

    monkeypatch.setattr(MappedMechanism, "release", release)
    return calls


def test_two_attempts_one_after_the_other_release_the_first_bytes(staging_job, drifting):
    bench = Bench(staging_job)
    first, second = (done(next(bench.attempt())) for _ in range(2))
    assert (first.staged, first.outcomes["RESERVED"], second.outcomes["COMMITTED"]) == (second.staged, 240, 240)
    assert len(drifting) == 2  # two columns, computed once
    assert len(bench.staged()) == 1


@pytest.mark.parametrize("step", ["computed", "staged", "committed"])
def test_an_attempt_that_was_overtaken_gives_way(staging_job, drifting, step):
    """Speculation: while one attempt is between two steps, another one does all of it."""
    bench = Bench(staging_job)
    overtaken = []

    def checkpoint(name):
        if name == step and not overtaken:
            overtaken.append(None)
            overtaken.append(done(next(bench.attempt())))

    slow = done(next(records(replace(bench.order, checkpoint=checkpoint), iter(bench.batches))))
    fast = overtaken[1]
    assert slow.staged == fast.staged
    with staging_job.ledger() as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        assert {(row["records"], row["committed"]) for row in ledger.reports.show()} == {(240, 240)}


def test_an_attempt_that_died_between_two_columns_is_finished_by_the_next(staging_job, drifting):
    bench = Bench(staging_job)

    def checkpoint(name):
        if name == "committed":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(records(replace(bench.order, checkpoint=checkpoint), iter(bench.batches)))
    with staging_job.ledger() as ledger:
        assert sorted(row["committed"] for row in ledger.reports.show()) == [0, 240]
    assert done(next(bench.attempt())).outcomes["PENDING"] == 240
    assert len(drifting) == 2
    with staging_job.ledger() as ledger:
        assert [row["committed"] for row in ledger.reports.show()] == [240, 240]


def test_what_was_staged_and_then_changed_is_not_taken_up(staging_job, drifting):
    bench = Bench(staging_job)
    done(next(bench.attempt()))
    storage = bench.order.staging
    (name,) = storage.glob("shard-*.parquet")
    storage.put(name, storage.local_path(name).read_bytes()[:-1])
    with pytest.raises(LedgerError, match="gave other bytes"):
        done(next(bench.attempt()))


def test_a_task_that_outlived_its_run_stops(staging_job, drifting):
    bench = Bench(staging_job)
    tasks = bench.attempt()
    bench.order.messages.create()
    bench.order.messages.stop()
    assert list(tasks) == []
    assert not drifting
    bench.order.messages.remove()
    with pytest.raises(Exception, match="cannot use the staging folder"):
        done(next(bench.attempt()))


def test_only_names_and_references_travel(staging_job, sentinel):
    bench = Bench(staging_job)
    carried = json.dumps([bench.order.policy, bench.order.columns])
    key = (staging_job.folder / "noise.key").read_text().strip()
    assert key not in carried
    assert sentinel not in carried
    secretive = staging_job.policy(storage_options={"endpoint": "hunter2hunter2"})
    assert "hunter2" not in policy_json(secretive)
    sent = bench.policy.model_copy(update={"storage_options": {}})
    assert Policy.parse(json.loads(bench.order.policy)) == sent
    assert "not-to-be-printed" not in repr(bench.order)


@pytest.mark.parametrize("step", ["open", "judge"])
def test_a_look_waits_for_a_ledger_that_is_busy(staging_job, monkeypatch, step):
    bench = Bench(staging_job)
    looking = replace(bench.order, phase="look")
    looking.messages.create()
    expected = read(next(records(looking, iter(bench.batches))))
    tried, real = [], getattr(Ledger, step)

    def busy(*given, **options):
        tried.append(1)
        if len(tried) <= 3:
            raise LockedLedgerError("locked")
        return real(*given, **options)

    monkeypatch.setattr(store, "RETRY_SECONDS", 0)
    monkeypatch.setattr(Ledger, step, busy)
    assert read(next(records(looking, iter(bench.batches)))) == expected
    assert expected["answers"] == {"RESERVED": 240}
    assert len(tried) > 3


@pytest.mark.usefixtures("toys")
def test_draws_that_were_forged_between_two_attempts_charge_nothing_less(make_job):
    pytest.importorskip("pyspark", reason="pyspark is not installed (extra: spark)")
    steps = {"name": "steps", "epsilon": 2.0}
    staging_job = make_job(column=[{"name": name, "mechanism": steps} for name in ("review", "note")])
    bench, failing = Bench(staging_job), DPTextError("stopped")

    def stop(name):
        if name == "staged":
            raise failing

    with pytest.raises(DPTextError):
        next(records(replace(bench.order, checkpoint=stop), iter(bench.batches)))
    forge_draws(staging_job.folder / "published.staging")
    done(next(bench.attempt()))
    staging = Staging(bench.order.staging)
    (name,) = sorted(bench.staged(), key=lambda name: (staging.folder / name).stat().st_mtime)[-1:]
    rows = pl.read_parquet(staging.folder / name).filter(~pl.col("__dptext_canary"))
    words = rows.select(pl.sum_horizontal(pl.col("review", "note").str.split(" ").list.len().fill_null(0)).sum()).item()
    with staging_job.ledger() as ledger:
        people = pl.read_parquet(staging_job.folder / "raw.parquet")["user_id"].unique()
        used = ledger.used(Scope.of(bench.policy), people.to_arrow())["eps_pure"]
        assert ledger.verify().ok
    assert used.sum() == 2_000_000 * words


@pytest.mark.parametrize("kind", [errors.UnavailableError, errors.DiskError, errors.InputError])
def test_what_a_retry_can_mend_is_tried_again_by_spark_and_refused_at_its_last_attempt(staging_job, monkeypatch, kind):
    bench, attempt = Bench(staging_job), iter((0, 1, 2))
    monkeypatch.setattr(tasks, "attempt_number", lambda: next(attempt))

    def fail(_):
        raise kind("it is so", "do that")

    failing = replace(bench.order, checkpoint=fail)
    for _ in range(2 if kind.transient else 0):
        with pytest.raises(kind, match="it is so"):
            next(records(failing, iter(bench.batches), 3))
        assert not failing.messages.stopped
    with pytest.raises(kind, match="it is so"):
        done(next(records(failing, iter(bench.batches), 3)))
    assert failing.messages.stopped


def test_a_task_stores_anchors_in_the_store_of_its_staging(make_job, store):
    staging_job = make_job()
    spec = {"url": f"sqlite:///{staging_job.folder / 'ledger.db'}", "anchors": "s3://bucket/anchors"}
    staging_job.values.update(
        remote(staging_job, store, source=staging_job.values["source"], staging="s3://bucket/inside", ledger=spec)
    )
    bench = Bench(staging_job)
    before = {name: held for name, held in store.objects.items() if name.startswith("anchors/")}
    assert done(next(bench.attempt())).outcomes["RESERVED"] == 240
    assert len(before) == 1
    assert all(store.objects[name] != held for name, held in before.items())


def test_a_refusal_keeps_its_class_and_exit_code():
    frozen = tasks.refused(errors.FrozenLedgerError("the dataset is frozen"))
    with pytest.raises(errors.FrozenLedgerError, match="the dataset is frozen"):
        tasks.read(tasks.facts_pack(tasks.REFUSED, frozen))


def test_a_machine_with_another_key_is_refused(make_job):
    staging_job = make_job()
    bench = Bench(staging_job)
    _kernel.Secret().write(str(staging_job.folder / "other.key"))
    other = bench.policy.model_copy(update={"key": f"file:{staging_job.folder / 'other.key'}"})
    with pytest.raises(KeyReferenceError, match="was made under another noise key"):
        done(next(records(replace(bench.order, policy=policy_json(other)), iter(bench.batches))))
    assert staging_job.charged() == dict.fromkeys(("review", "note"), (0, 0))


def edited(staged, at, change):
    """The staged run after a defect changed one shard, in one file, and its record."""
    staging, shard = Staging(staged.layout.staging), staged.shards[at]
    path = staging.path(shard)
    change([pl.read_parquet(staging.path(item)) for item in staged.shards]).write_parquet(path)
    changed = replace(shard, sha256=sha256(path))
    return replace(staged, shards=(*staged.shards[:at], changed, *staged.shards[at + 1 :]))


def no_listener(_):
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
        here = judge_here(run, candidate, no_listener)
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
    assert (counts["repeated"], counts["conflicting"]) == (120, 60)
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
    staged = stage(other.policy(), engine=SparkEngine(frame_of(spark, other)))
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
    assert (found[0], len(found)) == (state, 2)
