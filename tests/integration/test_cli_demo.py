"""`dptext demo` in a folder of its own: rows, spend, budget, gates, and the planted bug that is stopped."""

import json
import subprocess
import sys

import polars as pl
import pytest
from typer.testing import CliRunner

from dptext_etl.cli.app import app
from dptext_etl.cli.commands import demo
from dptext_etl.cli.demo import reviews


def dptext(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """One demo without Dagster."""
    folder = tmp_path_factory.mktemp("demo") / "output"
    result = dptext("demo", folder, "--no-dagster", "--json")
    assert result.exit_code == 0, result.stderr
    return folder, json.loads(result.stdout)


def test_the_sample_is_the_same_everywhere_and_holds_what_must_be_hidden():
    rows = [row for partition in reviews.PARTITIONS for row in reviews.rows(partition)]
    assert len(rows) == len({row["id"] for row in rows}) == reviews.ROWS
    assert rows == [row for partition in reviews.PARTITIONS for row in reviews.rows(partition)]
    texts = [row["review"] for row in rows]
    assert None in texts
    assert "" in texts
    joined = " ".join(text for text in texts if text)
    for personal in ("@example.org", "555-01", "Zorvex", "Achterberg"):
        assert personal in joined


def test_everything_is_told(done):
    folder, facts = done
    assert tuple(facts) == demo.KEYS
    assert facts["synthetic"] is True
    assert len(facts["rows"]) == 6
    assert all(row["before"] != row["after"] for row in facts["rows"])
    assert {gate["partition"] for gate in facts["gates"]} == set(reviews.PARTITIONS)
    assert all(gate["passed"] for gate in facts["gates"])
    assert facts["verify"]["ok"]
    assert facts["left_out"] > 0
    assert facts["remaining"]["limits"]
    assert (folder / "published" / "2026-09.manifest.json").is_file()


def test_the_release_as_surrogates_leads(done):
    folder, facts = done
    surrogate = facts["surrogate"]
    assert (surrogate["epsilon"], surrogate["class"], surrogate["disclosures"]) == (4.0, "PURE_LDP", ["nullness"])
    assert surrogate["gates_passed"]
    assert all(row["epsilon_by_words"] > 4 for row in facts["rows"])
    for shares in ("raw", "released", "near_share"):
        assert sum(item[shares] for item in surrogate["topics"]) == pytest.approx(1, abs=0.02)
    public = set(pl.read_parquet(folder / "public-texts.parquet")["text"])
    released = pl.read_parquet(folder / "surrogate" / "*" / "*.parquet")["review"].drop_nulls()
    assert set(released) <= public
    assert released.n_unique() > 100


def test_the_planted_bug_is_stopped_by_real_gates(done):
    folder, facts = done
    assert facts["planted_bug"]["exit_code"] == 4
    assert "canary_text_absent" in facts["planted_bug"]["message"]
    assert not list((folder / "planted-bug").glob("published/*.manifest.json"))
    again = dptext("demo", folder, "--planted-bug")
    assert again.exit_code in {4, 5}  # the release name is revoked by now
    assert not list((folder / "planted-bug").glob("published/*.manifest.json"))


def test_nothing_personal_is_published(done):
    folder, _ = done
    published = pl.read_parquet(folder / "published" / "*" / "*.parquet")
    words = {word for text in published["review"].drop_nulls() for word in text.split()}
    assert not words & {"zorvex", "plimbotron", "achterberg", "fjellheim", "grzybowska", "555"}
    assert set(published.columns) == {"id", "stars", "date", "review"}


def test_a_folder_of_somebody_else_is_not_touched(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    refused = dptext("demo", tmp_path)
    assert refused.exit_code == 5
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_with_dagster_as_a_process(tmp_path, warm):
    pytest.importorskip("dagster")
    for python in ([sys.executable], warm):  # a second demo starts anew in the same folder
        command = [*python, "-m", "dptext_etl.cli", "demo"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    shown = done.stdout
    for words in (
        "invented by us",
        "the Dagster job",
        "released  ",
        "left",
        "canary_text_absent",
        "echo $?\n  4",
        "Files",
    ):
        assert words in shown
    assert (tmp_path / "demo-output" / "dagster").is_dir()
