"""Roles of a ledger in PostgreSQL: each does its work, logged in as itself, and hears of missing rights."""

import json
import re
from contextlib import nullcontext, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from dptext_etl.cli.app import app
from dptext_etl.errors import LedgerError
from dptext_etl.keys import IdForm
from dptext_etl.ledger import IdForms, Ledger, Outcome, Scope
from dptext_etl.ledger.ledger import require_writable
from dptext_etl.ledger.storage.journal import event_hash
from dptext_etl.ledger.storage.postgres import WRITES, database, grants, missing_grant, split_url
from dptext_etl.ledger.storage.store import COLUMNS
from dptext_etl.ledger.types import Event
from dptext_etl.policy import Cap

from ..ledger_kit import ID_KEY, Kit, UndoError

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed (extra: postgres)")

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
    kit.ledger.releases.record_publication(ref, "v1", "ab" * 32, 30, sink="here")
    kit.ledger.releases.retire([ref], "v", "v2", "cd" * 32, 20, sink="here")
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


@pytest.mark.thorough
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
    for rehearsed in (kit.ledger.rehearsal(), nullcontext()):  # a plan, and a run
        with pytest.raises(LedgerError, match="only a steward"), rehearsed:
            kit.ledger.agree_on_cap(SCOPE, Cap(epsilon=2, period="2026"), lowering=True)
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


def test_a_writer_changes_neither_what_is_sealed_nor_what_a_steward_decides(admin, place):
    kit, _ = ready(admin, place)
    kit.reserve(["a", "b"], cap=9)
    store = kit.db.store
    for statement, lacks in (
        ("update meta set value=''", "UPDATE on the table meta\nHint: `dptext ledger grants --role steward`"),
        ("delete from meta", "DELETE on the table meta"),
        ("update segment set data=''", "UPDATE on the table segment"),
        ("update event set body=''", "UPDATE on the table event"),
        ("delete from event", "DELETE on the table event"),
    ):
        with pytest.raises(LedgerError, match=lacks):
            store.execute(statement)
    before = store.rows("select * from segment order by seq, name")
    assert before
    for statement in ("delete from segment", "update segment set seq=-seq"):
        store.execute(statement)
    assert store.rows("select * from segment order by seq, name") == before
    kit.sound()
    kit.ledger.close()


def rows_of(batch, rows, **columns):
    """Facts of an event that names the first rows of a batch, and columns that follow a rule."""
    rules = {"batch": {"all": batch}, "row": {"from": 0}, **{name: {"all": value} for name, value in columns.items()}}
    return {"rows": rows, "root": "ab" * 32, "columns": rules, "batches": [batch]}


def forged(kit, kind, **facts):
    """Append an event that is chained as this library would: its writer has forgotten only the rules."""
    kit.db.journal.append(Event(kind), **facts)


def raw_event(kit, seq=None, kind="REPLAY", body=None, seal=None):
    """Insert an event by SQL."""
    last = kit.db.journal.last()
    seq = last.seq + 1 if seq is None else seq
    facts = {"seq": seq, "event": kind, "ts": "2026-01-01", "writer": "x", "job": "x", "attached": []}
    body = json.dumps(facts) if body is None else body
    seal = event_hash(last.hash, body) if seal is None else seal
    kit.db.store.execute("insert into event values(?,?,?,?)", (seq, kind, body, seal))


def insert_blob(kit, seq, name, then=None):
    kit.db.store.execute("insert into segment values(?,?,?)", (seq, name, bytes(2)))
    if then is not None:
        kit.db.store.execute("update segment set seq=? where seq=?", (then, seq))


