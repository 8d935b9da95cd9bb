"""The project as a whole: names, versions, pins, weight, rooms of files, messages of the Makefile."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import dptext_etl

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = {
    "spark", "dagster", "gx", "models", "allocation", "postgres", "objects", "tables", "telemetry",
    "semantic", "static", "eval", "all", "dev",
}  # fmt: skip
FORBIDDEN = {"dagster-ge", "dagster-polars", "opendp", "adbc-driver-sqlite"}
TRADES = {"torch", "dagster", "pandas", "pyspark", "great_expectations", "transformers"}
PUBLIC = {"available", "load", "privatize", "privatize_table", "run", "ColumnPolicy", "Policy", "Ledger"}
pins = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
constraints = {item.name.lower(): item for item in map(Requirement, filter(None, pins))}


def requirements() -> list[tuple[str, Requirement]]:
    extras = PROJECT["project"]["optional-dependencies"]
    groups = {"core": PROJECT["project"]["dependencies"], **extras}
    for package in ("models", "eval"):
        groups[package] = tomllib.loads((ROOT / package / "pyproject.toml").read_text())["project"]["dependencies"]
    return [(group, Requirement(line)) for group, lines in groups.items() for line in lines]


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout: an unpacked sdist has no list of tracked files")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


def test_extras_licenses_and_names_are_as_they_are_stated():
    assert set(PROJECT["project"]["optional-dependencies"]) == EXTRAS
    (everything,) = (item for group, item in requirements() if group == "all")
    assert everything.extras == EXTRAS - {"all", "dev"}
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    named = re.compile("hel" + "per|ut" + "ils|mana" + "ger|anony" + "mi|sani" + "tize", re.IGNORECASE)
    names = [path.relative_to(ROOT).as_posix() for path in tracked()]
    assert not [name for name in names if named.search(name)]


@pytest.mark.parametrize(("group", "requirement"), requirements(), ids=str)
def test_what_is_pinned_is_what_is_allowed(group, requirement):
    pin = constraints.get(requirement.name.lower())
    if pin is not None:
        (version,) = (clause.version for clause in pin.specifier)
        assert requirement.specifier.contains(version), f"{group}: {requirement} against {pin}"


def test_pins_are_complete_and_name_nothing_forbidden():
    missing = {item.name.lower() for _, item in requirements()} - set(constraints)
    missing -= {"dptext-etl", "dptext-etl-models", "dptext-etl-eval"}
    assert not missing
    named = set(constraints) | {item.name.lower() for _, item in requirements()}
    assert not named & FORBIDDEN
    assert all("connect" in item.extras for _, item in requirements() if item.name == "pyspark")
    light = {item.name for group, item in requirements() if group in {"core", "dagster", "gx"}}
    assert not light & {"torch", "transformers", "pyspark", "sentence-transformers"}
    versions = {name: str(pin.specifier) for name, pin in constraints.items() if name.startswith("dagster")}
    libraries = versions.pop("dagster-k8s")  # 1.13.27 has libraries in version 0.29.27
    (version,) = set(versions.values())
    assert libraries.rpartition(".")[2] == version.rpartition(".")[2]


def test_public_names_resolve_and_init_files_hold_re_exports():
    import dptext_etl

    assert set(dptext_etl.__all__) == PUBLIC == set(dir(dptext_etl))
    assert all(getattr(dptext_etl, name) is not None for name in PUBLIC)
    with pytest.raises(AttributeError, match="no attribute"):
        dptext_etl.anything_else  # noqa: B018
    for path in [*ROOT.glob("dptext_etl/**/__init__.py"), *ROOT.glob("udfs/**/__init__.py")]:
        names = re.findall(r"^(?:class|def) (\w+)", path.read_text(), flags=re.MULTILINE)
        assert set(names) <= {"__getattr__", "__dir__"}, path.relative_to(ROOT)


def test_a_room_imports_no_neighbor_of_another_trade():
    rooms = "dptext_etl.column, dptext_etl.ledger, dptext_etl.polars, udfs.polars, dptext_etl.cli"
    program = f"import json, sys, {rooms}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not TRADES & {name.partition(".")[0] for name in json.loads(done.stdout)}


def imported(source: str, package: tuple[str, ...]) -> list[str]:
    """The full names that a module of a package imports."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            names += [".".join([*above, *filter(None, [node.module]), alias.name]) for alias in node.names]
    return names


