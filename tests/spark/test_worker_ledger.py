"""The worker's half of a function bound to a ledger, in this process: charge, wait, and notice another ledger."""

import json
import sqlite3
from types import SimpleNamespace

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import Ledger, _kernel
from dptext_etl.checks import CANARY
from dptext_etl.engines.spark import tasks
from dptext_etl.errors import BudgetError, DPTextError, InputError, KeyReferenceError, LedgerError, LockedLedgerError
from dptext_etl.ledger.releases import RESTORE, Releases
from dptext_etl.ledger.storage import store
from dptext_etl.policy import Cap, LedgerSpec
from dptext_etl.runner.shard.shard import ShardResult
from dptext_etl.spark import worker
from tests.later import later

from .films import EVERYBODY, ROWS, charged, counts, expected, ids, register_only, texts

later("pyspark", reason="pyspark is not installed (extra: spark)")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    monkeypatch.setenv("DPTEXT_THREADS", "1")


def plan_of(policy, url, **terms):
    """The part of a plan that reaches the worker."""
    return register_only(policy, url, **terms).written()


def test_an_interrupted_batch_is_completed_by_the_next_attempt(policy, url, monkeypatch):
    carried = plan_of(policy, url)
    people = pa.array([row[2] for row in ROWS])
    monkeypatch.setattr("dptext_etl.spark.worker.column.release", interrupted)
    with pytest.raises(KeyboardInterrupt):
        worker.release(carried, texts(), ids(), people)
    assert counts(url)["pending"] == len(ROWS)
    monkeypatch.undo()
    assert worker.release(carried, texts(), ids(), people).to_pylist() == expected(policy)
    assert (counts(url)["committed"], charged(url)) == (len(ROWS), EVERYBODY)


@pytest.mark.parametrize("unit", ["subject", "record"])
def test_a_second_evaluation_only_reads_the_ledger(policy, url, monkeypatch, unit):
    carried = plan_of(policy, url, unit=unit)
    people = [pa.array([row[2] for row in ROWS])] if unit == "subject" else []
    first = worker.release(carried, texts(), ids(), *people).to_pylist()
    with monkeypatch.context() as patched:
        for name in ("reserve", "commit", "examine"):
            patched.setattr(Ledger, name, refused)
        assert worker.release(carried, texts(), ids(), *people).to_pylist() == first == expected(policy)
        with pytest.raises(DPTextError, match="AssertionError"):
            worker.release(carried, pa.concat_arrays([texts(), pa.array(["more"])]), more(ids()), *map(more, people))
    with Ledger.open(url) as ledger:
        assert ledger.verify().ok
        ledger.losses.freeze(policy.dataset, "drill")
    with pytest.raises(LedgerError, match="frozen"):
        worker.release(carried, texts(), ids(), *people)


def refused(*_, **__):
    raise AssertionError("a batch that is committed is written again")


def more(array):
    return pa.concat_arrays([array, pa.array(["one more"], array.type)])


def test_changed_texts_are_refused_and_charge_nothing(policy, url):
    carried = plan_of(policy, url, unit="record")
    worker.release(carried, texts(ROWS[:5]), ids(ROWS[:5]))
    changed = pa.array(["sentinelword", *texts(ROWS[1:8]).to_pylist()])
    with pytest.raises(InputError, match="texts of 1 record changed") as caught:
        worker.release(carried, changed, ids(ROWS[:8]))
    assert "sentinelword" not in str(caught.value)
    assert (counts(url)["committed"], counts(url)["aborted"]) == (5, 3)


def test_fewer_draws_than_were_charged_are_not_committed(policy, url, monkeypatch):
    real = worker.column.release

    def cut(*given):
        """One word of each text, counted after the cut."""
        out = real(*given)
        words = pa.array([text.split()[0] for text in out.text.to_pylist()], out.text.type)
        return out._replace(text=words, positions=pa.array([1] * len(words), out.positions.type))

    monkeypatch.setattr("dptext_etl.spark.worker.column.release", cut)
    with pytest.raises(LedgerError, match=f"{len(ROWS)} texts were released with another number of draws"):
        worker.release(plan_of(policy, url, unit="record"), texts(), ids())
    assert counts(url)["committed"] == 0