IN_SCOPE = {"scope": 1, "dataset": "reviews", "name": "dataset:reviews", "period": "2026", "unit": "subject"}
NEW_SCOPE = IN_SCOPE | {"scope": 2, "period": "2027"}
MORE = {"measure": "pure", "limits": [99_000_000]}
OF_RELEASE = {"job": "job", "release": 1, "nonce": 0}
REFUNDABLE = OF_RELEASE | {"release": 2}
NAMES = {"dataset": "reviews", "column": "review", "release": "r1", "cfg": "c2", "id_type": "string"}
NAMES |= {"publishable": True, "facts": {}}
PERSON, PERSON_OF = ("dataset:reviews", "subject"), ("dataset:reviews", "reviews", "subject")
NEXT = lambda kit: kit.db.journal.last().seq + 1
SERVER = "permission denied"
PLACE = "it is in another place than it states"
ATTEMPTS = {
    ("event", "kind", "INSERT"): [
        ("moves rows of batch 7 that it cannot", lambda kit: forged(kit, "ABORT", **OF_RELEASE, **rows_of(7, 2))),
        ("names rows that batch 7 does not have", lambda kit: forged(kit, "ABORT", **OF_RELEASE, **rows_of(7, 9))),
        ("did not reserve", lambda kit: forged(kit, "ABORT", **OF_RELEASE, **rows_of(10, 1))),
        ("is not refundable", lambda kit: forged(kit, "SETTLE", **OF_RELEASE, **rows_of(7, 2, eps_pure=0))),
        ("that it cannot settle", lambda kit: forged(kit, "SETTLE", **REFUNDABLE, **rows_of(10, 1, eps_pure=0))),
        (SERVER, lambda kit: forged(kit, "CAP_SET", **IN_SCOPE, **MORE)),
        (SERVER, lambda kit: forged(kit, "CAP_SET", **NEW_SCOPE, **MORE)),
        ("has another name", lambda kit: forged(kit, "CAP_SET", **IN_SCOPE | {"name": "dataset:x"}, **MORE)),
        (
            "in a scope without one",
            lambda kit: forged(kit, "RESERVE", **OF_RELEASE, **NEW_SCOPE, canaries=0, **rows_of(7, 1)),
        ),
        ("pins a release name again", lambda kit: forged(kit, "RELEASE", release_id=3, **NAMES)),
        ("changes the pinned form", lambda kit: forged(kit, "ID_FORM", place=["scope", *PERSON], form="integer")),
        ("changes the pinned form", lambda kit: forged(kit, "ID_FORM", place=["name", *PERSON_OF], form="other")),
        (SERVER, lambda kit: forged(kit, "UNITS", dataset="reviews", scopes=["dataset:reviews"], lost={})),
        (SERVER, lambda kit: forged(kit, "READMIT", dataset="reviews", rows=0, columns={})),
        (SERVER, lambda kit: forged(kit, "THAW", dataset="reviews", lost={})),
        (PLACE, lambda kit: raw_event(kit, body=json.dumps({"seq": NEXT(kit), "event": "THAW"}))),
    ],
    ("event", "seq", "INSERT"): [
        (None, lambda kit: raw_event(kit, seq=-3)),
        ("are missing", lambda kit: raw_event(kit, seq=10**9)),
        ("UniqueViolation", lambda kit: raw_event(kit, seq=1)),
    ],
    ("event", "body", "INSERT"): [
        ("cannot be read", lambda kit: raw_event(kit, body="")),
        (PLACE, lambda kit: raw_event(kit, body=json.dumps({"seq": 1, "event": "REPLAY"}))),
        ("InvalidText", lambda kit: raw_event(kit, kind="CAP_SET", body="not JSON")),
    ],
    ("event", "hash", "INSERT"): [("the chain is broken here", lambda kit: raw_event(kit, seal=b"0" * 32))],
    ("segment", "seq", "INSERT"): [(SERVER, lambda kit: insert_blob(kit, NEXT(kit), "record"))],
    ("segment", "name", "INSERT"): [(SERVER, lambda kit: insert_blob(kit, 7, "eps_pure"))],
    ("segment", "data", "INSERT"): [(None, lambda kit: insert_blob(kit, -9, "unit"))],
    ("segment", "seq", "UPDATE"): [(SERVER, lambda kit: insert_blob(kit, -9, "eps_pure", 7))],
}
"""The most useful value for a writer in each column that it may write, and the answer of the server or the next run."""


