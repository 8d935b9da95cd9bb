"""Bad input gets a sentence with a hint and loses nothing."""

import errno
import json
import os
import sqlite3
import subprocess
import sys

import polars as pl
import pytest
from typer.testing import CliRunner

from dptext_etl import Ledger
from dptext_etl.cli.app import app
from tests.policy_files import write_policy

SENTINEL = "zzqsentinelqzz"


class Place:
    """A folder with a raw table and a key, and the command that releases it."""

    def __init__(self, folder, vectors, save, reviews):
        self.folder = folder
        self.parameters = {"epsilon": 2.0, "k": 5, "vectors": vectors}
        self.save = save
        self.reviews = reviews
        assert self.dptext("key", "new", "noise.key").exit_code == 0
        self.secret = (folder / "noise.key").read_text().strip()

    def dptext(self, *words):
        return CliRunner().invoke(app, [str(word) for word in words])

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
        return self.dptext("run", self.policy(source, **changes))

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


def test_the_same_command_works_on_good_input(place, frame):
    assert place.privatize(frame).exit_code == 0
    assert place.charged() > 0


VALUES_REFUSED = [
    *(({option: "absent"}, ("no column 'absent'", "others")) for option in ("text", "id", "subject")),
    ({"keep": ["absent"]}, ("no column 'absent'", "others")),
    ({"text": "stars"}, ("must hold strings",)),
    ({"keep": ["review"]}, ("two roles",)),
    ({"mechanism": "rot13"}, ("no mechanism 'rot13'; available: ",)),
    ({"parameters": {"epsilom": 1}}, ("epsilom", "epsilon")),
    *(({"parameters": {"epsilon": value}}, ("epsilon",)) for value in (0, -2, "nan", "inf", "much")),
    ({"allow": []}, ("cluster (the output set of every word)", 'allow = ["cluster"]')),
    ({"sink": "noise.key/published"}, ()),
    ({"sink": "/dev/null/published"}, ()),
    ({"ledger": "/dev/null/ledger.db"}, ()),
    *(({"key": key}, ()) for key in ("env:DPTEXT_NOT_SET", "file:absent.key", "plain")),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("changes", "said"), VALUES_REFUSED, ids=str)
def test_values_that_mean_nothing(place, frame, changes, said):
    place.refused(place.privatize(frame, **changes), *said)