def test_no_test_folder_imports_from_another():
    """What several folders share is a file of `tests/` itself, which all may import."""
    assert imported("from ..a.b import c", ("tests", "d")) == ["tests.a.b.c"]
    found = []
    for path in [*ROOT.glob("tests/**/*.py"), *ROOT.glob("models/tests/**/*.py"), *ROOT.glob("eval/tests/**/*.py")]:
        package = path.relative_to(ROOT).parent.parts
        for name in imported(path.read_text(encoding="utf-8"), package):
            test_folder = re.match(r"((?:models\.|eval\.)?tests\.\w+)\.", name)
            folder = tuple(test_folder.group(1).split(".")) if test_folder else ()
            if folder != package[: len(folder)] and ROOT.joinpath(*folder).is_dir():
                found.append(f"{path.relative_to(ROOT)}: {name}")
    assert found == []


def test_absent_marks_are_too_long_to_be_in_random_bytes_by_chance():
    """The hash of one release in a thousand has any four digits."""
    short = re.compile(r"""\bb"[^"]{1,4}" (not )?in\b|"[a-z0-9]{1,4}" not in .*\bread_(text|bytes)\(""")
    assert short.search('assert b"4711" not in content')
    paths = [path for path in tracked() if "tests" in path.parts and path.suffix == ".py" and path != Path(__file__)]
    lines = ((path.name, line.strip()) for path in paths for line in path.read_text(encoding="utf-8").splitlines())
    assert [place for place in lines if short.search(place[1])] == []


def test_tracked_files_hold_no_path_of_a_machine_and_no_secret():
    # Put together here, so that this file does not find itself.
    home = re.compile(r"(?<![\w.])/(?:" + "|".join(["wo" + "rk/", "ro" + "ot/", r"ho" + r"me/\w+/"]) + r")\w")
    secret = re.compile("PRIVATE" + " KEY-----|AKIA" + r"[0-9A-Z]{16}|gh[pousr]_\w{30}|SECRET\s*=\s*[\"']?[0-9a-f]{64}")
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for pattern in (home, secret):
            found = pattern.search(text)
            assert found is None, f"{path.relative_to(ROOT)}:{text[: found.start()].count(chr(10)) + 1}"


def make(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    program = shutil.which("make")
    if program is None:
        pytest.skip("make is not installed")
    env = {**os.environ, **({"PATH": path} if path else {})}
    for name in ("MAKEFLAGS", "MAKELEVEL", "JAVA_HOME"):
        env.pop(name, None)
    command = [program, "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_help_is_the_default_and_lists_every_target():
    shown = make()
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    targets = {name for name in phony.group(1).split() if not name.startswith(("require-", "lint-"))}
    assert targets == {
        *("help", "demo", "test", "test-core", "test-thorough"),
        *("lint", "docs", "wheel", "local-wheel", "develop", "clean"),
    }
    assert {line.split()[1] for line in shown.stdout.splitlines()} == targets


def test_every_lane_has_a_part_of_the_suite():
    def lanes(*asked: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([ROOT / ".ci" / "lanes", *asked], capture_output=True, text=True, check=False)

    refused = lanes("no-such-lane")
    assert refused.returncode == 2
    parts = {name: files for name, *files in map(str.split, lanes("--parts").stdout.splitlines())}
    assert set(refused.stderr.partition("there are: ")[2].split()) == parts.keys()
    assert all(parts.values())
    assert not [name for files in parts.values() for name in files if not (ROOT / name).is_file()]


def bare(folder: Path, **programs: str) -> str:
    """A PATH with the few commands that the Makefile's own lines need, and `programs`."""
    for name in ("find", "grep", "sed", "sort", "expand"):
        (folder / name).symlink_to(shutil.which(name))
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("target", "programs", "sentence"),
    [
        ("require-python", {}, "needs Python 3.11 or newer"),
        ("require-python", {"python3": "exit 1"}, "needs Python 3.11 or newer"),
        ("require-python", {"python3": '[[ "$2" != *ensurepip* ]]'}, "needs Python's venv module"),
        ("require-cargo", {}, "or newer to build its kernel: install it from rustup.rs"),
        ("require-cargo", {"cargo": "echo cargo 1.63.0 (2022)"}, "needs Rust (cargo) 1."),
        ("require-java", {}, "Spark needs Java 17 or newer"),
    ],
)
def test_what_is_missing_is_named_in_one_sentence(tmp_path, target, programs, sentence):
    # An empty VENV: otherwise the checkout's own environment would answer.
    done = make(target, f"VENV={tmp_path / 'none'}", f"PYTHON={tmp_path / 'python3'}", path=bare(tmp_path, **programs))
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(said) == 1
    assert sentence in said[0]


CORE = Path(dptext_etl.__file__).parent
FILES = [path for path in CORE.rglob("*.py") if path.name not in {"__init__.py", "__main__.py"}]


def test_files_have_names_of_their_own_and_at_most_600_lines():
    names = Counter(path.name for path in FILES)
    assert [name for name, count in names.items() if count > 1] == []
    lines = {path.relative_to(CORE).as_posix(): len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert {name: count for name, count in lines.items() if count > 600} == {}
    assert len(lines) > 100, "these are the files of the core"