def test_repeated_records_are_charged_once_and_forgotten_ones_are_null(policy, url):
    carried = plan_of(policy, url, unit="record")
    twice = worker.release(carried, pa.concat_arrays([texts()] * 2), pa.concat_arrays([ids()] * 2))
    assert (twice.to_pylist(), counts(url)["records"]) == (expected(policy) * 2, len(ROWS))
    carried = plan_of(policy, url, unit="record")
    worker.release(carried, texts(), ids())
    with pytest.raises(LedgerError, match="type"):
        worker.release(carried, pa.array(["x"]), pa.array([1]))
    carried = plan_of(policy, url, unit="record")
    first = worker.release(carried, texts(), ids()).to_pylist()
    with Ledger.open(url) as ledger:
        ledger.people.forget(policy.dataset, ids(ROWS[:2]), pa.array([], pa.large_string()))
    assert worker.release(carried, texts(), ids()).to_pylist() == [None, None, *first[2:]]


def test_a_record_has_one_text_and_one_subject_where_these_are_charged(policy, url):
    carried = plan_of(policy, url)
    with pytest.raises(InputError, match="several texts"):
        worker.release(carried, pa.array(["x", "y"]), pa.array(["a", "a"]), pa.array(["u", "u"]))
    with pytest.raises(InputError, match="several subjects"):
        worker.release(carried, pa.array(["x", "x"]), pa.array(["a", "a"]), pa.array(["u", "v"]))
    assert "records" not in counts(url) or counts(url)["records"] == 0
    with pytest.raises(InputError, match="charges subjects and got none"):
        worker.release(plan_of(policy, url), texts(), ids())
    with pytest.raises(InputError, match="charges no subjects"):
        worker.release(plan_of(policy, url, unit="record"), texts(), ids(), ids())
    with pytest.raises(InputError, match="1 subject ids of a batch are null"):
        worker.release(plan_of(policy, url), pa.array(["x", "y"]), pa.array([1, 2]), pa.array(["u", None]))


def test_other_texts_bytes_or_persons_than_committed_are_refused(policy, url, monkeypatch):
    carried = plan_of(policy, url)
    people = pa.array([row[2] for row in ROWS])
    worker.release(carried, texts(), ids(), people)
    with pytest.raises(LedgerError, match="4 of 4 records were charged to another subject before"):
        worker.release(carried, texts(ROWS[:4]), ids(ROWS[:4]), pa.array(["zoe"] * 4))
    assert (charged(url, ("zoe",)), charged(url)) == ([0], EVERYBODY)
    monkeypatch.setattr("dptext_etl.spark.worker.column.release", upper(worker.column.release))
    with pytest.raises(LedgerError, match="60 records, computed again, gave other bytes"):
        worker.release(carried, texts(), ids(), people)


def test_a_function_spells_subjects_as_a_policy_does(policy, url):
    """Charges to a spelling are charges to the person, who is in the ledger under one hash."""
    spelled = pa.array(["Zo\u00eb ", "zoe\u0308", "STRASSE", "stra\u00dfe"])
    carried = plan_of(policy, url, normalize=("nfc", "casefold", "strip"))
    for at in (0, 2):  # the form is pinned by the first batch, and met by the second
        worker.release(carried, texts(ROWS[at : at + 2]), ids(ROWS[at : at + 2]), spelled.slice(at, 2))
    words = [2_000_000 * len(row[1].split()) for row in ROWS[:4]]
    assert charged(url, ("zo\u00eb", "strasse", *spelled.to_pylist()[:2])) == [sum(words[:2]), sum(words[2:]), 0, 0]
    with pytest.raises(LedgerError, match=r"pinned as string \(normalized: nfc, casefold, strip\), got string"):
        worker.release(plan_of(policy, url), texts(ROWS[4:5]), ids(ROWS[4:5]), pa.array(["zoe"]))