IDS_REFUSED = {
    "repeated": (pl.lit("same"), ""),
    "null": (pl.when(pl.int_range(pl.len()) > 3).then(pl.col("id")), "null"),
    "floats": (pl.int_range(pl.len()).cast(pl.Float64), "not allowed"),
    "booleans": (pl.int_range(pl.len()).cast(pl.Boolean), "not allowed"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("ids", IDS_REFUSED)
def test_ids_that_identify_nothing(place, frame, ids):
    column, said = IDS_REFUSED[ids]
    place.refused(place.privatize(frame.with_columns(id=column)), said)


@pytest.mark.thorough
def test_a_disclosure_that_does_not_exist(place, frame):
    place.refused(place.privatize(frame, allow=["clustre"]), "cluster")


@pytest.mark.thorough
def test_a_column_that_is_not_listed(place, frame):
    place.save(frame, place.folder / "raw.parquet")
    assert place.dptext("init", "raw.parquet").exit_code == 0
    policy = place.folder / "privacy.toml"
    policy.write_text(policy.read_text().replace("strict_columns = false", "strict_columns = true"))
    place.refused(place.dptext("run", policy), "strict_columns", "what becomes of", "name it in keep")


@pytest.mark.thorough
@pytest.mark.parametrize("source", ["absent.parquet", "noise.key"])
def test_a_source_that_is_not_there_or_no_table(place, source):
    place.refused(place.privatize(source=source))


@pytest.mark.parametrize("suffix", ["parquet", "csv", "ndjson"])
def test_a_file_that_cannot_be_read(place, suffix):
    broken = f'id,user_id,review\n1,2,"{SENTINEL}\x00"{SENTINEL}\xff{{"id": {SENTINEL}'.encode("latin-1")
    (place.folder / f"raw.{suffix}").write_bytes(broken * 50)
    place.refused(place.privatize(source=f"raw.{suffix}"))


@pytest.mark.thorough
def test_a_csv_file_without_a_header(place):
    """Its first row would be taken for names, and names are what an error lists."""
    rows = "\n".join(f"r{row},u{row},{SENTINEL} said so on row {row}" for row in range(50))
    (place.folder / "raw.csv").write_text(rows)
    place.refused(place.privatize(source="raw.csv"))


@pytest.mark.thorough
def test_a_cell_that_is_no_text_halfway(place, frame):
    """The reader's own error would quote the cell."""
    lines = frame.select("id", "user_id", "review").write_ndjson().splitlines()
    lines[200] = f'{{"id": "r", "user_id": "u", "review": {{"a": "{SENTINEL}"'
    (place.folder / "raw.ndjson").write_text("\n".join(lines))
    place.refused(place.privatize(source="raw.ndjson"))


@pytest.mark.thorough
def test_a_key_that_others_can_read(place, frame):
    (place.folder / "noise.key").chmod(0o644)
    place.refused(place.privatize(frame), "600")


def test_a_key_given_in_the_open_is_refused_and_not_repeated(place, frame):
    place.refused(place.privatize(frame, key=place.secret))


@pytest.mark.thorough
def test_a_key_that_is_malformed_or_printed_in_documents(place, frame):
    for content in (f"{place.secret[:-2]}{SENTINEL}", bytes(range(32)).hex()):
        (place.folder / "noise.key").write_text(content)
        place.refused(place.privatize(frame))


def test_a_cap_that_is_exceeded(place, frame):
    place.save(frame, place.folder / "raw.parquet")
    assert place.dptext("init", "raw.parquet").exit_code == 0
    policy = place.folder / "privacy.toml"
    text = policy.read_text().replace('on_cap = "quarantine"', 'on_cap = "refuse"')
    head, _, tail = text.partition("epsilon = ")
    policy.write_text(f"{head}epsilon = 10.0{tail[tail.index(',') :]}")
    place.refused(place.dptext("run", policy, "--json"), "cap", code=3)


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


@pytest.mark.thorough
def test_a_ledger_of_a_newer_schema(place, frame):
    Ledger.open("ledger.db").close()
    with sqlite3.connect("ledger.db") as file:
        known = file.execute("pragma user_version").fetchone()[0]
        file.execute("pragma user_version = 99")
    done = place.privatize(frame)
    with sqlite3.connect("ledger.db") as file:
        file.execute(f"pragma user_version = {known}")
    place.refused(done, "schema 99", "upgrade")


@pytest.mark.parametrize("command", ["show", "remaining", "verify", "export"])
def test_a_ledger_that_is_not_there(place, command):
    place.refused(place.dptext("ledger", command, "--ledger", "absent.db"), "no ledger")
    assert not (place.folder / "absent.db").exists()


def test_a_ledger_that_was_edited(place, frame):
    assert place.privatize(frame).exit_code == 0
    with sqlite3.connect("ledger.db") as file:
        file.execute("update tally set committed = committed + 1")
    done = place.dptext("ledger", "verify", "--ledger", "ledger.db")
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
    assert place.privatize().exit_code == 0  # goes on where it was; what was reserved is not charged again
    assert place.charged() == before


@pytest.mark.thorough
def test_a_table_whose_hash_differs(place, frame):
    """In real processes: a table is opened once per process."""
    place.save(frame, place.folder / "raw.parquet")
    environment = {**os.environ, "DPTEXT_CACHE": str(place.folder / "cache")}
    parameters = [word for name, value in place.parameters.items() for word in ("-p", f"{name}={value}")]
    command = [sys.executable, "-m", "dptext_etl.cli"]

    def process(*words):
        return subprocess.run([*command, *words], capture_output=True, text=True, check=False, env=environment)

    assert process("explain", "custext", *parameters).returncode == 0
    tables = [path for path in (place.folder / "cache").rglob("*.safetensors") if b"cumulative" in path.read_bytes()]
    for table in tables:
        table.chmod(0o600)
        content = bytearray(table.read_bytes())
        content[-1] ^= 1
        table.write_bytes(content)
    assert tables
    done = process("run", str(place.policy()))
    assert (done.returncode, done.stdout) == (5, "")
    assert "Hint:" in done.stderr
    assert SENTINEL not in done.stderr
    assert place.charged() == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is missing"),
        ("dataset = ", "not valid TOML"),
        ('datset = "a"', "datset"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_policy_that_says_nothing_that_can_be_done(place, command, text, said):
    (place.folder / "privacy.toml").write_text(text)
    done = place.dptext(command, "privacy.toml")
    assert done.exit_code == 5
    assert said in done.stderr


def test_a_policy_that_is_not_there(place):
    for words in (("plan", "absent.toml"), ("run", "absent.toml"), ("check", "absent.toml")):
        place.refused(place.dptext(*words), "dptext init")


def test_something_that_is_no_published_table(place, frame):
    place.save(frame, place.folder / "raw.parquet")
    assert place.dptext("init", "raw.parquet").exit_code == 0
    Ledger.open("ledger.db").close()
    place.refused(place.dptext("check", "privacy.toml", "--released", "nowhere"))
