"""No raw text and no hidden id in the traces of a run: files, ledger, logs, and output of commands."""

import logging
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import dptext_etl.polars  # noqa: F401
from dptext_etl import Policy, _kernel, run

WORD, RECORD, SUBJECT, PLACE = "zqsentinelwordx", "zqrecordidx", "zqsubjectidx", "zqplacex"
RAW = (WORD, SUBJECT, PLACE)
ALL = (WORD, RECORD, SUBJECT, PLACE)


@pytest.fixture
def project(tmp_path, small_vectors):
    """A dataset whose every text, subject and id carries a sentinel."""
    rows = 300
    texts = [f"good {WORD} {'the good ' * (i % 5)} {WORD}@example.org {WORD}" for i in range(rows)]
    frame = pl.DataFrame(
        {
            "id": [f"{RECORD}-{i}" for i in range(rows)],
            "user": [f"{SUBJECT}-{i % 30}" for i in range(rows)],
            "text": texts,
            "n": range(rows),
            "place": pl.Series(["town" if i % 3 else f"{PLACE}{i % 7}" for i in range(rows)], dtype=pl.Categorical),
        }
    )
    raw = tmp_path / "raw"
    raw.mkdir()
    frame.write_parquet(raw / "table.parquet")
    _kernel.Secret().write(str(tmp_path / "noise.key"))
    made = tmp_path / "made"
    made.mkdir()
    (tmp_path / "privacy.toml").write_text(f"""
dataset = "demo"
release = "r1"
source = "raw/table.parquet"
sink = "made/published"
staging = "made/staging"
id = "id"
subject = "user"
keep = ["n", {{ column = "place", top = ["town"] }}]
keep_unique = "accepted"
key = "file:noise.key"
ledger = {{ url = "sqlite:///made/ledger.db", id_key = "file:ledger.key" }}
[[column]]
name = "text"
mechanism = {{ name = "custext", epsilon = 1.0, k = 5, vectors = "{small_vectors}" }}
allow = ["cluster"]
""")
    _kernel.Secret().write(str(tmp_path / "ledger.key"))
    return tmp_path


def contents(path: Path) -> bytes:
    """All that a file says, tables uncompressed."""
    data = path.read_bytes()
    if path.suffix == ".parquet":
        data += pl.read_parquet(path).write_json().encode()
    return data


def hits(folder: Path, sentinels: tuple[str, ...]) -> list[tuple[str, str]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files, "nothing was made"
    return [(str(path), word) for path in files for word in sentinels if word.encode() in contents(path)]


def test_the_search_can_find(project):
    assert hits(project / "raw", ALL) == [(str(project / "raw/table.parquet"), word) for word in ALL]


def test_a_run_leaves_no_raw_text(project, caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        summary = run(Policy.load(project / "privacy.toml"))
    assert hits(project / "made", RAW) == []
    ledger = list((project / "made").glob("ledger.db*"))
    assert ledger
    assert not any(RECORD.encode() in path.read_bytes() for path in ledger)
    out, err = capfd.readouterr()
    said = "".join([caplog.text, out, err, repr(summary), str(summary.as_dict())])
    assert not [word for word in ALL if word in said]


def test_the_command_line_says_nothing(project):
    from dptext_etl.cli.app import app

    policy = str(project / "privacy.toml")
    ledger = ["--ledger", f"sqlite:///{project}/made/ledger.db", "--id-key", f"file:{project}/ledger.key"]
    commands = [
        ["plan", policy],
        ["run", policy],
        ["run", policy, "--json"],
        ["check", policy, "--released", str(project / "made/published")],
    ]
    commands += [["ledger", what, *ledger, "--json"] for what in ("show", "remaining", "verify", "export")]
    for command in commands:
        outcome = CliRunner().invoke(app, command)
        assert outcome.exit_code == 0, (command, outcome.output)
        assert not [word for word in ALL if word in outcome.output], command
