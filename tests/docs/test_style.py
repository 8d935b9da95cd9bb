"""Prose keeps the words of `docs/style.md`: pages, comments, docstrings, and sentences of messages."""

import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "style.md"
LEFT_OUT = (
    "docs/style.md",
    "tests/frozen/",  # bytes of earlier versions
    "dptext_etl/corpora/shipped/",  # texts of corpora
    "dptext_etl/corpora/everyday",
    "dptext_etl/data/",  # cards of artifacts, whose bytes have hashes
    "dptext_etl_models/english-",
    "studies/reports/drills.md",
)
"""Text that is data, or that a study wrote together with its figures."""


def words():
    listed = PAGE.read_text(encoding="utf-8").split("<!-- words: start -->")[1].split("<!-- words: end -->")[0]
    return [line.split("|")[1].strip() for line in listed.strip().splitlines()[2:]]


BANNED = re.compile(rf"(?<![\w-])(?:{'|'.join(words())})(?:s|d|r|rs|ing|ly)?(?![\w-])", re.IGNORECASE)
QUOTED = re.compile(
    r"`[^`]*`|\]\([^)]*\)|\{#?[^{}]*\}|https?://\S+|\"[^\"\n]*\"|“[^”]*”|'[^'\n]{1,40}'|noqa.*|^\s+\w+:", re.MULTILINE
)


def tracked(ending):
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout: an unpacked sdist has no list of tracked files")
    names = subprocess.run(
        ["git", "ls-files", f"*{ending}"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [name for name in names.split() if not any(part in name for part in LEFT_OUT) and (ROOT / name).is_file()]


def banned(text):
    return [found.group(0) for found in BANNED.finditer(QUOTED.sub(" ", text))]


def prose(source):
    """Comments and docstrings of a module."""
    before = None
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and token.string.lstrip("rRbBuU").startswith('"""') and before != tokenize.OP
        ):
            yield token.string.lstrip("rRbBuU")[3:-3]
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type


def test_the_list_is_read_and_found():
    assert len(words()) > 40
    assert banned("Whoever reads the catalogue is told.") == ["Whoever", "catalogue", "told"]
    assert banned("`beside` and [links](whoever.md) and {told}") == []


@pytest.mark.parametrize("name", tracked(".md"))
def test_pages(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert banned(re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.MULTILINE | re.DOTALL)) == []


def test_names_of_test_files():
    names = [name for name in tracked(".py") if name.startswith("tests/") or "/tests/" in name]
    assert len(names) > 200
    assert [name for name in names if banned(re.sub(r"[_/.]", " ", name))] == []


def test_each_entry_of_the_changelog_is_one_line():
    """A line under a heading of a version is an entry, as wide as the lines of other pages at most."""
    entries = re.split(r"^### .*$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    lines = [line for part in entries for line in part.split("\n## ")[0].splitlines() if line]
    assert [line for line in lines if not line.startswith("- ") or len(line) > 140] == []
    assert len(set(lines)) == len(lines) > 100


@pytest.mark.parametrize("folder", ["dptext_etl", "models", "eval", "udfs", "dagster_project", "studies", "tests"])
def test_comments_and_docstrings(folder):
    sources = [name for name in tracked(".py") if name.startswith(f"{folder}/")]
    found = {
        name: [word for text in prose((ROOT / name).read_text("utf-8")) for word in banned(text)] for name in sources
    }
    assert {name: words for name, words in found.items() if words} == {}
