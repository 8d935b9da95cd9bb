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

from dptext_etl import _kernel
from tests.later import later

later("dagster", reason="dagster is not installed")
later("dagster_dg_cli", reason="dagster-dg-cli is not installed")


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
