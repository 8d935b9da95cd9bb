"""The sample project, as someone who copies it runs it: one command, from a shell."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.later import later

later("dagster", reason="dagster is not installed")

PROJECT = Path(__file__).resolve().parents[2] / "dagster_project"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A folder with a copy of the project and nothing that an earlier run left in it."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(PROJECT, folder / "dagster_project", ignore=shutil.ignore_patterns("data", "__pycache__"))
    home = folder / "dagster_project" / "home"
    for path in home.iterdir():
        if path.name != "dagster.yaml":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


def shell(folder, *command, python=(sys.executable,)):
    home = str(folder / "dagster_project" / "home")
    env = {**os.environ, "DAGSTER_HOME": home, "DAGSTER_DISABLE_TELEMETRY": "yes", "PYTHONPATH": str(folder)}
    env["WARM"] = "torch transformers"
    command = [*python, "-m", *command]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def raw_notes(folder):
    return pl.read_parquet(folder / "dagster_project" / "data" / "raw" / "*.parquet")["note"].drop_nulls()


@pytest.mark.thorough
@pytest.mark.slow
def test_the_project_materialises_all_of_itself(checkout, warm):
    done = shell(checkout, "dagster_project", python=warm)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["success"]
    assert [run["partition"] for run in summary["runs"]] == ["2026-01", "2026-02"]
    published, topics = (summary["runs"][1]["assets"][name] for name in ("published_notes", "topics"))
    assert published["rows left out over the cap"] > 0
    assert topics["dagster/row_count"] == 4
    failed = {check["name"] for check in summary["checks"] if not check["passed"]}
    assert failed == {"report_left_out"}
    assert (checkout / "dagster_project/data/noise.key").stat().st_mode & 0o077 == 0
    assert not [note for note in raw_notes(checkout).unique() if note in done.stdout + done.stderr]


@pytest.mark.thorough
def test_loading_the_project_imports_nothing_heavy(checkout):
    heavy = "{'torch', 'transformers', 'great_expectations', 'pyspark', 'pandas'}"
    code = f"import dagster_project.definitions, sys; print({heavy} & set(sys.modules))"
    (checkout / "load.py").write_text(code)
    done = shell(checkout, "load")
    assert done.stdout.strip() == "set()", done.stdout + done.stderr


@pytest.mark.thorough
def test_a_model_stages_in_the_pool_of_gpus():
    pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")
    from dagster_project.sample import comments
    from dptext_etl.orchestration import build_definitions

    policy = comments()
    assert policy.columns[0].mechanism.name == "dpmlm"
    staged = build_definitions(policy, partitions=["2026-01"]).resolve_asset_graph().get_all_asset_keys()
    assert {key.path[-1] for key in staged} == {"raw_comments", "staged_comments", "published_comments"}
    from dptext_etl.orchestration.names import names
    from dptext_etl.orchestration.resources import GPU, Settings

    assert Settings(names(policy)).pool_of(policy) == GPU


def test_without_a_model_the_project_has_its_notes_alone(monkeypatch):
    from dagster_project import sample

    monkeypatch.setattr(sample, "find_spec", lambda _: None)
    assert sample.comments() is None