def test_a_view_pins_the_columns_of_ids(policy, url):
    names = {"record": "id", "subject": "user"}
    worker.release(plan_of(policy, url, id_columns=names), texts(ROWS[:1]), ids(ROWS[:1]), pa.array(["u0"]))
    other = plan_of(policy, url, id_columns={**names, "subject": "email"})
    with pytest.raises(LedgerError, match="are pinned as column 'user', got column 'email'"):
        worker.release(other, texts(ROWS[1:2]), ids(ROWS[1:2]), pa.array(["u1@x"]))


def test_a_ledger_in_another_state_or_place_is_refused(policy, url, tmp_path, monkeypatch):
    carried = plan_of(policy, url)
    for path in tmp_path.glob("ledger.db*"):
        path.unlink()
    with pytest.raises(LedgerError, match="no ledger"):
        worker.release(carried, texts(), ids(), ids())
    Ledger.open(url).close()
    with pytest.raises(LedgerError, match="another one than the function was registered with"):
        worker.release(carried, texts(), ids(), ids())
    carried = plan_of(policy, url, unit="record")
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("DPTEXT_ANCHORS", str(tmp_path / "taken"))
    monkeypatch.setattr("dptext_etl.spark.worker.column.release", interrupted)
    worker.function_state.cache_clear()
    with pytest.raises(LedgerError, match="the anchor of the ledger cannot be stored in"):
        worker.release(carried, texts(), ids())


@pytest.mark.parametrize("charged_since", [True, False])
def test_a_ledger_that_was_restored_is_noticed(policy, url, tmp_path, charged_since):
    """By the next function that is registered, and by a worker that finds it."""
    carried = plan_of(policy, url, unit="record")
    worker.release(carried, texts(ROWS[:20]), ids(ROWS[:20]))
    with Ledger.open(url) as ledger:
        ledger.backup(tmp_path / "copy")
    if charged_since:
        worker.release(carried, texts(ROWS[20:]), ids(ROWS[20:]))
    restore(tmp_path)
    worker.function_state.cache_clear()
    if not charged_since:
        assert worker.release(carried, texts(), ids()).to_pylist() == expected(policy)
        plan_of(policy, url, unit="record")
        return
    for attempt in (
        lambda: worker.release(carried, texts(ROWS[:1]), ids(ROWS[:1])),
        lambda: plan_of(policy, url, unit="record"),
    ):
        with pytest.raises(LedgerError, match="the dataset films is frozen: this ledger misses the anchor"):
            attempt()
    with Ledger.open(url) as ledger:
        assert ledger.losses.frozen() == ["films"]
        ledger.losses.thaw("films", {"eps_pure": 100})
    with pytest.raises(LedgerError, match="release '1' of films is revoked"):
        worker.release(carried, texts(ROWS[:1]), ids(ROWS[:1]))
    again = policy.model_copy(update={"release": "2"})
    worker.release(plan_of(again, url, unit="record"), texts(ROWS[:1]), ids(ROWS[:1]))


def test_a_worker_that_lives_on_looks_before_every_batch(policy, url, tmp_path):
    """As in a stream, whose server may fall back to an older state under it."""
    carried = plan_of(policy, url, unit="record")
    worker.release(carried, texts(ROWS[:20]), ids(ROWS[:20]))
    with sqlite3.connect(tmp_path / "ledger.db") as raw:
        raw.execute("delete from event where seq > (select max(seq) from event) - 2")  # the charge and its commit
    with pytest.raises(LedgerError, match="the dataset films is frozen: this ledger misses the anchor"):
        worker.release(carried, texts(ROWS[20:]), ids(ROWS[20:]))


def test_a_ledger_that_was_replaced_is_noticed(policy, url, tmp_path):
    worker.release(plan_of(policy, url, unit="record"), texts(), ids())
    for path in tmp_path.glob("ledger.db*"):
        path.unlink()
    with pytest.raises(LedgerError, match="the dataset films is frozen: this ledger misses the anchor"):
        plan_of(policy, url, unit="record")


