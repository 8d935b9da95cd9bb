"""Published packages: wheels that a tag builds, versions that agree, extras that name no package of someone else's."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import dptext_etl
from dptext_etl import _kernel

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]
NAME = re.compile(
    r"(?:pip install|uv add|install)\s+(?:-\S+\s+)*['\"`]*dptext[-_.]etl(?:[-_.](?:models|eval))?(?:\[|['\"`\s]|$)",
    re.MULTILINE,
)


def workflow(path):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (it comes with the extra dagster)")
    return yaml.safe_load(path.read_text())


def steps(path):
    return [step for job in workflow(path)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_what_is_there_and_may_do_little(path):
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    called = [step["run"].split() for step in steps(path) if "run" in step]
    assert called
    for program, *arguments in called:
        if program == "make":
            assert {word for word in arguments if "=" not in word} <= set(targets)
        elif program.startswith(".ci/"):
            assert os.access(ROOT / program, os.X_OK)
        else:
            assert program == "grep"
    found = workflow(path)
    assert found["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 90 for job in found["jobs"].values())
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]) for step in steps(path) if "uses" in step)


@pytest.mark.parametrize(("tag", "fits"), [(f"v{PROJECT['version']}", True), ("v0.0.1", False), ("v.*", False)])
def test_a_tag_of_another_version_builds_nothing(tag, fits):
    (check,) = (
        step["run"] for step in steps(ROOT / ".github" / "workflows" / "wheels.yml") if "grep" in step.get("run", "")
    )
    done = subprocess.run(
        ["bash", "-c", check], check=False, cwd=ROOT, env={**os.environ, "GITHUB_REF_NAME": tag}, capture_output=True
    )
    assert (done.returncode == 0) == fits


def test_versions_agree_and_packages_say_that_they_are_typed():
    kernel = tomllib.loads((ROOT / "kernel" / "Cargo.toml").read_text())["package"]["version"]
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    others = [tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in ("models", "eval")]
    versions = [
        kernel, _kernel.VERSION, dptext_etl.__version__, *(project["version"] for project in others),
        *(project["dependencies"][0].removeprefix(f"{PROJECT['name']}==") for project in others),
        *(item["version"] for item in locked if item["name"] == "dptext-kernel"),
    ]  # fmt: skip
    assert versions == [PROJECT["version"]] * len(versions)
    packages = ("dptext_etl", "udfs", "models/dptext_etl_models", "eval/dptext_etl_eval")
    assert all((ROOT / package / "py.typed").is_file() for package in packages)


def test_the_readme_names_the_wheel_and_nobody_is_sent_to_an_index_for_it():
    oldest = re.search(r"^oldest=(\S+)$", (ROOT / ".ci" / "wheel").read_text(), flags=re.MULTILINE)[1]
    abi = "".join(PROJECT["requires-python"].removeprefix(">=").split("."))
    wheel = f"dist/dptext_etl-{PROJECT['version']}-cp{abi}-abi3-{oldest}_x86_64.whl"
    assert f'```sh\nWHEEL={wheel}\npip install "$WHEEL"' in (ROOT / "README.md").read_text(encoding="utf-8")
    assert NAME.search("pip install 'dptext-etl[spark]'")
    assert NAME.search("install dptext-etl-models for a small one")
    texts = [*PAGES, *ROOT.glob("dptext_etl/**/*.py"), *ROOT.glob("udfs/**/*.py")]
    assert not [str(path) for path in texts if NAME.search(path.read_text(encoding="utf-8"))]
