"""docs/extending.md reveals the truth: a package of three files is installed, and everything finds its parts.

`tests/leaks/test_gates_one_file.py` checks that its gate stops a run.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dptext_etl.engines.spark.worker_policy import WorkerPolicy
from dptext_etl.errors import PolicyError
from tests.command_line import dptext

ROOT = Path(__file__).resolve().parents[2]
NAME, GATE, PACKAGE = "weekday", "control_characters", "dptext_weekday"
CONTRACT = [str(ROOT / "tests" / "contract"), "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
CONTRACT += ["--mechanisms", NAME, "-p", "no:cacheprovider"]


def block(language, holding=""):
    page = (ROOT / "docs" / "extending.md").read_text()
    found = re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    (text,) = [text for text in found if holding in text]
    return text


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the package installed from its wheel, as pip installs it."""
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    folder = tmp_path_factory.mktemp("package")
    (folder / PACKAGE).mkdir()
    (folder / "pyproject.toml").write_text(block("toml"))
    (folder / PACKAGE / "__init__.py").write_text("")
    (folder / PACKAGE / f"{NAME}.py").write_text(block("python", "(TableMechanism)"))
    (folder / PACKAGE / f"{GATE}.py").write_text(block("python", "(Gate)"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    offline = ["--quiet", "--no-index", "--no-deps"]
    for command in (["wheel", *offline, "--no-build-isolation", "."], ["install", *offline, "--target", "site"]):
        wheels = map(str, folder.glob("*.whl"))
        done = subprocess.run([*pip, *command, *wheels], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return folder / "site"


def python(site, *arguments, code=0):
    """Run Python with the package installed."""
    env = {**os.environ, "PYTHONPATH": str(site), "DPTEXT_CACHE": str(site.parent / "cache")}
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


ASKED = f"""
import doctest, importlib, json
from dptext_etl import ColumnPolicy
from dptext_etl.checks.gate import every
from dptext_etl.engines.spark.worker_policy import WorkerPolicy
from tests.command_line import facts
mechanism = {{"name": "{NAME}", "epsilon": 1.0}}
policy = ColumnPolicy(dataset="d", column="c", release="1", mechanism=mechanism, key="env:DPTEXT_SECRET")
print(json.dumps({{
    "mechanisms": [item["name"] for item in facts("mechanisms")["mechanisms"]],
    "explained": facts("explain", "{NAME}", "--word", "monday"),
    "doctest": doctest.testmod(importlib.import_module("{PACKAGE}.{NAME}")),
    "gates": [gate.name for gate in every()],
    "sent": WorkerPolicy.of(policy, {{}}).written(),
}}))
"""


@pytest.fixture(scope="module")
def found(site):
    """The findings of a process with the package."""
    return json.loads(python(site, "-c", ASKED))


def test_commands_runs_and_doctests_find_the_package(found):
    assert NAME in found["mechanisms"]
    explained = found["explained"]
    assert (explained["name"], explained["parameters"][0]["meaning"]) == (NAME, "Per word.")
    assert explained["law"]["epsilon_table"] <= 1.0
    failed, attempted = found["doctest"]
    assert (failed, attempted > 0) == (0, True)
    assert GATE in found["gates"]


@pytest.mark.parametrize("module", [NAME, GATE])
def test_the_page_obeys_the_house_style(site, module):
    ruff = shutil.which("ruff", path=Path(sys.executable).parent)
    if ruff is None:
        pytest.skip("ruff is not installed")
    text = (site / PACKAGE / f"{module}.py").read_text()
    for command in (["check"], ["format", "--check"]):
        arguments = [ruff, *command, "--config", str(ROOT / "pyproject.toml"), "--stdin-filename", f"{module}.py", "-"]
        done = subprocess.run(arguments, input=text, capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(
    ("engines", "count"),
    [("not spark and not engine_contract", range(25, 60)), ("spark and not engine_contract", range(4, 10))],
    ids=["most engines", "the one with servers"],
)
def test_the_mechanism_passes_the_contract_suite_in_every_engine(site, engines, count):
    printed = python(site, "-m", "pytest", *CONTRACT, "-k", engines)
    passed = re.search(r"(\d+) passed", printed)
    assert passed is not None
    assert int(passed.group(1)) in count


def test_a_process_without_the_package_names_it_and_a_policy_is_refused(found):
    # What Spark's driver sends to its workers holds the name of the package
    with pytest.raises(
        PolicyError, match=f"the mechanism {NAME} comes with dptext-weekday, which is not installed here"
    ) as said:
        WorkerPolicy.model_validate_json(found["sent"]).column_policy()
    assert "Hint: pip install dptext-weekday" in str(said.value)
    refused = dptext("explain", NAME)
    assert refused.exit_code == 5
    assert "there is no mechanism 'weekday'; available: " in refused.output
    assert "if another package brings it, install that package here too" in " ".join(refused.output.split())
