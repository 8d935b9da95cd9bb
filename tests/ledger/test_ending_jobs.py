"""`dptext ledger jobs|revoke|expire|abort`: asked for, done, and written into the journal; on both stores."""

import json

import pytest
from typer.testing import CliRunner

from dptext_etl.cli.app import app
from dptext_etl.errors import LedgerError
from dptext_etl.ledger.types import Event

from ..ledger_kit import ID_KEY
from .conftest import each_store


@pytest.fixture
def dptext(kit):
    """Run `dptext ledger …` on the ledger of the kit."""

    def run(*words, answer=None, code=0):
        key = ("--id-key", f"env:{ID_KEY}") if "://" in kit.place else ()
        outcome = CliRunner().invoke(app, ["ledger", *words, "--ledger", kit.place, *key], input=answer)
        assert outcome.exit_code == code, outcome.output
        return outcome

    return run


def last(kit):
    *_, entry = kit.db.journal.entries()
    return entry.kind, entry.facts.get("reason")


def test_jobs_lists_what_is_open(kit, dptext):
    assert "nothing is open" in dptext("jobs").stdout
    kit.reserve(["a", "b"], refs=[kit.ref(), kit.ref("title")], cap=9, job="one")
    kit.reserve(["c"], cap=9, job="two")
    kit.commit(["c"], job="two")
    (found,) = json.loads(dptext("jobs", "--json").stdout)["jobs"]
    since = kit.db.journal.facts(4)["ts"]
    assert found == {"job": "one", "since": since, "dataset": "reviews", "releases": ["r1"], "records": 4, "pending": 4}
    assert "one" in dptext("jobs").stdout


@each_store
@pytest.mark.parametrize(("answer", "yes"), [("y\n", ()), (None, ("--yes",))])
def test_a_release_is_revoked(kit, dptext, answer, yes):
    kit.reserve(["a"], cap=9)
    kit.commit(["a"])
    kit.ledger.releases.record_publication(kit.ref(), "v1", "ab" * 32, 1, sink="here")
    done = dptext("revoke", "reviews", "r1", "--reason", "wrong table", "--json", *yes, answer=answer)
    assert json.loads(done.stdout) == {"revoked": "r1", "dataset": "reviews", "records": 1, "published": ["v1"]}
    assert ("(1 charged records, published as v1) for good?" in done.stderr) == (not yes)
    assert last(kit) == (Event.BURN, "wrong table")
    with pytest.raises(LedgerError, match="is revoked"):
        kit.ref()
    again = dptext("revoke", "reviews", "r1", "--reason", "again")
    assert "is revoked; its charges stay, and you must remove its published tables" in again.output
    assert last(kit) == (Event.BURN, "wrong table")
    assert kit.used("of-a") == [1]
    kit.sound()


@each_store
@pytest.mark.parametrize(
    ("command", "counted", "kind", "left"), [("expire", "expired", "EXPIRE", 1), ("abort", "given_back", "ABORT", 0)]
)
def test_a_job_is_ended(kit, dptext, command, counted, kind, left):
    kit.reserve(["a", "b"], cap=9)
    done = dptext(command, "job", "--reason", "machine gone", "--json", answer="y\n")
    assert json.loads(done.stdout) == {"job": "job", counted: 2}
    assert "(reviews, release r1, since 20" in done.stderr
    assert last(kit) == (kind, "machine gone")
    assert kit.used("of-a", "of-b") == [left, left]
    assert json.loads(dptext("jobs", "--json").stdout) == {"jobs": []}
    kit.sound()


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_without_a_yes_nothing_happens(kit, dptext, answer):
    kit.reserve(["a"], cap=9)
    before = kit.ledger.anchor()
    for words in (("revoke", "reviews", "r1"), ("expire", "job"), ("abort", "job")):
        refused = dptext(*words, "--reason", "x", answer=answer, code=5)
        assert "this was not confirmed; nothing was changed\nHint: answer y, or give --yes" in refused.output
    assert kit.ledger.anchor() == before


def test_slips_of_the_pen_and_lies_are_refused(kit, dptext):
    kit.reserve(["a", "b"], cap=9)
    kit.commit(["a"])
    before = kit.ledger.anchor()
    for words, said in (
        (("revoke", "reviews", "r2"), "release 'r2' of reviews is not registered in this ledger"),
        (("expire", "jab"), "the ledger has no job of this name"),
        (("abort", "jab"), "the ledger has no job of this name"),
        (("abort", "job"), "the job has committed records: its computation has started"),
    ):
        assert said in dptext(*words, "--reason", "x", "--yes", code=5).output
    for words in (("revoke", "reviews", "r1"), ("expire", "job"), ("abort", "job")):
        assert "must be short and plain" in dptext(*words, "--reason", "<a text>", "--yes", code=5).output
    assert kit.ledger.anchor() == before


def test_what_a_pinned_table_holds_is_not_given_back(kit, dptext):
    """Draws from the table may have been seen; later reservations are in no table."""
    kit.reserve(["a", "b"], cap=9, job="one")
    kit.ledger.releases.pin_table(kit.ref(), "ab" * 32)
    kit.reserve(["c"], cap=9, job="two")
    refused = dptext("abort", "one", "--reason", "never computed", "--yes", code=5)
    assert "draws from it may have been seen" in refused.output
    assert "expire it" in refused.output
    assert kit.used("of-a", "of-b", "of-c") == [1, 1, 1]
    dptext("abort", "two", "--reason", "never computed", "--yes")
    dptext("expire", "one", "--reason", "machine gone", "--yes")
    assert kit.used("of-a", "of-b", "of-c") == [1, 1, 0]
    kit.sound()


def test_a_pin_of_another_release_leaves_a_job_alone(kit):
    kit.reserve(["a"], cap=9, job="one")
    kit.reserve(["a"], refs=[kit.ref("title")], cap=9, job="two")
    kit.ledger.releases.pin_table(kit.ref("title"), "ab" * 32)
    assert kit.ledger.abort("one", compute_never_started=True) == 1
    with pytest.raises(LedgerError, match="pinned"):
        kit.ledger.abort("two", compute_never_started=True)
    kit.sound()
