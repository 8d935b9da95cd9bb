"""`dptext init` shows its guesses and their reasons, asks on a terminal, and prints no value of a cell."""

import json
import os
import pty
import subprocess
import sys
import tomllib

import polars as pl
import pytest
from typer.testing import CliRunner

from dptext_etl.cli import terminal
from dptext_etl.cli.app import app
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
        ("left out", "column 4", "list it in keep to publish it unchanged"),
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
    quick([("rows\n\nabsent\n\n\nuser_timezone\n\n\n\n\n", "user_timezone"), ("rows\n\nnone\n\n\n\n\n", None)]),
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


SHOWN = ("zzqBerlin", "zzqLima")
ONE_TABLE = {"rows": 50, "per_subject": 1, "delta": 1e-8, "form": "rows"}
DIALOGS = {
    "rows": ("rows\n\n\n\nPreise\nPreis\ndrop\n3\n12\n", {"keep": ["Preis"], "ids": "drop"}, 12.0),
    "defaults": ("rows\n" + "\n" * 6, {"keep": [], "ids": "keyed", "per_subject": 5}, 20.0),
    "typed labels": ("\n\n\n\n\nLima, Rom\n\n2\n\n", ["Lima", "Rom"], 4.0),
    "confirmed labels": ("\n\n\n\n\n?\ny\n\n\n\n", [*SHOWN], 4.0),
    "labels that are not public": ("\n\n\n\n\n?\nn\n\nLima\n\n\n\n", ["Lima"], 4.0),
    "no labels": ("synthetic\n\n\n\nnone\n500\n\n3\n", None, 3.0),
    "shuffled": ("shuffled\n\n\n\nnone\n50\n\n\n", {"shuffled": ONE_TABLE}, 4.0),
    "shuffled labels": (
        "shuffled\n\n\n\n\nLima\n50\n\n\n",
        {"shuffled": {**ONE_TABLE, "labels": {"column": "user_timezone", "values": ["Lima"]}}},
        4.0,
    ),
}


@pytest.mark.parametrize(("answers", "wanted", "cap"), DIALOGS.values(), ids=DIALOGS)
def test_a_person_decides_the_form_and_what_belongs_to_it(table, monkeypatch, answers, wanted, cap):
    monkeypatch.setattr(terminal, "asks", lambda: True)
    done = CliRunner().invoke(app, ["init", "raw.csv"], input=answers)
    assert done.exit_code == 0, done.output
    policy = tomllib.loads((table / "privacy.toml").read_text())
    assert policy["cap"]["epsilon"] == cap
    if isinstance(wanted, dict):
        assert {name: policy[name] for name in wanted} == wanted
    else:
        assert policy["synthetic"].get("labels", {}).get("values") == wanted
    assert all((value in done.stderr) == ("?" in answers) for value in SHOWN)
    assert not any(value in done.stdout for value in SHOWN)
    assert ("has no column Preise" in done.stderr) == ("Preise" in answers)


def test_with_yes_a_terminal_asks_nothing(table, monkeypatch):
    monkeypatch.setattr(terminal, "asks", lambda: True)
    done = CliRunner().invoke(app, ["init", "raw.csv", "--yes"], input="")
    assert done.exit_code == 0, done.output
    policy = tomllib.loads((table / "privacy.toml").read_text())
    assert "synthetic" not in policy
    assert policy["keep"] == []
    assert "Column of record ids" not in done.output


@pytest.mark.parametrize(("labels", "task"), [(["good", "bad"], True), ([f"topic {n}" for n in range(6)], False)])
def test_a_synthetic_table_comes_with_a_recipe_for_its_kind_of_labels(table, labels, task):
    listed = f"user_timezone={','.join(labels)}"
    assert dptext("init", "raw.csv", "--form", "synthetic", "--labels", listed).exit_code == 0
    text = (table / "privacy.toml").read_text()
    assert ("written.parquet --task written.parquet" in text, "--guidance 1.6" in text) == (task, task)
    assert "dptext corpus build everyday-30k-2 written.parquet" in text
    assert dptext("init", "raw.csv", "--form", "synthetic", "--labels", "none", "--force").exit_code == 0
    assert "corpus build" not in (table / "privacy.toml").read_text()
