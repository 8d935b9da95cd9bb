"""SQL functions bound to a ledger: charged before they return, once, whatever Spark does to its tasks."""

import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from dptext_etl import ColumnPolicy, Ledger, _kernel, privatize
from dptext_etl.errors import BudgetError, InputError, LedgerError, PolicyError
from dptext_etl.ledger import Scope
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.policy import Cap, LedgerSpec

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed (extra: spark)")

from dptext_etl.engines.spark.carried import Carried  # noqa: E402
from dptext_etl.engines.spark.ledger_url import is_file, opened  # noqa: E402
from dptext_etl.spark import register as register_as  # noqa: E402
from dptext_etl.spark import worker  # noqa: E402

FORM = "arrow" if tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1) else "pandas"
ROWS = [(f"r{i}", f"a good film number {'again ' * (i % 3)}", f"u{i % 4}", i) for i in range(60)]
CLUSTER = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: "spark://head:7077"))
LOCAL = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: "local[2]"))


@pytest.fixture
def key(tmp_path):
    _kernel.Secret().write(str(tmp_path / "noise.key"))
    return f"file:{tmp_path / 'noise.key'}"


@pytest.fixture
def policy(key):
    return ColumnPolicy(
        dataset="films", column="review", release="1", mechanism=CusText.example(), key=key, allow={"cluster"}
    )


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def films(spark):
    frame = spark.createDataFrame(ROWS, "id string, review string, user string, n int").repartition(2)
    frame.createOrReplaceTempView("films")
    return spark


def register(spark, name, policy, **terms):
    return register_as(spark, name, policy, **{"form": FORM, **terms})


def texts(rows=ROWS):
    return pa.array([row[1] for row in rows])


def ids(rows=ROWS):
    return pa.array([row[0] for row in rows])


def expected(policy):
    return privatize(texts(), ids(), policy).to_pylist()


def column(spark, query):
    return [row[0] for row in spark.sql(query).collect()]


def counts(url):
    with Ledger.open(url, create=False) as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        return report.counts


def charged(url, people=("u0", "u1", "u2", "u3"), unit="subject"):
    """Millionths of epsilon that each person has been charged."""
    with Ledger.open(url, create=False) as ledger:
        return ledger.used(Scope("films", unit=unit), pa.array(people))["eps_pure"].tolist()


def epsilon_of(user):
    return sum(2_000_000 * len(text.split()) for _, text, owner, _ in ROWS if owner == user)


EVERYBODY = [epsilon_of(f"u{i}") for i in range(4)]
QUERY = "SELECT private_review(review, id, user) FROM films ORDER BY n"


def test_rows_are_charged_to_their_subjects_and_committed(films, policy, url):
    register(films, "private_review", policy, ledger=url, cap=Cap(epsilon=10_000))
    assert column(films, QUERY) == expected(policy)
    assert charged(url) == EVERYBODY
    found = counts(url)
    assert found["records"] == found["committed"] == len(ROWS)


def test_a_query_run_again_costs_nothing_and_releases_the_same(films, policy, url):
    register(films, "private_review", policy, ledger=url, cap=Cap(epsilon=10_000))
    first = column(films, QUERY)
    register(films, "again", policy, ledger=url, cap=Cap(epsilon=10_000), form="pandas", spend=True)
    assert column(films, QUERY) == first
    assert column(films, "SELECT again(review, id, user).text FROM films ORDER BY n") == first
    assert charged(url) == EVERYBODY
    assert counts(url)["committed"] == len(ROWS)


def test_two_columns_of_a_record_draw_apart_and_add_up(films, policy, url):
    other = policy.model_copy(update={"column": "summary"})
    register(films, "private_review", policy, ledger=url, cap=Cap(epsilon=10_000))
    register(films, "private_summary", other, ledger=url, cap=Cap(epsilon=10_000))
    out = films.sql(
        "SELECT private_review(review, id, user) a, private_summary(review, id, user) b FROM films ORDER BY n"
    )
    rows = out.collect()
    assert [row.a for row in rows] == expected(policy)
    assert [row.b for row in rows] == expected(other)
    assert all(row.a != row.b for row in rows)
    assert charged(url) == [2 * epsilon for epsilon in EVERYBODY]


