"""Tasks of a run on Spark, one by one: attempts that meet, die, or outlive their run."""

import json
from dataclasses import replace

import polars as pl
import pytest

from dptext_etl import Policy, _kernel, errors
from dptext_etl.engines.spark import tasks
from dptext_etl.engines.spark.tasks import TaskConfig, policy_json, read, records
from dptext_etl.engines.spark.worker_policy import WorkerPolicy
from dptext_etl.errors import DPTextError, KeyReferenceError, LedgerError, LockedLedgerError
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.anchor_files import FrozenError
from dptext_etl.ledger.storage import store
from dptext_etl.runner.shard.attempt import Attempt
from dptext_etl.runner.shard.shard import ShardResult
from dptext_etl.runner.shard.staging import Staging

from ..object_store import remote
from ..toy_mechanisms import toys  # noqa: F401  (a fixture)
from .test_run_staged_files import forge_draws


def done(record):
    return ShardResult(**read(record))


class Bench:
    """The tasks of a run, without Spark: what one of them is given, and as many attempts at it as wanted."""

    def __init__(self, job):
        self.policy = job.policy(shard_rows=1000)
        attempt = Attempt.of(self.policy, None)
        attempt.layout.staging.prepare()
        with Ledger.open(self.policy.ledger.url) as ledger:
            refs = attempt.register(ledger, "string")
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
            memory=attempt.layout.memory,
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
def job(request, make_job):
    """A job that stages in a folder, or in an object store."""
    job = make_job()
    if request.param == "store":
        store = request.getfixturevalue("store")
        job.values.update(remote(job, store, source=job.values["source"], staging="s3://bucket/inside"))
    return job


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


def test_two_attempts_one_after_the_other_release_the_first_bytes(job, drifting):
    bench = Bench(job)
    first, second = (done(next(bench.attempt())) for _ in range(2))
    assert first.shard == second.shard
    assert (first.outcomes["RESERVED"], second.outcomes["COMMITTED"]) == (240, 240)
    assert len(drifting) == 2  # two columns, computed once
    assert len(bench.staged()) == 1


@pytest.mark.parametrize("step", ["computed", "staged", "committed"])
def test_an_attempt_that_was_overtaken_gives_way(job, drifting, step):
    """Speculation: while one attempt is between two steps, another one does all of it."""
    bench = Bench(job)
    overtaken = []

    def checkpoint(name):
        if name == step and not overtaken:
            overtaken.append(None)
            overtaken.append(done(next(bench.attempt())))

    slow = done(next(records(replace(bench.order, checkpoint=checkpoint), iter(bench.batches))))
    fast = overtaken[1]
    assert slow.shard == fast.shard
    with job.ledger() as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        assert {(row["records"], row["committed"]) for row in ledger.reports.show()} == {(240, 240)}


def test_an_attempt_that_died_between_two_columns_is_finished_by_the_next(job, drifting):
    bench = Bench(job)

    def checkpoint(name):
        if name == "committed":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(records(replace(bench.order, checkpoint=checkpoint), iter(bench.batches)))
    with job.ledger() as ledger:
        assert sorted(row["committed"] for row in ledger.reports.show()) == [0, 240]
    assert done(next(bench.attempt())).outcomes["PENDING"] == 240
    assert len(drifting) == 2
    with job.ledger() as ledger:
        assert [row["committed"] for row in ledger.reports.show()] == [240, 240]


def test_what_was_staged_and_then_changed_is_not_taken_up(job, drifting):
    bench = Bench(job)
    done(next(bench.attempt()))
    storage = bench.order.staging
    (name,) = storage.glob("shard-*.parquet")
    storage.put(name, storage.local_path(name).read_bytes()[:-1])
    with pytest.raises(LedgerError, match="gave other bytes"):
        done(next(bench.attempt()))


