"""Bad input gets a sentence with a hint and loses nothing."""

import errno
import json
import sqlite3

import polars as pl
import pytest

from dptext_etl import Ledger
from tests.command_line import dptext
from tests.policy_files import write_policy

SENTINEL = "zzqsentinelqzz"


class Place:
    """A folder with a raw table and a key, and the command that releases it."""

    def __init__(self, folder, vectors, save, reviews):
        self.folder = folder
        self.parameters = {"epsilon": 2.0, "k": 5, "vectors": vectors}
        self.save = save
        self.reviews = reviews
        assert dptext("key", "new", "noise.key").exit_code == 0
        self.secret = (folder / "noise.key").read_text().strip()

    def policy(self, source="raw.parquet", sink="published", parameters=None, **changes):
        """Write a policy with some of its values changed, and return its path."""
        given = {"text": "review", "mechanism": "custext", "allow": ["cluster"], "ledger": "ledger.db", **changes}
        mechanism = {"name": given.pop("mechanism"), **self.parameters, **(parameters or {})}
        column = {"name": given.pop("text"), "mechanism": mechanism, "allow": given.pop("allow")}
        values = {
            "dataset": "reviews",
            "release": "r1",
            "source": source,
            "sink": sink,
            "id": "id",
            "subject": "user_id",
        }
        values |= {"key": "file:noise.key", "cap": {"measure": "pure", "epsilon": 5000}}
        values |= {"ledger": {"url": given.pop("ledger")}, **given, "column": [column]}
        return write_policy(self.folder / "privacy.toml", values)

    def privatize(self, frame=None, source="raw.parquet", **changes):
        if frame is not None:
            self.save(frame, self.folder / source)
        return dptext("run", self.policy(source, **changes))

    def charged(self):
        if not (self.folder / "ledger.db").exists():
            return 0
        with Ledger.open(str(self.folder / "ledger.db"), create=False, read_only=True) as ledger:
            return sum(item["records"] - item["aborted"] for item in ledger.reports.show())

    def refused(self, done, *said, code=5):
        """A sentence, a hint, the exit code; no text, no key, nothing charged, nothing published."""
        assert done.exit_code == code, done.output
        if done.stdout:  # of a command with --json
            failed = json.loads(done.stdout)["error"]
            assert failed["exit_code"] == code
            assert done.stderr.endswith(f"Error: {failed['message']}\nHint: {failed['hint']}\n")
        assert "Error: " in done.stderr
        assert "\nHint: " in done.stderr
        assert "unexpected" not in done.stderr
        for words in said:
            assert words in done.stderr
        for hidden in (SENTINEL, self.secret, "Traceback", "zzq"):
            assert hidden not in done.output
        assert self.charged() == 0
        assert not (self.folder / "published.manifest.json").exists()


@pytest.fixture
def place(tmp_path, monkeypatch, small_vectors, save, reviews):
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path, small_vectors, save, reviews)


@pytest.fixture
def frame(reviews):
    return reviews().drop("note")


def test_a_file_that_cannot_be_read(place):
    broken = f'id,user_id,review\n1,2,"{SENTINEL}\x00"{SENTINEL}\xff{{"id": {SENTINEL}'.encode("latin-1")
    (place.folder / "raw.csv").write_bytes(broken * 50)
    place.refused(place.privatize(source="raw.csv"))


def test_a_key_given_in_the_open_is_refused_and_not_repeated(place, frame):
    place.refused(place.privatize(frame, key=place.secret))


def test_a_cap_that_is_exceeded(place, frame):
    place.save(frame, place.folder / "raw.parquet")
    policy = place.policy(cap={"measure": "pure", "epsilon": 10.0}, on_cap="refuse")
    place.refused(dptext("run", policy, "--json"), "cap", code=3)


def test_a_ledger_that_is_locked(place, frame, monkeypatch):
    Ledger.open("ledger.db").close()
    monkeypatch.setitem(Ledger.open.__func__.__kwdefaults__, "timeout", 0.2)
    other = sqlite3.connect("ledger.db", isolation_level=None)
    other.execute("begin immediate")
    done = place.privatize(frame)
    other.execute("rollback")
    other.close()
    place.refused(done, "locked", code=6)
    assert place.privatize().exit_code == 0


@pytest.mark.parametrize("command", ["show", "remaining", "verify", "export"])
def test_a_ledger_that_is_not_there(place, command):
    place.refused(dptext("ledger", command, "--ledger", "absent.db"), "no ledger")
    assert not (place.folder / "absent.db").exists()


def test_a_ledger_that_was_edited(place, frame):
    assert place.privatize(frame).exit_code == 0
    with sqlite3.connect("ledger.db") as file:
        file.execute("update tally set committed = committed + 1")
    done = dptext("ledger", "verify", "--ledger", "ledger.db")
    assert done.exit_code == 4
    assert "does NOT agree" in done.stdout


def test_a_disk_that_is_full_while_staging(place, frame, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, f"No space left on device: {SENTINEL}")

    place.save(frame, place.folder / "raw.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(pl.DataFrame, "write_parquet", full)
        done = place.privatize()
    assert (done.exit_code, done.stdout) == (7, "")
    assert "Hint:" in done.stderr
    assert SENTINEL not in done.output
    before = place.charged()
    assert place.privatize().exit_code == 0  # continues where it was; what was reserved is not charged again
    assert place.charged() == before


@pytest.mark.parametrize(
    ("text", "said"), [("", "is missing"), ("dataset = ", "not valid TOML"), ('datset = "a"', "datset")]
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_policy_that_says_nothing_that_can_be_done(place, command, text, said):
    (place.folder / "privacy.toml").write_text(text)
    done = dptext(command, "privacy.toml")
    assert done.exit_code == 5
    assert said in done.stderr


def test_a_policy_that_is_not_there(place):
    for words in (("plan", "absent.toml"), ("run", "absent.toml"), ("check", "absent.toml")):
        place.refused(dptext(*words), "dptext init")


def test_something_that_is_no_published_table(place):
    Ledger.open("ledger.db").close()
    place.refused(dptext("check", place.policy(), "--released", "nowhere"))