def test_rows_over_the_cap_come_back_null(films, policy, url):
    register(films, "private_review", policy, ledger=url, cap=Cap(epsilon=40), spend=True)
    rows = films.sql("SELECT user, r.* FROM (SELECT user, private_review(review, id, user) r FROM films)").collect()
    assert any(row.text is None for row in rows)
    assert all((row.text is None) == (row.positions is None) == (row.epsilon is None) for row in rows)
    for user, used in zip(("u0", "u1", "u2", "u3"), charged(url), strict=True):
        paid = sum(row.epsilon for row in rows if row.user == user and row.text is not None)
        assert used == paid * 1e6
        assert 28 <= paid <= 40


def test_rows_over_the_cap_stop_the_query_if_asked(films, policy, url):
    register(films, "private_review", policy, ledger=url, cap=Cap(epsilon=40), on_cap="refuse")
    with pytest.raises(Exception, match=r"BudgetError(.|\n)*would exceed the cap"):
        films.sql(QUERY).collect()
    assert all(used <= 40_000_000 for used in charged(url))


def test_records_can_stand_for_themselves(films, policy, url):
    register(films, "private_review", policy, ledger=LedgerSpec(url=url), unit="record")
    assert column(films, "SELECT private_review(review, id) FROM films ORDER BY n") == expected(policy)
    assert counts(url)["committed"] == len(ROWS)


def test_the_ledger_may_be_named_by_reference(films, policy, url, monkeypatch):
    monkeypatch.setenv("DPTEXT_TEST_LEDGER_URL", url)
    with pytest.raises(LedgerError, match="DPTEXT_NOWHERE must hold the URL"):
        register(films, "private_review", policy, ledger="env:DPTEXT_NOWHERE")
    function = register(films, "private_review", policy, ledger="env:DPTEXT_TEST_LEDGER_URL")
    carried = function.func.__closure__[0].cell_contents
    assert "env:DPTEXT_TEST_LEDGER_URL" in carried
    assert "ledger.db" not in carried


def fail_after_rows(folder):
    """Pass rows on, and end the first attempt of every task after it has passed all of them."""

    def passing(batches):
        from pyspark import TaskContext

        task = TaskContext.get()
        for batch in batches:
            (Path(folder) / f"{task.partitionId()}-{task.attemptNumber()}").touch()
            yield batch
        if task.attemptNumber() == 0:
            msg = "the executor is gone"
            raise RuntimeError(msg)

    return passing


def test_a_task_that_fails_after_its_rows_is_retried_for_nothing(films, policy, url, tmp_path):
    register(films, "private_review", policy, ledger=url, cap=Cap(epsilon=10_000))
    (tmp_path / "attempts").mkdir()
    released = films.sql("SELECT n, private_review(review, id, user) AS review FROM films")
    out = released.mapInArrow(fail_after_rows(str(tmp_path / "attempts")), "n int, review string").collect()
    assert {path.name for path in (tmp_path / "attempts").iterdir()} >= {"0-0", "0-1", "1-0", "1-1"}
    assert [row.review for row in sorted(out)] == expected(policy)
    assert charged(url) == EVERYBODY
    assert counts(url)["committed"] == len(ROWS)


