"""`dptext demo` in a separate folder: rows, spend, budget, gates, and the planted bug that is stopped."""

import json

import polars as pl
import pytest

from dptext_etl.cli import demo_folder
from dptext_etl.cli.commands import demo
from dptext_etl.runner import scan_published
from tests.command_line import dptext
from tests.page_reader import QUESTIONS, Reader, follow


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """One demo without Dagster."""
    folder = tmp_path_factory.mktemp("demo") / "demo-output"
    result = dptext("demo", folder, "--no-dagster", "--json")
    assert result.exit_code == 0, result.stderr
    return folder, json.loads(result.stdout)


def test_the_sample_is_the_same_everywhere_and_holds_what_must_be_hidden():
    rows = demo_folder.rows(range(demo_folder.ROWS))
    assert len(rows) == len({row["id"] for row in rows}) == len({row["user_id"] for row in rows}) == demo_folder.ROWS
    assert {row["topic"] for row in rows} == set(demo_folder.TOPICS) == set(demo_folder.DOMAINS)
    texts = [row["request"] for month in demo_folder.MONTHS for row in demo_folder.month(month)]
    assert None in texts
    assert "" in texts
    joined = " ".join(text for text in texts if text)
    for personal in ("@example.org", "555-01", "Zorvex", "Achterberg"):
        assert personal in joined


@pytest.mark.thorough
def test_the_report_is_complete(done):
    folder, facts = done
    assert tuple(facts) == demo.KEYS
    assert facts["synthetic"] is True
    assert len(facts["rows"]) == 4
    assert all(len({row["raw"], row["custext"], row["surrogate"]}) == 3 for row in facts["rows"])
    assert {gate["partition"] for gate in facts["gates"]} == set(demo_folder.MONTHS)
    assert all(gate["passed"] for gate in facts["gates"])
    assert facts["verify"]["ok"]
    assert facts["excluded"] > 0
    assert facts["remaining"]["limits"]
    assert (folder / "published" / "2026-09.manifest.json").is_file()


@pytest.mark.slow
@pytest.mark.thorough
def test_the_questions_of_an_auditor_have_the_answers_of_their_page(done, warm, warm_commands):
    folder, _ = done
    follow(QUESTIONS, Reader(folder.parent, warm, warm_commands), demo=True)


@pytest.mark.thorough
def test_three_forms_cost_a_person_the_same_and_lead(done):
    folder, facts = done
    found = facts["three_forms"]
    assert tuple(found["forms"]) == demo_folder.FORMS
    for form in found["forms"].values():
        assert form["gates_passed"]
        assert 0.9 < form["epsilon"] <= 1
    assert found["f1_label_names"] < found["forms"]["synthetic"]["f1"] < found["f1_raw"]
    assert found["forms"]["rows"]["f1"] < found["forms"]["synthetic"]["f1"]
    assert sum(topic["raw"] for topic in found["topics"]) == demo_folder.ROWS
    assert sum(topic["neighborhood_share"] for topic in found["topics"]) == pytest.approx(demo_folder.ROWS)
    public = set(pl.read_parquet(folder / "three-forms" / "public-texts.parquet")["text"])
    for form, columns in (("rows", 4), ("shuffled", 2), ("synthetic", 2)):
        released = scan_published(str(folder / "three-forms" / form)).collect()
        assert set(released["request"]) <= public
        assert len(released.columns) == columns
    assert all(row["epsilon_by_words"] > 4 for row in facts["rows"])


@pytest.mark.thorough
def test_the_planted_bug_is_stopped_by_real_gates(done):
    folder, facts = done
    assert facts["planted_bug"]["exit_code"] == 4
    assert "canary_text_absent" in facts["planted_bug"]["message"]
    assert not list((folder / "planted-bug").glob("published/*.manifest.json"))
    again = dptext("demo", folder, "--planted-bug")
    assert again.exit_code in {4, 5}  # the release name is revoked by now
    assert not list((folder / "planted-bug").glob("published/*.manifest.json"))


@pytest.mark.thorough
def test_nothing_personal_is_published(done):
    folder, _ = done
    published = pl.read_parquet(folder / "published" / "*" / "*.parquet")
    words = {word for text in published["request"].drop_nulls() for word in text.split()}
    assert not words & {"zorvex", "plimbotron", "achterberg", "fjellheim", "grzybowska", "555"}
    assert set(published.columns) == {"id", "date", "request"}


def test_a_folder_of_somebody_else_is_not_touched(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    refused = dptext("demo", tmp_path)
    assert (refused.exit_code, [path.name for path in tmp_path.iterdir()]) == (5, ["mine.txt"])
