"""Roles of a ledger in PostgreSQL: each does its work, logged in as itself, and hears of missing rights."""

import re
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from dptext_etl.cli.app import app
from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Ledger, Outcome, Scope
from dptext_etl.ledger.storage.opening import require_writable
from dptext_etl.ledger.storage.postgres_sql import WRITES, database, grants, missing_grant, split_url
from dptext_etl.ledger.types import Event
from dptext_etl.policy import Cap

from .conftest import ID_KEY, Kit

KEY = f"env:{ID_KEY}"
DENIED = "permission denied on the ledger .*: it lacks"


@pytest.fixture(scope="module")
def admin(postgres):
    """A superuser's connection, and a login for each role."""
    with psycopg.connect(postgres.url().partition("?")[0], autocommit=True, client_encoding="UTF8") as connection:
        for role in ("the owner", "o'writer", "steward", 'au"ditor', "stranger"):
            connection.execute(psycopg.sql.SQL("create role {} login").format(psycopg.sql.Identifier(role)))
        yield connection


@pytest.fixture
def place(postgres):
    return postgres.url()


def as_role(place, role):
    return place.replace("dptext@", f"{role.replace(' ', '%20').replace(chr(34), '%22').replace(chr(39), '%27')}@")


def granted(admin, place, kind, name):
    done = CliRunner().invoke(app, ["ledger", "grants", "--role", kind, "--to", name, "--ledger", place])
    assert done.exit_code == 0, done.output
    admin.execute(done.stdout)


def ready(admin, place):
    """A ledger that its owner made, with a writer, a steward, and an auditor."""
    granted(admin, place, "owner", "the owner")
    Ledger.open(as_role(place, "the owner"), KEY).close()
    granted(admin, place, "writer", "o'writer")
    granted(admin, place, "steward", "steward")
    granted(admin, place, "auditor", 'au"ditor')
    return Kit(as_role(place, "o'writer")), as_role(place, 'au"ditor')


def test_the_migrations_that_ship_give_the_roles_their_rights(admin, place):
    """Repeatable, as migrations are; schema and database have other names in a test."""
    folder = Path(__file__).resolve().parents[2] / "deploy" / "postgres"
    conninfo, schema = split_url(place)
    names = {'"dptext"': f'"{database(conninfo)}"', "dptext_ledger": schema}
    roles, rights = (
        re.sub("|".join(names), lambda found: names[found[0]], (folder / name).read_text(encoding="utf-8"))
        for name in ("V1__roles.sql", "R__grants.sql")
    )
    admin.execute(roles)
    for role in ("owner", "writer", "steward", "auditor"):
        admin.execute(f"create role the_{role} login in role dptext_{role}")
    admin.execute("alter role the_owner set role dptext_owner")
    Ledger.open(as_role(place, "the_owner"), KEY).close()
    admin.execute(rights)
    admin.execute(rights)
    kit = Kit(as_role(place, "the_writer"))
    ref = kit.ref(refundable=True)
    assert ref
    with Ledger.open(as_role(place, "the_auditor"), KEY, read_only=True) as ledger:
        assert ledger.verify().ok
    with Ledger.open(as_role(place, "the_writer"), KEY) as ledger:
        ledger.losses.freeze("reviews", "lost")
        with pytest.raises(LedgerError, match="only a steward may do this"):
            ledger.losses.thaw("reviews", {}, reason="found")


def test_a_writer_does_all_that_writers_do(admin, place):
    kit, _ = ready(admin, place)
    ref = kit.ref(refundable=True)
    cap = Cap(epsilon=900, period="2026")
    for turn in range(2):
        ids = [f"{turn}-{row}" for row in range(20)]
        assert set(kit.reserve(ids, [f"p{row}" for row in range(20)], 2, cap=cap, refs=[ref])) == {Outcome.RESERVED}
        kit.commit(ids[:15], ref=ref, spent=[1_000_000] * 15)
    ids = pa.array(["0-0", "0-1"])
    step = {"name": "again", "cfg": "ab" * 32, "model_hash": "cd" * 32, "training_provenance": "public"}
    kit.ledger.post("job", ref, "ef" * 32, [step], ids, kit.keys(ref, ids.to_pylist()))
    kit.ledger.releases.record_publication(ref, "v1", "ab" * 32, 30)
    kit.ledger.releases.retire([ref], "v", "v2", "cd" * 32, 20)
    kit.ledger.people.forget("reviews", pa.array(["0-0"]), pa.array([], pa.string()))
    kit.ledger.expire("job")
    kit.reserve(["late"], refs=[ref], job="late")
    kit.ledger.abort("late", compute_never_started=True, reason="never computed")
    kit.ledger.agree_on_cap(Scope("notes"), Cap(epsilon=9))
    kit.ledger.releases.revoke(kit.ref(release="r2"), "no longer wanted")
    kit.ledger.losses.freeze("reviews", "by hand")
    kit.sound()
    store = kit.db.store
    for statement, lacks in (("update event set body=''", "UPDATE"), ("delete from event", "DELETE")):
        with pytest.raises(LedgerError, match=f"{DENIED} {lacks} on the table event"):
            store.execute(statement)
    with pytest.raises(LedgerError, match=f"{DENIED} CREATE on the schema"):
        store.execute("create table other(a int)")
    kit.ledger.close()


