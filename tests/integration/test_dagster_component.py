"""The component by Dagster's own command line, in a separate project, and the sample project from a shell."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from dptext_etl import Policy, _kernel
from tests.later import later

later("dagster", reason="dagster is not installed")
later("dagster_dg_cli", reason="dagster-dg-cli is not installed")

TYPE = "dptext_etl.orchestration.PolicyComponent"
PROJECT = """\
[project]
name = "clinic"
version = "0.1.0"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "clinic"
"""
DEFINITIONS = """\
from pathlib import Path

import dagster as dg


@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""


@pytest.fixture
def project(tmp_path, reviews, save):
    """A project as `create-dagster project` lays it out, and a table of two months."""
    room = tmp_path / "src" / "clinic"
    (room / "defs").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (room / "__init__.py").touch()
    (room / "defs" / "__init__.py").touch()
    (room / "definitions.py").write_text(DEFINITIONS)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    for number, month in enumerate(("2026-01", "2026-02")):
        save(reviews(60, 60 * number), tmp_path / "raw" / f"{month}.parquet")
    _kernel.Secret().write(str(tmp_path / "noise.key"))
    return tmp_path


@pytest.fixture
def dg(project, warm):
    """Run `dg` in the project: dg("list", "defs")."""
    env = {
        **os.environ,
        "DAGSTER_HOME": str(project / "home"),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "PYTHONPATH": str(project / "src"),
        "DPTEXT_SECRET": (project / "noise.key").read_text().strip(),
        "COLUMNS": "200",
    }

    def run(*arguments):
        command = [*warm, "-m", "dagster_dg_cli.cli", *arguments]
        done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def privacy(project, small_vectors):
    """Turn the scaffolded policy into one with partitions and small tables."""
    path = project / "reviews.toml"
    said = path.read_text()
    said = said.replace("raw/2026-01.parquet", "raw/{partition}.parquet").replace(
        "published/reviews", "published/{partition}"
    )
    path.write_text(said.replace('name = "custext"', f'name = "custext", k = 5, vectors = "{small_vectors}"'))
    return Policy.load(path)


@pytest.mark.thorough
@pytest.mark.slow
def test_from_nothing_to_a_published_partition(project, dg, small_vectors, sentinel):
    code, said = dg("list", "components")
    assert code == 0, said
    assert TYPE in said

    code, said = dg("scaffold", "defs", TYPE, "reviews", "--source", "raw/2026-01.parquet", "--form", "rows")
    assert code == 0, said
    policy = privacy(project, small_vectors)
    assert policy.dataset == "reviews"
    assert "review" in {column.name for column in policy.columns}

    defs = project / "src" / "clinic" / "defs" / "reviews" / "defs.yaml"
    assert "executor: in_process" in defs.read_text()
    months = "  partitions: {type: monthly, start_date: '2026-01', end_date: '2026-03'}\n"
    defs.write_text(defs.read_text().rstrip() + "\n" + months)
    assert dg("check", "yaml") == (0, "All component YAML validated successfully.\n")

    code, said = dg("list", "defs")
    assert code == 0, said
    for name in ("raw_reviews", "staged_reviews", "published_reviews", "run_reviews", "canary_text_absent"):
        assert name in said

    code, said = dg("launch", "--assets", "*", "--partition", "2026-02")
    assert code == 0, said
    assert sentinel not in said
    assert (project / "published" / "2026-02.manifest.json").exists()
    assert not (project / "published" / "2026-01").exists()


PAGE = Path(__file__).resolve().parents[2] / "docs" / "dagster.md"


@pytest.mark.thorough
@pytest.mark.slow
def test_the_commands_of_the_page_publish_a_table(project, dg, reviews, save):
    """The layout of `project` is the one that `create-dagster project` and `pip install --editable .` leave."""
    (block,) = re.findall(r"^```sh\n(pip install create-dagster.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    save(reviews(60, 0), project / "reviews.parquet")
    setup, *commands = [command for line in block.splitlines() for command in line.split(" && ")][1:]
    assert setup == "create-dagster project clinic --no-uv-sync"
    for command in commands:
        if command.startswith("dg "):
            code, said = dg(*shlex.split(command)[1:])
            assert code == 0, said
    assert (project / "published" / "reviews.manifest.json").exists()


@pytest.mark.thorough
@pytest.mark.slow
def test_wrong_yaml_is_told_by_its_line(project, dg):
    room = project / "src" / "clinic" / "defs" / "reviews"
    room.mkdir()
    (room / "defs.yaml").write_text(f"type: {TYPE}\nattributes:\n  polcy: privacy.toml\n")
    code, said = dg("check", "yaml")
    assert code == 1
    assert "defs.yaml:" in said
    assert "polcy" in said
    assert "'policy' is a required property" in said


SAMPLE = Path(__file__).resolve().parents[2] / "dagster_project"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A folder with a copy of the project and nothing that an earlier run left in it."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(SAMPLE, folder / "dagster_project", ignore=shutil.ignore_patterns("data", ".dptext", "__pycache__"))
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
    assert published["rows excluded over the cap"] > 0
    assert topics["dagster/row_count"] == 4
    failed = {check["name"] for check in summary["checks"] if not check["passed"]}
    assert failed == {"report_excluded", "report_budget"}
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
    assert {key.path[-1] for key in staged} == {"raw_comments", "staged_comments"}
    from dptext_etl.orchestration.resources import GPU, Settings, names

    assert Settings(names(policy)).pool_of(policy) == GPU


def test_without_a_model_the_project_has_its_notes_alone(monkeypatch):
    from dagster_project import sample

    monkeypatch.setattr(sample, "find_spec", lambda _: None)
    assert sample.comments() is None
