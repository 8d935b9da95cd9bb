"""SQL functions bound to a ledger: charged before they return, once, whatever Spark does to its tasks."""

from pathlib import Path

import pytest

from dptext_etl import Ledger
from dptext_etl.engines.spark.worker_policy import opened
from dptext_etl.errors import LedgerError, PolicyError
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.policy import Cap, LedgerSpec
from dptext_etl.spark import worker
from tests.later import later

from .film_queries import column
from .films import CLUSTER, EVERYBODY, QUERY, ROWS, charged, counts, expected, ids, register, register_only, texts

later("pyspark", reason="pyspark is not installed (extra: spark)")


@pytest.fixture
def films(spark):
    frame = spark.createDataFrame(ROWS, "id string, review string, user string, n int").repartition(2)
    frame.createOrReplaceTempView("films")
    return spark


def test_rows_are_charged_to_their_subjects_and_committed(films, policy, url):
    register(films, "private_review", policy, ledger=url, cap=Cap(epsilon=10_000))
    assert (column(films, QUERY), charged(url)) == (expected(policy), EVERYBODY)
    found = counts(url)
    assert found["records"] == found["committed"] == len(ROWS)


def test_rows_over_the_cap_come_back_null(films, policy, url):
    register(films, "private_review", policy, ledger=url, cap=Cap(epsilon=40), spend=True)
    rows = films.sql("SELECT user, r.* FROM (SELECT user, private_review(review, id, user) r FROM films)").collect()
    assert any(row.text is None for row in rows)
    assert all((row.text is None) == (row.positions is None) == (row.epsilon is None) for row in rows)
    for user, used in zip(("u0", "u1", "u2", "u3"), charged(url), strict=True):
        paid = sum(row.epsilon for row in rows if row.user == user and row.text is not None)
        assert used == paid * 1e6
        assert 28 <= paid <= 40


@pytest.mark.thorough
def test_rows_over_the_cap_stop_the_query_if_asked(films, policy, url):
    register(films, "private_review", policy, ledger=url, cap=Cap(epsilon=40), on_cap="refuse")
    with pytest.raises(Exception, match=r"BudgetError(.|\n)*would exceed the cap"):
        films.sql(QUERY).collect()
    assert all(used <= 40_000_000 for used in charged(url))


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


@pytest.mark.thorough
def test_a_task_that_fails_after_its_rows_is_retried_for_nothing(films, policy, url, tmp_path):
    register(films, "private_review", policy, ledger=url, cap=Cap(epsilon=10_000))
    (tmp_path / "attempts").mkdir()
    released = films.sql("SELECT n, private_review(review, id, user) AS review FROM films")
    out = released.mapInArrow(fail_after_rows(str(tmp_path / "attempts")), "n int, review string").collect()
    assert {path.name for path in (tmp_path / "attempts").iterdir()} >= {"0-0", "0-1", "1-0", "1-1"}
    assert ([row.review for row in sorted(out)], charged(url)) == (expected(policy), EVERYBODY)
    assert counts(url)["committed"] == len(ROWS)


def test_ledgers_and_caps_that_cannot_serve_are_refused(url, tmp_path, films, policy, monkeypatch):
    with pytest.raises(LedgerError, match=r"a file of one machine(.|\n)*local master"):
        opened(CLUSTER, LedgerSpec(url=url))
    assert not (tmp_path / "ledger.db").exists()
    with pytest.raises(PolicyError, match="password") as caught:
        register(films, "private_review", policy, ledger="postgresql://user:hunter2@127.0.0.1:1/db")
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("DPTEXT_TEST_LEDGER_URL", "postgresql://user:hunter2@127.0.0.1:1/db")
    with pytest.raises(LedgerError) as caught:
        register(films, "private_review", policy, ledger="env:DPTEXT_TEST_LEDGER_URL")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(PolicyError, match="ledger="):
        register(films, "private_review", policy, cap=Cap(epsilon=1))
    monkeypatch.setattr(CusText, "reproducible", False)
    with pytest.raises(LedgerError, match="run_frame"):
        register_only(policy, url)


@pytest.mark.thorough
def test_a_ledger_in_postgresql_serves_any_master(postgres, policy, key, monkeypatch):
    monkeypatch.setenv("DPTEXT_THREADS", "1")
    monkeypatch.setenv("DPTEXT_TEST_LEDGER_URL", postgres.url(password=":pass-word"))
    spec = LedgerSpec(url="env:DPTEXT_TEST_LEDGER_URL", id_key=key)
    monkeypatch.setattr("dptext_etl.engines.spark.worker_policy.add_to_session", lambda spark, artifact, name: None)
    carried = register_only(policy, spec, session=CLUSTER, unit="record", cap=Cap(epsilon=10_000)).written()
    assert "pass-word" not in carried
    for _ in range(2):
        assert worker.release(carried, texts(), ids()).to_pylist() == expected(policy)
    with Ledger.open(spec.url, spec.id_key, create=False) as ledger:
        report = ledger.verify()
    assert report.ok, report.problems
    assert report.counts["records"] == report.counts["committed"] == len(ROWS)


@pytest.mark.thorough
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
    assert (charged(url), counts(url)["committed"]) == (EVERYBODY, len(ROWS))