def test_the_folder_of_the_anchors_may_be_named(policy, url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    carried = plan_of(policy, LedgerSpec(url=url, anchors="safe"), unit="record")
    monkeypatch.chdir("/")
    worker.release(carried, texts(), ids())
    assert len([*(tmp_path / "safe").glob("*.json")]) == 1


def test_over_the_cap_refuses(policy, url):
    carried = plan_of(policy, url, unit="record", cap=Cap(epsilon=9), on_cap="refuse")
    with pytest.raises(BudgetError, match="would exceed the cap"):
        worker.release(carried, texts(), ids())


def locked_for(times, real):
    """Find the ledger locked `times` times, then continue."""
    left = [times]

    def call(*args, **options):
        if left[0]:
            left[0] -= 1
            raise LockedLedgerError("locked")
        return real(*args, **options)

    return call


@pytest.mark.parametrize("step", ["register", "reserve", "commit"])
def test_a_batch_waits_for_a_lock(policy, url, monkeypatch, step):
    carried = plan_of(policy, url, unit="record")
    monkeypatch.setattr(store, "RETRY_SECONDS", 0)
    place = Releases if step == "register" else Ledger
    monkeypatch.setattr(place, step, locked_for(50, getattr(place, step)))
    assert worker.release(carried, texts(), ids()).to_pylist() == expected(policy)
    assert counts(url)["committed"] == counts(url)["records"] == len(ROWS)


class Notices:
    """The messages of the tasks of a run, in memory."""

    def __init__(self):
        self.stopped, self.rows = False, []

    def require(self):
        pass

    def stop(self):
        self.stopped = True

    def done(self, number, rows):
        self.rows.append(rows)


@pytest.mark.parametrize("error", [LockedLedgerError("locked"), LedgerError("revoked")])
def test_a_task_of_a_run_waits_for_a_lock_and_stops_at_a_refusal(monkeypatch, error):
    messages, tried = Notices(), []

    def done(*_):
        tried.append(1)
        if len(tried) <= 50:
            raise error
        return ShardResult(7, {}, None)

    monkeypatch.setattr(store, "RETRY_SECONDS", 0)
    monkeypatch.setattr(tasks, "pieces", lambda *_: iter([(0, pl.DataFrame({CANARY: [False] * 7}))]))
    monkeypatch.setattr(tasks, "policies", lambda *_: (None, None))
    monkeypatch.setattr(tasks, "coarsened", lambda rows, *_: rows)
    config = SimpleNamespace(
        messages=messages,
        names=(),
        most=1,
        step=1,
        open=lambda _: (done, lambda: None),
        policy="",
        columns=(),
        bundled=False,
        zones={},
    )
    (said,) = tasks.records(config, iter(()))
    if isinstance(error, LockedLedgerError):
        assert (tasks.read(said)["rows"], messages.rows, messages.stopped) == (7, [7], False)
    else:
        assert (json.loads(said.cells)[:2], len(tried), messages.stopped) == (["LedgerError", "revoked"], 1, True)


def restore(folder):
    """Put the copy in the place of the ledger."""
    for path in folder.glob("ledger.db*"):
        if path.suffix != ".key":
            path.unlink()
    (folder / "copy").rename(folder / "ledger.db")


def interrupted(*_):
    raise KeyboardInterrupt


def upper(release):
    def shouting(*arguments):
        done = release(*arguments)
        return done._replace(text=pa.array([text.upper() for text in done.text.to_pylist()], pa.large_string()))

    return shouting


def other_key(policy, folder):
    _kernel.Secret().write(str(folder / "other.key"))
    return policy.model_copy(update={"key": f"file:{folder / 'other.key'}"})


def test_another_key_is_refused_by_name(policy, url, tmp_path):
    worker.release(plan_of(policy, url, unit="record"), texts(ROWS[:5]), ids(ROWS[:5]))
    before = counts(url)
    other = plan_of(other_key(policy, tmp_path), url, unit="record")
    with pytest.raises(KeyReferenceError, match="was made under another noise key") as caught:
        worker.release(other, texts(ROWS[5:8]), ids(ROWS[5:8]))
    assert (caught.value.hint, counts(url)) == (RESTORE, before)