class TestOnTheWorker:
    """The worker's half alone, in this process."""

    @pytest.fixture(autouse=True)
    def _one_thread(self, monkeypatch):
        monkeypatch.setenv("DPTEXT_THREADS", "1")

    def carried(self, policy, url, **terms):
        ledger = register_only(policy, url, **terms)
        return ledger.written()

    def test_an_interrupted_batch_is_completed_by_the_next_attempt(self, policy, url, monkeypatch):
        carried = self.carried(policy, url)
        people = pa.array([row[2] for row in ROWS])
        monkeypatch.setattr("dptext_etl.spark.charged.column.release", interrupted)
        with pytest.raises(KeyboardInterrupt):
            worker.release(carried, texts(), ids(), people)
        assert counts(url)["pending"] == len(ROWS)
        monkeypatch.undo()
        assert worker.release(carried, texts(), ids(), people).to_pylist() == expected(policy)
        assert counts(url)["committed"] == len(ROWS)
        assert charged(url) == EVERYBODY

    def test_changed_texts_are_refused_and_charge_nothing(self, policy, url):
        carried = self.carried(policy, url, unit="record")
        worker.release(carried, texts(ROWS[:5]), ids(ROWS[:5]))
        changed = pa.array(["sentinelword", *texts(ROWS[1:8]).to_pylist()])
        with pytest.raises(InputError, match="texts of 1 records changed") as caught:
            worker.release(carried, changed, ids(ROWS[:8]))
        assert "sentinelword" not in str(caught.value)
        assert counts(url)["committed"] == 5
        assert counts(url)["aborted"] == 3

    def test_other_bytes_than_committed_are_not_returned(self, policy, url, monkeypatch):
        carried = self.carried(policy, url, unit="record")
        worker.release(carried, texts(), ids())
        monkeypatch.setattr("dptext_etl.spark.charged.column.release", upper(worker.column.release))
        with pytest.raises(LedgerError, match="60 records, computed again, gave other bytes"):
            worker.release(carried, texts(), ids())

    def test_repeated_records_are_charged_once(self, policy, url):
        carried = self.carried(policy, url, unit="record")
        twice = worker.release(carried, pa.concat_arrays([texts()] * 2), pa.concat_arrays([ids()] * 2))
        assert twice.to_pylist() == expected(policy) * 2
        assert counts(url)["records"] == len(ROWS)

    def test_a_record_has_one_text_and_one_subject(self, policy, url):
        carried = self.carried(policy, url)
        with pytest.raises(InputError, match="several texts"):
            worker.release(carried, pa.array(["x", "y"]), pa.array(["a", "a"]), pa.array(["u", "u"]))
        with pytest.raises(InputError, match="several subjects"):
            worker.release(carried, pa.array(["x", "x"]), pa.array(["a", "a"]), pa.array(["u", "v"]))
        assert "records" not in counts(url) or counts(url)["records"] == 0

    def test_subjects_are_given_where_they_are_charged_and_only_there(self, policy, url):
        with pytest.raises(InputError, match="charges subjects and got none"):
            worker.release(self.carried(policy, url), texts(), ids())
        with pytest.raises(InputError, match="charges no subjects"):
            worker.release(self.carried(policy, url, unit="record"), texts(), ids(), ids())
        with pytest.raises(InputError, match="1 subject ids of a batch are null"):
            worker.release(self.carried(policy, url), pa.array(["x", "y"]), pa.array([1, 2]), pa.array(["u", None]))

    def test_ids_of_another_type_than_pinned_are_refused(self, policy, url):
        carried = self.carried(policy, url, unit="record")
        worker.release(carried, texts(), ids())
        with pytest.raises(LedgerError, match="type"):
            worker.release(carried, pa.array(["x"]), pa.array([1]))

    def test_another_ledger_in_its_place_is_refused(self, policy, url, tmp_path):
        carried = self.carried(policy, url)
        for path in tmp_path.glob("ledger.db*"):
            path.unlink()
        with pytest.raises(LedgerError, match="no ledger"):
            worker.release(carried, texts(), ids(), ids())
        Ledger.open(url).close()
        with pytest.raises(LedgerError, match="another one than the function was registered with"):
            worker.release(carried, texts(), ids(), ids())

    @pytest.mark.parametrize("charged_since", [True, False])
    def test_a_ledger_that_was_restored_is_noticed(self, policy, url, tmp_path, charged_since):
        """By the next function that is registered, and by a worker that finds it."""
        carried = self.carried(policy, url, unit="record")
        worker.release(carried, texts(ROWS[:20]), ids(ROWS[:20]))
        with Ledger.open(url) as ledger:
            ledger.backup(tmp_path / "copy")
        if charged_since:
            worker.release(carried, texts(ROWS[20:]), ids(ROWS[20:]))
        restore(tmp_path)
        worker.seat.cache_clear()
        if not charged_since:
            assert worker.release(carried, texts(), ids()).to_pylist() == expected(policy)
            self.carried(policy, url, unit="record")
            return
        for attempt in (
            lambda: worker.release(carried, texts(ROWS[:1]), ids(ROWS[:1])),
            lambda: self.carried(policy, url, unit="record"),
        ):
            with pytest.raises(LedgerError, match="the dataset films is frozen: this ledger does not hold"):
                attempt()
        with Ledger.open(url) as ledger:
            assert ledger.frozen() == ["films"]
            ledger.thaw("films", {"eps_pure": 100})
        with pytest.raises(LedgerError, match="release '1' of films is revoked"):
            worker.release(carried, texts(ROWS[:1]), ids(ROWS[:1]))
        again = policy.model_copy(update={"release": "2"})
        worker.release(self.carried(again, url, unit="record"), texts(ROWS[:1]), ids(ROWS[:1]))

    def test_a_worker_that_lives_on_looks_before_every_batch(self, policy, url, tmp_path):
        """As in a stream, whose server may fall back to an older state under it."""
        carried = self.carried(policy, url, unit="record")
        worker.release(carried, texts(ROWS[:20]), ids(ROWS[:20]))
        with sqlite3.connect(tmp_path / "ledger.db") as raw:
            raw.execute("delete from event where seq > (select max(seq) from event) - 2")  # the charge and its commit
        with pytest.raises(LedgerError, match="the dataset films is frozen: this ledger does not hold"):
            worker.release(carried, texts(ROWS[20:]), ids(ROWS[20:]))

    def test_no_text_is_computed_before_the_head_is_kept(self, policy, url, tmp_path, monkeypatch):
        carried = self.carried(policy, url, unit="record")
        (tmp_path / "taken").write_text("")
        monkeypatch.setenv("DPTEXT_ANCHORS", str(tmp_path / "taken"))
        monkeypatch.setattr("dptext_etl.spark.charged.column.release", interrupted)
        worker.seat.cache_clear()
        with pytest.raises(LedgerError, match="the head of the ledger cannot be kept in"):
            worker.release(carried, texts(), ids())

    def test_a_ledger_that_was_replaced_is_noticed(self, policy, url, tmp_path):
        worker.release(self.carried(policy, url, unit="record"), texts(), ids())
        for path in tmp_path.glob("ledger.db*"):
            path.unlink()
        with pytest.raises(LedgerError, match="the dataset films is frozen: this ledger does not hold"):
            self.carried(policy, url, unit="record")

    def test_the_folder_of_the_heads_may_be_named(self, policy, url, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        carried = self.carried(policy, LedgerSpec(url=url, anchors="safe"), unit="record")
        monkeypatch.chdir("/")
        worker.release(carried, texts(), ids())
        (place,) = (tmp_path / "safe").iterdir()
        assert [path.name for path in place.iterdir()] == ["films.json"]

    def test_over_the_cap_refuses(self, policy, url):
        carried = self.carried(policy, url, unit="record", cap=Cap(epsilon=9), on_cap="refuse")
        with pytest.raises(BudgetError, match="would exceed the cap"):
            worker.release(carried, texts(), ids())


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


def register_only(policy, ledger, session=LOCAL, **terms):
    """What `register` would carry, without a session."""
    from dptext_etl.engines.spark.shipping import ship
    from dptext_etl.spark.functions import _account

    asked = {"cap": None, "on_cap": "quarantine", "unit": "subject", **terms}
    spec = LedgerSpec(url=ledger) if isinstance(ledger, str) else ledger
    account = _account(session, policy, spec, **asked)
    return Carried.of(policy, ship(session, policy.mechanism.artifacts()), ledger=account)


@pytest.mark.parametrize(("url", "file"), [("a.db", True), ("sqlite:///a.db", True), ("postgresql://h/d", False)])
def test_which_urls_are_files(url, file):
    assert is_file(url) == file


def test_a_cluster_needs_a_ledger_on_a_server(url, tmp_path):
    with pytest.raises(LedgerError, match=r"a file of one machine(.|\n)*local master"):
        opened(CLUSTER, LedgerSpec(url=url))
    assert not (tmp_path / "ledger.db").exists()


def test_a_url_with_a_password_stays_out_of_plans(films, policy, monkeypatch):
    with pytest.raises(PolicyError, match="password") as caught:
        register(films, "private_review", policy, ledger="postgresql://user:hunter2@127.0.0.1:1/db")
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("DPTEXT_TEST_LEDGER_URL", "postgresql://user:hunter2@127.0.0.1:1/db")
    with pytest.raises(LedgerError) as caught:
        register(films, "private_review", policy, ledger="env:DPTEXT_TEST_LEDGER_URL")
    assert "hunter2" not in str(caught.value)


def test_a_ledger_in_postgresql_serves_any_master(postgres, policy, key, monkeypatch):
    monkeypatch.setenv("DPTEXT_THREADS", "1")
    monkeypatch.setenv("DPTEXT_TEST_LEDGER_URL", postgres.url(password=":pass-word"))
    spec = LedgerSpec(url="env:DPTEXT_TEST_LEDGER_URL", id_key=key)
    monkeypatch.setattr("dptext_etl.engines.spark.shipping.add_to_session", lambda spark, artifact, name: None)
    carried = register_only(policy, spec, session=CLUSTER, unit="record", cap=Cap(epsilon=10_000)).written()
    assert "pass-word" not in carried
    for _ in range(2):
        assert worker.release(carried, texts(), ids()).to_pylist() == expected(policy)
    with Ledger.open(spec.url, spec.id_key, create=False) as ledger:
        report = ledger.verify()
    assert report.ok, report.problems
    assert report.counts["records"] == report.counts["committed"] == len(ROWS)


def test_models_are_sent_to_a_run(policy, url, monkeypatch):
    monkeypatch.setattr(CusText, "reproducible", False)
    with pytest.raises(LedgerError, match="privatize_frame"):
        register_only(policy, url)


def test_a_cap_needs_a_ledger(films, policy):
    with pytest.raises(PolicyError, match="ledger="):
        register(films, "private_review", policy, cap=Cap(epsilon=1))


def test_a_stream_that_lost_its_checkpoint_replays_for_nothing(films, policy, url, tmp_path):
    register(films, "private_review", policy, ledger=url, cap=Cap(epsilon=10_000))
    source = films.table("films")
    source.write.parquet(str(tmp_path / "in"))

    def run(name):
        def publish(batch, number):
            released = batch.selectExpr("n", "private_review(review, id, user) AS review")
            released.write.mode("overwrite").parquet(f"{tmp_path / name}/batch={number}")

        stream = films.readStream.schema(source.schema).parquet(str(tmp_path / "in")).writeStream
        stream = stream.option("checkpointLocation", str(tmp_path / f"checkpoint {name}")).trigger(availableNow=True)
        stream.foreachBatch(publish).start().awaitTermination()
        return [row.review for row in films.read.parquet(str(tmp_path / name)).orderBy("n").collect()]

    assert run("first") == run("second") == expected(policy)
    assert charged(url) == EVERYBODY
    assert counts(url)["committed"] == len(ROWS)
