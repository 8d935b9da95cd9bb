"""`dptext init` shows its guesses and their reasons, asks nothing, and prints no value of a cell."""

import json
import tomllib

import polars as pl
import pytest

from dptext_etl import Policy
from dptext_etl.runner.source import first_policy
from tests.command_line import dptext

ROWS = 300


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Tickets of 31 people, with semicolons, in cp1252; 20 name no person, and three columns have few values."""
    monkeypatch.chdir(tmp_path)
    rows = pl.DataFrame(
        {
            "ticket_id": [f"zzqcell{row:05}" for row in range(ROWS)],
            "agent_name": [f"zzqcellagent {row % 7}" for row in range(ROWS)],
            "customer": [None if row % 15 == 14 else f"zzqcellk{row * row % 61:03}" for row in range(ROWS)],
            "zone": [("zzqcellBerlin", "zzqcellLima")[row % 2] for row in range(ROWS)],
            "topic": [("zzqcellprice", "zzqcelldelay", "zzqcellother")[row % 3] for row in range(ROWS)],
            "amount": [row * 3 % 50 for row in range(ROWS)],
            "message": [f"zzqcelltext {row} costs 5 € and hums; sadly" for row in range(ROWS)],
        }
    )
    (tmp_path / "raw.csv").write_bytes(rows.write_csv(separator=";").encode("cp1252"))
    return tmp_path


def init(*words, code=0):
    done = dptext("init", "raw.csv", "--force", *words)
    assert done.exit_code == code, done.output
    assert "zzqcell" not in done.output
    return done


def written(folder):
    text = (folder / "privacy.toml").read_text()
    assert "zzqcell" not in text
    return tomllib.loads(text), text


def test_the_table_says_what_was_guessed(table):
    shown = init("--form", "rows").stdout.splitlines()
    for said in (
        ("id", "ticket_id", "by its name"),
        ("person", "customer", "by its name; 31 persons, with"),
        ("label", "topic", "3 values in 300 rows, 0% null"),
        ("excluded", "agent_name", "7 values in 300 rows"),
        ("separator ';', encoding 'cp1252'",),
        ("rows without a person: 20 of 300",),
    ):
        assert any(all(word in line for word in said) for line in shown), (said, shown)
    values, text = written(table)
    assert values["csv"] == {"separator": ";", "encoding": "cp1252", "quote": '"'}
    assert (values["subject"], values["keep"]) == ("customer", [])
    assert (values["on_null_subject"], values["on_changed"]) == ("refuse", "refuse")
    assert "# Rows without a person: 20 of 300." in text
    assert "#   label     topic: by its name and shape; 3 values in 300 rows" in text
    assert 'period = "2026-10"' in text


def test_the_facts_are_json(table):
    facts = json.loads(init("--form", "shuffled", "--json").stdout)
    assert [(one["role"], one["column"]) for one in facts["columns"]][:4] == [
        ("id", "ticket_id"),
        ("person", "customer"),
        ("text", "message"),
        ("label", "topic"),
    ]
    assert facts["csv"] == {"separator": ";", "encoding": "cp1252", "quote": '"'}
    assert (facts["form"], facts["persons"], facts["rows"], facts["rows_without_person"]) == ("shuffled", 31, 300, 20)
    assert facts["next"][1] == "dptext rehearse PUBLIC.parquet --policy privacy.toml --rows 31 --label COLUMN"


def test_a_label_without_its_public_values_stops_and_names_the_calls(table):
    for words in ([], ["--form", "synthetic"]):
        done = init(*words, code=2)
        assert "column topic looks like labels" in done.stderr
        assert "--labels topic=A,B,C" in done.stderr
        assert not (table / "privacy.toml").exists()
    assert "--form shuffled" in init(code=2).stderr
    assert "--form rows" in init(code=2).stderr


@pytest.mark.parametrize(
    ("words", "form"),
    [
        (["--labels", "topic=price,delay"], "synthetic"),
        (["--labels", "none"], "shuffled"),
        (["--labels", "topic=price,delay", "--form", "shuffled"], "shuffled"),
        (["--labels", "none", "--form", "synthetic"], "synthetic"),
        (["--form", "rows"], "rows"),
    ],
)
def test_labels_decide_the_form(table, words, form):
    init(*words)
    values, text = written(table)
    listed = {"column": "topic", "values": ["price", "delay"]} if "topic" in words[1] else None
    assert {"shuffled", "synthetic", "column"} & values.keys() == {
        "rows": {"column"}, "shuffled": {"shuffled", "column"}, "synthetic": {"synthetic"},
    }[form]  # fmt: skip
    assert form == "rows" or values[form].get("labels") == listed
    if form == "shuffled" and listed:  # only a person knows how many texts each label has
        assert "rows" not in values["shuffled"]
        assert "shuffled.rows: is missing" in dptext("plan", "privacy.toml").stderr
        (table / "privacy.toml").write_text(text.replace("# rows = ", "rows = 20"))
    Policy.load("privacy.toml")


def test_columns_of_labels_have_no_other_role(table):
    """A column with as many values as persons have, whose values repeat, is named as the labels."""
    init("--labels", "customer=a,b", "--unit", "record")
    values, _ = written(table)
    assert (values["unit"], values["synthetic"]["labels"]["column"]) == ("record", "customer")
    init("--labels", "customer=a,b")
    assert "subject" not in written(table)[0]
    assert "a column has one role" in init("--labels", "message=a", "--text", "message", code=5).stderr
    assert "give one of them" in init("--unit", "record", "--subject", "customer", code=2).stderr


def test_numbers_are_labels(table):
    init("--labels", "amount=0,3")
    assert written(table)[0]["synthetic"]["labels"] == {"column": "amount", "values": ["0", "3"]}


@pytest.mark.parametrize(("bound", "delta", "cap"), [(None, 1e-8, 1e-6), (9_000, 1e-6, 4e-6), (17_000, 5e-7, 2e-6)])
def test_delta_follows_from_a_public_bound(table, bound, delta, cap):
    """The largest delta with one digit: 0.01 / 17,000 is 5.88e-7. Four releases fit the cap."""
    words = ["--labels", "topic=price,delay", *([] if bound is None else ["--at-most", str(bound)])]
    init(*words)
    values, text = written(table)
    assert values["synthetic"]["mechanism"]["delta"] == delta
    assert values["cap"]["delta"] == pytest.approx(cap)
    assert ("10.2 at 1e-8 and 8.4 at 1e-6" in text) == (bound is None)
    assert bound is None or 0.01 / delta >= bound


OPINIONS, TOPICS = ["good", "bad"], [f"topic {n}" for n in range(60)]


@pytest.mark.parametrize(("labels", "rows", "source"), [(OPINIONS, 10_000, "reviews"), (TOPICS, 12_000, "written")])
@pytest.mark.parametrize("installed", [True, False])
def test_a_synthetic_table_comes_with_a_recipe_for_its_kind_of_labels(
    table, monkeypatch, labels, rows, source, installed
):
    monkeypatch.setattr(first_policy, "find_spec", lambda package: installed or None)
    init("--labels", f"topic={','.join(labels)}")
    values, text = written(table)
    assert f"dptext corpus build everyday-30k-2 {source}.parquet" in text
    assert ("corpus write" in text) == (source == "written"), "a model writes no opinions"
    assert "--vectors vectors.safetensors" in text
    assert ("pip install wordllama" in text) == (not installed)
    assert values["synthetic"]["rows"] == rows, "200 rows of each label at least"
    init("--form", "synthetic", "--labels", "none")
    assert "corpus build" not in written(table)[1]
