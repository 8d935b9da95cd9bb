"""Runs whose ledger is in PostgreSQL: the same release, one charge; plans say which rights a role lacks."""

import json
import re

import psycopg
import pytest
from typer.testing import CliRunner

from dptext_etl import Ledger, _kernel
from dptext_etl.errors import LedgerError
from dptext_etl.ledger.ledger import require_writable
from dptext_etl.ledger.storage.postgres import WRITES, grants

from ..refusals import foretold, same_refusal

VARIABLE = "DPTEXT_LEDGER_SECRET_URL"


@pytest.fixture
def ledger(postgres, tmp_path, monkeypatch):
    """A ledger as a policy names it: only by references."""
    monkeypatch.setenv(VARIABLE, postgres.url(password=":pass-word"))
    _kernel.Secret().write(str(tmp_path / "ids.key"))
    return {"url": f"env:{VARIABLE}", "id_key": f"file:{tmp_path / 'ids.key'}"}


def test_a_run_gives_the_same_release_and_charges_once(make_job, ledger):
    here, there = make_job("here"), make_job("there")
    expected = here.run()
    first = there.run(ledger=ledger)
    again = there.run(ledger=ledger)
    assert (first.rows["new"], again.rows["new"], again.rows["replayed"]) == (240, 0, 240)
    assert first.spend["largest_record"] == expected.spend["largest_record"]
    published = {path: data for path, data in here.files().items() if path.endswith(".parquet")}
    assert published == {path: data for path, data in there.files().items() if path.endswith(".parquet")}
    with Ledger.open(ledger["url"], ledger["id_key"]) as book:
        report = book.verify()
        assert (report.problems, report.counts["pending"]) == ([], 0)
    assert b"pass-word" not in b"".join(there.files("").values())


def test_the_command_line_reads_it(make_job, ledger):
    from dptext_etl.cli.app import app

    job = make_job()
    job.run(ledger=ledger)
    for command in (["show"], ["remaining", "--subject", "u001"], ["verify"], ["export"]):
        arguments = ["ledger", *command, "--ledger", ledger["url"], "--id-key", ledger["id_key"], "--json"]
        outcome = CliRunner().invoke(app, arguments)
        assert outcome.exit_code == 0, outcome.output
        assert "pass-word" not in outcome.output
        json.loads(outcome.stdout)


def test_a_plan_makes_no_ledger(make_job, ledger, postgres):
    from dptext_etl.ledger.ledger import ledger_exists
    from dptext_etl.runner import plan

    job = make_job()
    plan(job.policy(ledger=ledger))
    assert not ledger_exists(ledger["url"])


ROLE = "clerk"


@pytest.fixture(scope="module")
def admin(postgres):
    """A superuser's connection, and a login without rights."""
    with psycopg.connect(postgres.url().partition("?")[0], autocommit=True, client_encoding="UTF8") as connection:
        connection.execute(f"create role {ROLE} login")
        yield connection


@pytest.fixture
def url(postgres):
    return postgres.url()


@pytest.fixture
def ledgers(url, tmp_path):
    """The ledger as its owner names it, and as the role does."""
    _kernel.Secret().write(str(tmp_path / "ids.key"))
    key = {"id_key": f"file:{tmp_path / 'ids.key'}"}
    return {"url": url, **key}, {"url": url.replace("dptext@", f"{ROLE}@"), **key}


def grant(admin, url, kind):
    admin.execute(grants(kind, ROLE, "postgres", url.rpartition("=")[2]))


@pytest.mark.parametrize("made", [False, True])
def test_a_role_that_may_not_make_a_ledger(job, admin, url, ledgers, made):
    if made:
        schema = url.rpartition("=")[2]
        admin.execute(f"create schema {schema}; grant usage on schema {schema} to {ROLE}")
    error = same_refusal(job, {"ledger": ledgers[1]}, LedgerError)
    assert f"it lacks CREATE on the {'schema' if made else 'database'}" in error.message
    assert "grants --role owner" in error.hint


def test_an_auditor_may_not_write(job, admin, url, ledgers):
    Ledger.open(ledgers[0]["url"], ledgers[0]["id_key"]).close()
    grant(admin, url, "auditor")
    error = same_refusal(job, {"ledger": ledgers[1]}, LedgerError)
    assert "it lacks INSERT on the table event" in error.message
    assert "grants --role writer" in error.hint


def test_each_right_that_a_run_needs_is_asked_for(admin, url, ledgers):
    Ledger.open(ledgers[0]["url"], ledgers[0]["id_key"]).close()
    grant(admin, url, "writer")
    for table, right in ((table, right) for table, rights in WRITES.items() for right in rights.split(", ") if right):
        place = f"{url.rpartition('=')[2]}.{table}"
        admin.execute(f"revoke {right} on {place} from {ROLE}")
        with pytest.raises(LedgerError, match=re.escape(f"it lacks {right} on the table {table}")):
            require_writable(ledgers[1]["url"])
        admin.execute(f"grant {right} on {place} to {ROLE}")


def test_a_writer_is_not_in_the_way(job, admin, url, ledgers):
    Ledger.open(ledgers[0]["url"], ledgers[0]["id_key"]).close()
    grant(admin, url, "writer")
    assert foretold(job, ledger=ledgers[1]) is None
    assert job.run(ledger=ledgers[1]).rows["new"] == 240


def test_a_stranger(job, admin, ledgers):
    Ledger.open(ledgers[0]["url"], ledgers[0]["id_key"]).close()
    error = same_refusal(job, {"ledger": ledgers[1]}, LedgerError)
    assert "lacks USAGE on the schema" in error.message
