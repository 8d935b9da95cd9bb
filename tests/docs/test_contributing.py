"""CONTRIBUTING.md tells the truth: its toy mechanism and its toy gate are one new file each, and everything finds them.

`tests/leaks/test_gates_one_file.py` sees the toy gate decide.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = "weekday"
GATE = "control_characters"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package as it is, by links, and one new file."""
    folder = tmp_path_factory.mktemp("copy")
    for package in ("dptext_etl", "udfs"):
        shutil.copytree(
            ROOT / package, folder / package, copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__")
        )
    toys = re.findall(r"^```python\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    mechanism, gate = toys
    (folder / "dptext_etl" / "mechanisms" / f"{NAME}.py").write_text(mechanism)
    (folder / "dptext_etl" / "checks" / "gates" / f"{GATE}.py").write_text(gate)
    return folder


def python(copy, *arguments):
    """Run Python with the copy in front of the checkout."""
    env = {**os.environ, "PYTHONPATH": str(copy), "DPTEXT_CACHE": str(copy / "cache")}
    done = subprocess.run([sys.executable, *arguments], cwd=copy, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_catalog_and_the_command_line_find_it(copy):
    listed = json.loads(python(copy, "-m", "dptext_etl.cli", "mechanisms", "--json"))
    assert NAME in json.dumps(listed)
    explained = json.loads(python(copy, "-m", "dptext_etl.cli", "explain", NAME, "--word", "monday", "--json"))
    assert explained["name"] == NAME
    assert explained["parameters"][0]["meaning"] == "Per word."
    assert explained["law"]["epsilon_table"] <= 1.0


def test_its_docstring_example_runs(copy):
    python(copy, "-m", "doctest", str(copy / "dptext_etl" / "mechanisms" / f"{NAME}.py"))


def test_the_catalogue_of_gates_finds_it(copy):
    printed = python(copy, "-c", "from dptext_etl.checks.catalog import every; print([gate.name for gate in every()])")
    assert repr(GATE) in printed


@pytest.mark.parametrize("toy", [f"mechanisms/{NAME}.py", f"checks/gates/{GATE}.py"])
def test_it_obeys_the_house_style(copy, toy):
    ruff = shutil.which("ruff", path=Path(sys.executable).parent)
    if ruff is None:
        pytest.skip("ruff is not installed")
    text = (copy / "dptext_etl" / toy).read_text()
    for command in (["check"], ["format", "--check"]):
        arguments = [ruff, *command, "--config", str(ROOT / "pyproject.toml"), "--stdin-filename", toy, "-"]
        done = subprocess.run(arguments, input=text, capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engines", "count"),
    [("not spark", 25), pytest.param("spark", 4, marks=pytest.mark.thorough)],
    ids=["most engines", "the one with servers"],
)
def test_it_passes_the_contract_suite_in_every_engine(copy, engines, count):
    suite = [str(ROOT / "tests" / "contract"), "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    printed = python(copy, "-m", "pytest", *suite, "-k", f"{NAME} and {engines}", "-p", "no:cacheprovider")
    passed = re.search(r"(\d+) passed", printed)
    assert passed is not None
    assert int(passed.group(1)) >= count
