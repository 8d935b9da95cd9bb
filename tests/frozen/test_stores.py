"""Frozen ledgers, staging folders and published tables are opened, verified, replayed, finished and continued.

Every test works on a copy. It must find, charge and release what the code that froze them did with another copy.
"""

import json
from contextlib import chdir
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from dptext_etl import Ledger, run
from dptext_etl.artifacts import Artifact
from dptext_etl.catalog import load
from dptext_etl.cli.app import app
from dptext_etl.runner import scan_published

from . import events, jobs, packed, probes

STORED = json.loads(Path(__file__).with_name("stores.json").read_text())
SAME_WRITER = pl.__version__ == STORED["polars"]
"""Another Polars may write the same rows as other bytes of Parquet; its rows are compared all the same."""

HELD = {"films: again": ["dpmlm"]}
"""Mechanisms that draw nothing when this is asked: staging holds what they released."""


@pytest.fixture(autouse=True)
def _own_anchors(tmp_path, monkeypatch):
    """Every copy is the same ledger by its id: without this, one copy would miss what was charged in another."""
    monkeypatch.setenv("DPTEXT_ANCHORS", str(tmp_path / "anchors"))


@pytest.mark.parametrize("question", probes.PROBES)
def test_what_was_stored_is_taken_up(question, tmp_path, monkeypatch):
    name = probes.PROBES[question][0]
    if name == "films":
        pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")
    for kind in HELD.get(question, ()):
        monkeypatch.setattr(load(kind), "release", never)
    now, then = probes.observe(question, packed.unpack(name, tmp_path / "copy")), STORED[question]
    if not SAME_WRITER and name == "reviews":
        now, then = probes.without_bytes(now), probes.without_bytes(then)
    assert now == then


def never(*_, **__):
    raise AssertionError("what is released already was computed again")


def test_nothing_new_was_charged_by_what_was_stored():
    """The figures themselves: replays, a finished run and a finished partition cost nothing."""
    again, finished = STORED["reviews: again"], STORED["reviews: finished"]
    runs = [
        again["incremental"],
        again["whole"],
        finished["run"],
        *(STORED["tickets: finished"][n] for n in ("run", "again")),
    ]
    assert all(said["rows"]["new"] == 0 for said in [*runs, STORED["films: again"]["run"]])
    assert finished["run"]["rows"]["replayed"] == finished["sink"]["manifest"]["rows"] > 0
    continued = STORED["reviews: continued"]["run"]
    assert 0 < continued["rows"]["new"] < continued["rows"]["read"]
    kept = STORED["reviews: opened"]["sink"]
    after = STORED["reviews: continued"]["sink"]
    assert after["rows"][: len(kept["rows"])] == kept["rows"]
    old, new = ([(part["rows"], part["sha256"]) for part in said["manifest"]["parts"]] for said in (kept, after))
    assert new[: len(old)] == old


def test_published_files_stay_as_they_are(tmp_path):
    """A run adds rows to the files, and who reads the version before goes on reading it."""
    folder = packed.unpack("reviews", tmp_path / "copy")
    sink = folder / "published"
    before, found = bytes_of(sink), scan_published(str(sink))
    rows = found.collect()
    with chdir(folder):
        run(jobs.policy(jobs.REVIEWS, source="later.parquet"))
    assert bytes_of(sink)[: len(before)] == before
    assert len(bytes_of(sink)) == len(before) + 1
    assert found.collect().equals(rows)
    with chdir(folder):
        run(jobs.policy(jobs.REVIEWS, source="later.parquet", incremental=False))
    assert sorted(path.name for path in (folder / "published.versions").iterdir()) == ["v3", "v4"]


def bytes_of(folder):
    return [path.read_bytes() for path in sorted(folder.iterdir())]


def as_toml(value):
    """Plain data as TOML writes it in one line."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {as_toml(item)}' for name, item in value.items())} }}"
    return f"[{', '.join(map(as_toml, value))}]" if isinstance(value, list) else json.dumps(value)


def test_the_command_line_checks_what_was_published(tmp_path, monkeypatch):
    monkeypatch.chdir(packed.unpack("reviews", tmp_path / "copy"))
    lines = (f"{name} = {as_toml(value)}" for name, value in jobs.REVIEWS.items())
    Path("privacy.toml").write_text("\n".join(lines))
    outcome = CliRunner().invoke(app, ["check", "privacy.toml", "--json"])
    assert outcome.exit_code == 0, outcome.output
    said = json.loads(outcome.output)
    assert {gate["name"]: gate["passed"] for gate in said["gates"]} == STORED["reviews: opened"]["check"]


def facts(url, key):
    """As JSON gives them back."""
    return json.loads(json.dumps(probes.of_ledger(url, key)))


def without_places(said):
    """The answers in which two ledgers with the same events agree: all except their names and times."""
    return {name: value for name, value in said.items() if name != "anchor"}


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """What the frozen SQLite ledger in which everything happened says."""
    folder = packed.unpack("events", tmp_path_factory.mktemp("events") / "copy")
    return facts(str(folder / "ledger.db"), f"file:{folder / 'ledger.key'}")


def test_a_ledger_of_every_event_verifies(old):
    assert old["verify"]["ok"]
    assert old == STORED["events"]


def test_the_same_calls_make_the_same_ledger(old, tmp_path):
    jobs.write_keys(tmp_path)
    place, key = f"sqlite:///{tmp_path / 'ledger.db'}", f"file:{tmp_path / 'ledger.key'}"
    assert events.write(place, key) == STORED["events: answers"]
    assert without_places(facts(place, key)) == without_places(old)


def test_the_ledger_of_every_event_in_postgres_verifies(old, postgres, tmp_path):
    import psycopg

    jobs.write_keys(tmp_path)
    with psycopg.connect(postgres.url().partition("?")[0], autocommit=True) as connection:
        connection.execute(Path(__file__).with_name("ledger.sql").read_text())
    place, key = postgres.url("frozen"), f"file:{tmp_path / 'ledger.key'}"
    said = facts(place, key)
    assert said["anchor"] == STORED["events in postgres: anchor"]
    assert without_places(said) == without_places(old)
    with Ledger.open(place, key) as ledger:
        book = events.Writer(ledger)
        ids, people = ["new 1", "new 2"], ["u0", "u3"]
        outcome = book.reserve(ids, people, [book.charge(book.release(), ids, [1, 1])], job="job-9")
        assert outcome == [0, 0], "the cap has room for them, and the ledger goes on"
        assert ledger.verify().ok


def test_stored_laws_are_found_and_opened(tmp_path, monkeypatch):
    """An entry of the artifact cache is found under its name, and its law gives the rows that it gave."""
    cache = packed.unpack("tables", tmp_path / "cache")
    monkeypatch.setenv("DPTEXT_CACHE", str(cache))
    before = {path.name for path in cache.iterdir()}
    for label, stored in STORED["tables"].items():
        assert json.loads(json.dumps(probes.of_table(jobs.mechanism(label), cache))) == stored
    assert {path.name for path in cache.iterdir()} == before, "nothing was built"


def test_built_anew_a_law_has_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("DPTEXT_CACHE", str(tmp_path))
    for label, stored in STORED["tables"].items():
        assert json.loads(json.dumps(probes.of_table(jobs.mechanism(label), tmp_path))) == stored


MODELS = Path(__file__).resolve().parents[2] / "models" / "dptext_etl_models"


@pytest.mark.parametrize("path", STORED["models"])
def test_models_that_ship_keep_their_bytes(path):
    """Whoever released under a model by its name needs that model; another one takes another name."""
    Artifact.open(MODELS / path, STORED["models"][path])
