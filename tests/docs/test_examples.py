"""Every script under examples/ runs in an empty folder, on data that it makes itself."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if path.stem != "reviews")
PLAIN = [path for path in SCRIPTS if path.stem.startswith("polars")]
SAYS = {
    "polars_run": "a second run released 0 more",
    "spark_run": "released 300 rows",
    "dagster_job": "published",
    "great_expectations_check": "what was published: passes\nraw text in its place: fails",
}


@pytest.fixture
def follow(tmp_path, monkeypatch, capsys):
    def run(script):
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(FOLDER))
        monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        try:
            runpy.run_path(str(FOLDER / f"{script}.py"), run_name="__main__")
        finally:
            sys.modules.pop("reviews", None)
        said = capsys.readouterr().out
        assert SAYS.get(script, "r2") in said
        assert "the breakfast was cold" not in said

    return run


@pytest.mark.parametrize("script", [path.stem for path in PLAIN])
def test_it_runs(script, follow):
    follow(script)


@pytest.mark.thorough
@pytest.mark.parametrize("script", ["spark_sql", "spark_run"])
def test_it_runs_on_spark(script, follow, spark):
    follow(script)


@pytest.mark.thorough
def test_it_materialises(follow):
    pytest.importorskip("dagster")
    follow("dagster_job")


def test_expectations_judge_tables(follow):
    pytest.importorskip("great_expectations")
    follow("great_expectations_check")


@pytest.mark.thorough
def test_the_command_line_does_the_whole_job(tmp_path):
    """The pages of the documentation run the same commands, one by one."""
    env = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    done = subprocess.run(
        [str(FOLDER / "command_line.sh")], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "statement" / "statement.html").is_file()


def test_every_script_is_listed():
    listed = (FOLDER / "README.md").read_text()
    assert not [
        path.name for path in FOLDER.iterdir() if path.is_file() and f"`{path.name}`" not in listed + "`README.md`"
    ]
