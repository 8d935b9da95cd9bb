"""A plan over a PostgreSQL ledger says what a role may not do, as its run does, and asks without writing."""

import psycopg
import pytest

from dptext_etl import Ledger, _kernel
from dptext_etl.errors import LedgerError
from dptext_etl.ledger.storage.opening import require_writable
from dptext_etl.ledger.storage.postgres_sql import WRITES, grants

from ..refusals import foretold, same_refusal

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
    assert "it lacks INSERT and UPDATE on the table meta" in error.message
    assert "grants --role writer" in error.hint


def test_each_right_that_a_run_needs_is_asked_for(admin, url, ledgers):
    Ledger.open(ledgers[0]["url"], ledgers[0]["id_key"]).close()
    grant(admin, url, "writer")
    for table, right in ((table, right) for table, rights in WRITES.items() for right in rights.split(", ")):
        place = f"{url.rpartition('=')[2]}.{table}"
        admin.execute(f"revoke {right} on {place} from {ROLE}")
        with pytest.raises(LedgerError, match=f"it lacks {right} on the table {table}"):
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