def test_a_task_that_outlived_its_run_stops(job, drifting):
    bench = Bench(job)
    tasks = bench.attempt()
    bench.order.messages.create()
    bench.order.messages.stop()
    assert list(tasks) == []
    assert not drifting
    bench.order.messages.remove()
    with pytest.raises(Exception, match="cannot use the staging folder"):
        done(next(bench.attempt()))


def test_only_names_and_references_travel(job, sentinel):
    bench = Bench(job)
    carried = json.dumps([bench.order.policy, bench.order.columns])
    key = (job.folder / "noise.key").read_text().strip()
    assert key not in carried
    assert sentinel not in carried
    secretive = job.policy(storage_options={"endpoint": "hunter2hunter2"})
    assert "hunter2" not in policy_json(secretive)
    sent = bench.policy.model_copy(update={"storage_options": {}})
    assert Policy.parse(json.loads(bench.order.policy)) == sent
    assert "not-to-be-printed" not in repr(bench.order)


@pytest.mark.parametrize("step", ["open", "preview"])
def test_a_look_waits_for_a_ledger_that_is_busy(job, monkeypatch, step):
    bench = Bench(job)
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
    steps = {"name": "steps", "epsilon": 2.0}
    job = make_job(column=[{"name": name, "mechanism": steps} for name in ("review", "note")])
    bench, failing = Bench(job), DPTextError("stopped")

    def stop(name):
        if name == "staged":
            raise failing

    with pytest.raises(DPTextError):
        next(records(replace(bench.order, checkpoint=stop), iter(bench.batches)))
    forge_draws(job.folder / "published.staging")
    done(next(bench.attempt()))
    staging = Staging(bench.order.staging)
    (name,) = sorted(bench.staged(), key=lambda name: (staging.folder / name).stat().st_mtime)[-1:]
    rows = pl.read_parquet(staging.folder / name).filter(~pl.col("__dptext_canary"))
    words = rows.select(pl.sum_horizontal(pl.col("review", "note").str.split(" ").list.len().fill_null(0)).sum()).item()
    with job.ledger() as ledger:
        people = pl.read_parquet(job.folder / "raw.parquet")["user_id"].unique()
        used = ledger.used(Scope.of(bench.policy), people.to_arrow())["eps_pure"]
        assert ledger.verify().ok
    assert used.sum() == 2_000_000 * words


@pytest.mark.parametrize("kind", [errors.UnavailableError, errors.DiskError, errors.InputError])
def test_what_a_retry_can_mend_is_tried_again_by_spark_and_refused_at_its_last_attempt(job, monkeypatch, kind):
    bench, attempt = Bench(job), iter((0, 1, 2))
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


def test_a_task_stores_heads_in_the_store_of_its_staging(make_job, store):
    job = make_job()
    spec = {"url": f"sqlite:///{job.folder / 'ledger.db'}", "anchors": "s3://bucket/heads"}
    job.values.update(remote(job, store, source=job.values["source"], staging="s3://bucket/inside", ledger=spec))
    bench = Bench(job)
    before = {name: held for name, held in store.objects.items() if name.startswith("heads/")}
    assert done(next(bench.attempt())).outcomes["RESERVED"] == 240
    assert len(before) == 2
    assert all(store.objects[name] != held for name, held in before.items())


def test_a_refusal_keeps_its_class_and_exit_code():
    frozen = tasks.refused(FrozenError("the dataset is frozen"))
    with pytest.raises(errors.FrozenLedgerError, match="the dataset is frozen"):
        tasks.raise_refused(frozen)


def test_a_machine_with_another_key_is_refused(make_job):
    job = make_job()
    bench = Bench(job)
    _kernel.Secret().write(str(job.folder / "other.key"))
    other = bench.policy.model_copy(update={"key": f"file:{job.folder / 'other.key'}"})
    with pytest.raises(KeyReferenceError, match="was made under another noise key"):
        done(next(records(replace(bench.order, policy=policy_json(other)), iter(bench.batches))))
    assert job.charged() == dict.fromkeys(("review", "note"), (0, 0))