SCOPE = Scope("reviews", "2026")
DECISIONS = (
    lambda ledger: ledger.losses.thaw("songs", {}, reason="nothing was lost"),
    lambda ledger: ledger.set_cap(SCOPE, Cap(epsilon=99, period="2026"), raising=True, reason="more"),
    lambda ledger: ledger.set_cap(SCOPE, Cap(epsilon=7, period="2026"), reason="less"),
    lambda ledger: ledger.people.readmit("reviews", pa.array(["a"]), "by mistake"),
    lambda ledger: ledger.people.accept_units("reviews", {"eps_pure": 1.0}, "accounts were merged"),
)


def test_only_a_steward_decides_and_the_journal_names_the_steward(admin, place):
    kit, _ = ready(admin, place)
    kit.reserve(["a", "b"], cap=9)
    kit.ledger.people.forget("reviews", pa.array(["a"]), pa.array([], pa.string()))
    kit.ledger.losses.freeze("songs", "by hand", alone=True)
    steward = Kit(as_role(place, "steward"))
    for decide in DECISIONS:
        with pytest.raises(
            LedgerError, match="only a steward may do this\nHint: `dptext ledger grants --role steward`"
        ):
            decide(kit.ledger)
        decide(steward.ledger)
    for ask in (kit.ledger.require_cap, kit.ledger.agree_on_cap):  # a plan, and a run
        with pytest.raises(LedgerError, match="only a steward"):
            ask(SCOPE, Cap(epsilon=2, period="2026"), lowering=True)
    history = {(event["kind"], event["change"]): event for event in steward.ledger.reports.history()}
    first, raised = history["CAP_SET", "first"], history["CAP_SET", "higher"]
    assert (first["user"], first["before"], first["after"]) == ("o'writer", None, {"eps_pure": 9})
    assert (raised["user"], raised["before"], raised["after"]) == ("steward", {"eps_pure": 9}, {"eps_pure": 99})
    assert (raised["reason"], raised["of"]) == ("more", "dataset:reviews, period 2026")
    assert raised["server_ts"][:10] == raised["at"][:10]
    assert {history[kind, None]["user"] for kind in ("THAW", "READMIT", "UNITS")} == {"steward"}
    kit.sound()
    steward.ledger.close()
    kit.ledger.close()


FORGED = "insert into event values(99, '{}', '', '')"


def test_a_writer_changes_neither_what_is_sealed_nor_what_a_steward_decides(admin, place):
    kit, _ = ready(admin, place)
    kit.reserve(["a", "b"], cap=9)
    kit.ledger.losses.freeze("songs", "by hand", alone=True)
    store = kit.db.store
    for statement, lacks in (
        ("update scope set limits=''", "UPDATE on the table scope\nHint: `dptext ledger grants --role steward`"),
        ("delete from frozen", "DELETE on the table frozen"),
        ("delete from meta", "DELETE on the table meta"),
        *((FORGED.format(kind), "INSERT on the table event") for kind in ("THAW", "UNITS", "READMIT")),
    ):
        with pytest.raises(LedgerError, match=lacks):
            store.execute(statement)
    before = store.rows("select * from segment order by seq, name")
    assert before
    for statement in ("delete from segment", "update segment set data=''", "update segment set seq=-seq"):
        store.execute(statement)
    assert store.rows("select * from segment order by seq, name") == before
    kit.sound()
    facts = {"scope": 1, "dataset": "reviews", "name": "dataset:reviews", "period": "2026", "unit": "subject"}
    with store.transaction():  # as SQL could
        kit.db.journal.append(Event.CAP_SET, **facts, measure="pure", limits=[99_000_000])
    with pytest.raises(LedgerError, match="the caps of the ledger differ from its journal"):
        kit.reserve(["c"], cap=9)
    kit.ledger.close()


