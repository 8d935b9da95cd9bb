"""Every reference to the specification resolves, nothing cites a rule by number, and its verifiers run."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "docs" / "spec"
PAGES = (
    *("privacy", "ledger-plan", "stream", "surrogate", "shuffled", "synthetic", "amendments"),
    *("inputs", "words", "boundary", "promises", "ledger-tables", "postgres"),
)
TEXT = {".py", ".pyi", ".rs", ".md", ".toml", ".yml", ".txt", ".mjs", ""}
EXCLUDED = ("tests/docs/test_specification.py", "models/dptext_etl_models/english-")
ANCHOR = re.compile(r"\{:? ?#([a-z0-9-]+) ?\}")
LINK = re.compile(r"\]\(([^)\s]*)\)")
CITED = re.compile(r"docs/spec/([\w.-]*\w)?(?:#([\w-]*))?")
ELSEWHERE = re.compile(
    r"(?<![\w-])(?<!mechanisms/)(?:privacy|amendments|stream|surrogate|anchors|peers|ecosystem)\.md\b|shared/spec"
)
NUMBERED = re.compile(
    r"\b[Aa]mendments? *A?\d|(?<![\w#-])A(?:[1-9]|1\d|2[0-7])[a-c]?(?![\w-])"  # one amendment
    r"|\.md`?,? +(?:sections? )?\d|\bspec(?:ification)?,? +(?:section )?\d|\bDESIGN\b"  # a section of a page
)


@cache
def anchors() -> dict[str, set[str]]:
    """The anchors of every page, each there once."""
    found = {page: ANCHOR.findall((SPEC / f"{page}.md").read_text(encoding="utf-8")) for page in PAGES}
    for page, names in found.items():
        assert len(names) == len(set(names)), (page, sorted(name for name in names if names.count(name) > 1))
    return {page: set(names) for page, names in found.items()}


def problems(name: str, text: str) -> list[str]:
    """List the wrong references of one file, by line."""
    return [
        f"{name}:{number}: {problem}"
        for number, line in enumerate(text.splitlines(), 1)
        for problem in (*cited(name, line), *loose(name, line))
    ]


def cited(name: str, line: str) -> Iterator[str]:
    """References from the root: a page with an anchor (prose may name a whole page), or a file next to the pages."""
    for page, anchor in CITED.findall(line):
        if not (SPEC / page).exists():
            yield f"there is no docs/spec/{page}"
        elif page.endswith(".md") and anchor not in anchors()[page[:-3]] and (anchor or not name.endswith(".md")):
            yield f"docs/spec/{page} has no anchor {anchor!r}"


def loose(name: str, line: str) -> Iterator[str]:
    """Rules cited by number, and pages of the specification that are not in docs/spec."""
    if name.startswith("docs/spec/") or name == "mkdocs.yml":  # pages name each other; mkdocs checks its own list
        return
    rest = CITED.sub("", line)
    rest = LINK.sub("", rest) if name.startswith(("docs/", "studies/")) else rest
    if ELSEWHERE.search(rest):
        yield "the specification is docs/spec: name its page from the root, with an anchor"
    if NUMBERED.search(rest):
        yield "rules have anchors, not numbers"


def tracked(*suffixes: str) -> dict[str, str]:
    """Text files of the repository, by name."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout: an unpacked sdist has no list of tracked files")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    names = [name for name in listed.split("\0") if name and not name.startswith(EXCLUDED)]
    return {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in names
        if (ROOT / name).suffix in (suffixes or TEXT) and (ROOT / name).is_file()
    }


def test_every_reference_resolves_and_every_old_number_has_its_place():
    found = [problem for name, text in tracked().items() for problem in problems(name, text)]
    assert not found, "\n".join(found)
    rows = re.findall(r"^\| A(\d+) \|(.*)$", (SPEC / "amendments.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 28))
    assert all(LINK.search(places) for _, places in rows)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("dptext_etl/x.py", '"""Charged first (docs/spec/privacy.md#reserve-last)."""'),
        ("dptext_etl/x.py", '"""Charged first (docs/spec/privacy.md)."""'),
        ("dptext_etl/x.py", '"""Charged first (docs/spec/private.md#reserve-first)."""'),
        ("dptext_etl/x.py", '"""Charged first (privacy.md section 7.2)."""'),
        ("kernel/src/x.rs", "//! Streams (`stream.md`)."),
        ("kernel/src/x.rs", "//! Streams (../shared/spec)."),
        ("udfs/x.py", "# names enter the key (amendment A8)"),
        ("udfs/x.py", "# a lost ledger (A12)"),
        ("tests/x.py", '"""As the specification, section 2.2, has it."""'),
        ("CONTRIBUTING.md", "See [streams](docs/spec/stream.md#rivers)."),
        ("pyproject.toml", 'name = "imports run one way (DESIGN section 2)"'),
    ],
)
def test_planted_references_are_found(name, line):
    found = problems(name, f"first\n{line}\n")
    assert found
    assert all(problem.startswith(f"{name}:2: ") for problem in found)


def literals(source: str) -> Iterable[str]:
    """Strings of a module that are not docstrings: texts for users."""
    tree = ast.parse(source if "docs/spec" in source else "")
    stated = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in stated:
            yield node.value


@pytest.mark.parametrize("page", ["boundary", "promises"])
def test_the_tests_that_a_page_names_exist(page):
    named = re.findall(r"`((?:[a-z]+/)?tests/[\w/]+\.py)(?:::(\w+))?`", (SPEC / f"{page}.md").read_text())
    assert len(named) > 20
    assert not [path for path, name in named if f"def {name}" not in (ROOT / path).read_text()]


def test_no_message_cites_a_rule():
    said = {
        name: literals(text)
        for name, text in tracked(".py").items()
        if not name.startswith(("tests/", "models/tests/", "eval/tests/", "docs/", "studies/"))
    }
    said |= {
        name: [line for line in text.splitlines() if not line.strip().startswith("//")]
        for name, text in tracked(".rs").items()
    }
    assert not [(name, one) for name, found in said.items() for one in found if "docs/spec" in one]


def verified(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, folder / script], capture_output=True, text=True, check=False)


@pytest.mark.thorough
def test_the_claims_hold():
    pytest.importorskip("scipy")
    done = verified(SPEC, "verify_privacy.py")
    assert done.returncode == 0, done.stderr
    *claims, last = done.stdout.splitlines()
    assert (len(claims), last) == (26, "ALL OK")


def test_the_golden_vectors_hold(tmp_path):
    pytest.importorskip("cryptography")
    done = verified(SPEC, "verify_stream.py")
    assert done.returncode == 0, done.stderr
    folder = Path(shutil.copytree(SPEC, tmp_path / "spec"))
    page = folder / "stream.md"
    page.write_text(page.read_text(encoding="utf-8").replace("85ba37d42941d5cd", "85ba37d42941d5ce"), encoding="utf-8")
    planted = verified(folder, "verify_stream.py")
    assert planted.returncode == 1
    assert "85ba37d42941d5ce" in planted.stderr
