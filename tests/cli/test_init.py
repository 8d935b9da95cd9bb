"""`dptext init` shows what it guessed and why, asks on a terminal, and prints no value of a cell."""

import json
import os
import pty
import subprocess
import sys
import tomllib

import polars as pl
import pytest

from tests.command_line import dptext
from tests.quick import quick

ROWS = 300


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Tickets of 61 people, with semicolons, in cp1252."""
    monkeypatch.chdir(tmp_path)
    rows = pl.DataFrame(
        {
            "Ticket Nr": [f"zzq{row:05}" for row in range(ROWS)],
            "Kunde Größe": [f"zzqk{row * row % 61:03}" for row in range(ROWS)],
            "user_timezone": [("zzqBerlin", "zzqLima")[row % 2] for row in range(ROWS)],
            "Preis": [row * 3 % 50 for row in range(ROWS)],
            "Inhalt": [f"zzqtext {row} brummt für 5 € sehr laut; leider" for row in range(ROWS)],
        }
    )
    (tmp_path / "raw.csv").write_bytes(rows.write_csv(separator=";").encode("cp1252"))
    return tmp_path


def test_the_table_says_what_was_guessed(table):
    done = dptext("init", "raw.csv")
    assert done.exit_code == 0, done.output
    for said in (
        ("id", "Ticket Nr", "by its name"),
        ("person", "Kunde Größe", "by its name"),
        ("label", "user_timezone", "2 values in 300 rows, 0% null"),
        ("left out", "column 4", "list it in keep to publish it in clear"),
        ("separator ';', encoding 'cp1252'",),
    ):
        assert any(all(word in line for word in said) for line in done.stdout.splitlines()), (said, done.stdout)
    assert "zzq" not in done.output
    values = tomllib.loads((table / "privacy.toml").read_text())
    assert values["csv"] == {"separator": ";", "encoding": "cp1252", "quote": '"'}
    assert (values["subject"], values["keep"]) == ("Kunde Größe", [])
    assert "zzq" not in (table / "privacy.toml").read_text()


def test_the_facts_are_json(table):
    facts = json.loads(dptext("init", "raw.csv", "--json").stdout)
    assert [(one["role"], one["column"]) for one in facts["columns"]][:3] == [
        ("id", "Ticket Nr"),
        ("person", "Kunde Größe"),
        ("text", "Inhalt"),
    ]
    assert facts["csv"] == {"separator": ";", "encoding": "cp1252", "quote": '"'}
    assert "zzq" not in json.dumps(facts)


@pytest.mark.parametrize(
    ("answers", "subject"),
    quick([("\nabsent\n\n\nuser_timezone\n\n", "user_timezone"), ("\n\n\n", "Kunde Größe"), ("\nnone\n\n", None)]),
)
def test_on_a_terminal_it_asks(table, answers, subject):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "dptext_etl.cli", "init", "raw.csv"]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.write(ours, answers.encode())
        out, err = process.communicate(timeout=600)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0, err
    assert tomllib.loads((table / "privacy.toml").read_text()).get("subject") == subject
    assert "Column of persons, or none" in err
    assert ("has no column absent" in err) == ("absent" in answers)
    assert "zzq" not in out + err