def test_an_auditor_reads_everything_and_hears_what_it_lacks(admin, place, tmp_path):
    kit, auditor = ready(admin, place)
    kit.reserve(["a", "b"], cap=9)
    kit.commit(["a"])
    with Ledger.open(auditor, KEY, create=False, read_only=True) as ledger:
        assert ledger.verify().ok
        assert ledger.reports.write_tables(tmp_path / "tables")["record"] == 2
        assert ledger.reports.show() == kit.ledger.reports.show()
        assert ledger.reports.export() == kit.ledger.reports.export()
    eager = Kit(auditor)  # not asked to be read-only
    ref = kit.ref()
    for act, lacks in (
        (lambda: eager.reserve(["c"], cap=9, refs=[ref]), "INSERT on the table segment"),
        (lambda: eager.commit(["b"], ref=ref), "INSERT on the table segment"),
        (lambda: eager.ledger.losses.freeze("reviews", "by hand"), "INSERT on the table event"),
    ):
        with pytest.raises(LedgerError, match=f"{DENIED} {lacks}") as caught:
            act()
        assert "dptext ledger grants --role writer" in str(caught.value)
    eager.ledger.close()
    kit.sound()
    kit.ledger.close()


def test_a_stranger_hears_what_it_lacks(admin, place):
    stranger = as_role(place, "stranger")
    with pytest.raises(
        LedgerError, match=f"{DENIED} CREATE on the database\nHint: `dptext ledger grants --role owner`"
    ):
        Ledger.open(stranger, KEY)
    kit, _ = ready(admin, place)
    with pytest.raises(LedgerError, match="lacks USAGE on the schema"):
        Ledger.open(stranger, KEY)
    admin.execute(f"grant usage on schema {place.rpartition('=')[2]} to stranger")
    with pytest.raises(LedgerError, match=f"{DENIED} SELECT on the table meta\nHint: .* --role auditor"):
        Ledger.open(stranger, KEY)
    kit.ledger.close()


def test_an_owner_takes_over_a_ledger_of_another_role(admin, place):
    kit = Kit(place)
    kit.reserve(["a"], cap=9)
    kit.ledger.close()
    granted(admin, place, "owner", "the owner")
    owned = Kit(as_role(place, "the owner"))
    assert owned.reserve(["a", "b"], cap=9) == [Outcome.PENDING, Outcome.RESERVED]
    owned.db.store.execute("alter table meta add column extra int")
    owned.db.store.execute("alter table meta drop column extra")
    owned.sound()
    owned.ledger.close()


def test_an_earlier_version_is_brought_up_to_date_by_its_owner_alone(admin, place):
    kit, _ = ready(admin, place)
    kit.reserve(["a"], cap=9)
    kit.ledger.close()
    schema, owner = place.rpartition("=")[2], Kit(as_role(place, "the owner"))
    for table in ("run", "run_part"):
        owner.db.store.execute(f"create table {table}(id integer)")
    owner.db.store.set_meta("schema", "3")
    owner.ledger.close()
    for use in (lambda: Kit(kit.place), lambda: require_writable(kit.place)):
        with pytest.raises(LedgerError, match="`dptext ledger init`"):
            use()
    assert admin.execute(f"select count(*) from pg_tables where schemaname='{schema}'").fetchone() == (14,)
    done = CliRunner().invoke(app, ["ledger", "init", "--ledger", as_role(place, "the owner"), "--id-key", KEY])
    assert done.exit_code == 0, done.output
    kit = Kit(kit.place)
    assert kit.reserve(["a", "b"], cap=9) == [Outcome.PENDING, Outcome.RESERVED]
    kit.sound()
    kit.ledger.close()


def test_every_table_has_a_grant(kit):
    if "://" in kit.place:
        assert set(WRITES) == set(kit.db.store.columns())


def test_names_are_quoted():
    assert 'ON DATABASE "my ""db""" TO "o\'x";' in grants("auditor", "o'x", 'my "db"', "ledger")
    assert "''o''''x''" in grants("owner", "o'x", "db", "ledger")  # a string within a string


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("insert or replace into meta values(?,?)", "INSERT and UPDATE on the table meta"),
        ("select seq, (select 1) from batch where seq=?", "SELECT on the table batch"),
        ("update tally set records=?", "UPDATE on the table tally"),
        ("\n  delete from segment where seq=?", "DELETE on the table segment"),
        ("create table other(id int)", "CREATE on the schema"),
    ],
)
def test_what_is_lacking_follows_from_the_statement(statement, said):
    assert missing_grant(statement)[0] == f"it lacks {said}"


def test_a_file_has_no_roles(tmp_path):
    for url, said in ((str(tmp_path / "l.db"), "has no roles"), ("postgresql://u:secret@h", "names no database")):
        done = CliRunner().invoke(app, ["ledger", "grants", "--role", "writer", "--ledger", url])
        assert done.exit_code == 5
        assert said in done.output
        assert "secret" not in done.output