def test_no_column_that_a_writer_may_write_passes_the_cap(admin, place):
    kit, _ = ready(admin, place)
    granted_columns = admin.execute(
        "select table_name, column_name, privilege_type from information_schema.column_privileges"
        " where grantee = %s and table_schema = %s and privilege_type <> 'SELECT'",
        ("o'writer", split_url(place)[1]),
    ).fetchall()
    assert {*granted_columns} == ATTEMPTS.keys(), "each column that a writer may write has attempts"
    ref, refundable = kit.ref(), kit.ref("title", refundable=True)
    forms = IdForms(IdForm("string"), IdForm("string"), {"subject": "person"})
    kit.reserve(["a", "b"], ["ann", "ann"], 3, cap=9, refs=[ref], forms=forms)
    kit.commit(["a", "b"], ref=ref)
    kit.reserve(["c"], ["ann"], 3, cap=9, refs=[refundable], forms=forms)
    kit.commit(["c"], ref=refundable, spent=[3_000_000])
    assert list(kit.db.contents.latest().batches) == [7, 10]
    for column, attempts in ATTEMPTS.items():
        for at, (expected, attempt) in enumerate(attempts):
            said = None
            with suppress(UndoError), kit.db.store.transaction():
                try:
                    attempt(kit)
                    outcome = kit.reserve(["late"], ["ann"], 1, cap=9, refs=[ref], forms=forms)
                except LedgerError as error:
                    said = error.message
                else:
                    assert outcome == [Outcome.OVER_CAP], (column, at)
                raise UndoError
            assert said is None if expected is None else expected in said, (column, at, said)
    assert kit.reserve(["late"], ["ann"], 1, cap=9, refs=[ref], forms=forms) == [Outcome.OVER_CAP]
    kit.sound()
    kit.ledger.close()


def test_a_writer_can_give_back_what_is_reserved_and_stop_a_ledger(admin, place):
    """docs/spec/postgres.md#roles lists the actions that remain possible for a writer."""
    kit, _ = ready(admin, place)
    kit.reserve(["a"], ["ann"], 9, cap=9)
    batch = max(kit.db.contents.latest().batches)
    with kit.db.store.transaction():
        forged(kit, "ABORT", **OF_RELEASE, **rows_of(batch, 1))
    assert kit.reserve(["b"], ["ann"], 9, cap=9) == [Outcome.RESERVED]
    raw_event(kit, seal=b"0" * 32)
    for act in (
        lambda: kit.reserve(["c"], cap=9),
        lambda: kit.ledger.agree_on_cap(SCOPE, Cap(epsilon=9, period="2026")),
    ):
        with pytest.raises(LedgerError, match="the chain is broken here: nothing is charged or published"):
            act()
    kit.ledger.close()


def test_a_run_asks_for_rights_by_column(admin, place):
    kit, _ = ready(admin, place)
    require_writable(kit.place)
    admin.execute(f'revoke update (seq) on {split_url(place)[1]}.segment from "o\'writer"')
    with pytest.raises(LedgerError, match=r"it lacks UPDATE \(seq\) on the table segment\nHint: .* --role writer"):
        require_writable(kit.place)
    kit.ledger.close()


@pytest.mark.thorough
def test_an_auditor_reads_everything_and_hears_what_it_lacks(admin, place, tmp_path):
    kit, auditor = ready(admin, place)
    kit.reserve(["a", "b"], cap=9)
    kit.commit(["a"])
    with Ledger.open(auditor, KEY, create=False, read_only=True) as ledger:
        assert ledger.verify().ok
        assert ledger.write_tables(tmp_path / "tables")["record"] == 2
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


@pytest.mark.thorough
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


def test_every_table_has_a_grant(kit):
    if "://" in kit.place:
        assert set(WRITES) == set(COLUMNS)


def test_names_are_quoted():
    assert 'ON DATABASE "my ""db""" TO "o\'x";' in grants("auditor", "o'x", 'my "db"', "ledger")
    assert "''o''''x''" in grants("owner", "o'x", "db", "ledger")  # a string within a string


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("insert into event values(?,?,?,?)", "INSERT on the table event"),
        ("select seq, (select 1) from event where seq=?", "SELECT on the table event"),
        ("update segment set seq=?", "UPDATE on the table segment"),
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
