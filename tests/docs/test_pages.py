"""The documentation builds strictly, says every mechanism, and the examples in docstrings run."""

import doctest
import importlib
import inspect
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import FunctionType

import pytest
from typer.testing import CliRunner

from dptext_etl import Ledger, Policy, available
from dptext_etl.cli.app import app
from dptext_etl.errors import EXIT_NAMES, TRANSIENT
from tests.study import study

markdown = study("generators.markdown")
api = study("generators.api")

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ((".", "dptext_etl"), (".", "udfs"), ("models", "dptext_etl_models"), ("eval", "dptext_etl_eval"))
MODULES = sorted(
    ".".join(path.relative_to(ROOT / base).with_suffix("").parts).removesuffix(".__init__")
    for base, package in PACKAGES
    for path in (ROOT / base / package).rglob("*.py")
    if path.name != "__main__.py"
)  # fmt: skip
OPTIONAL = {
    "dptext_etl_models", "dptext_etl_eval", "torch", "transformers", "dagster", "great_expectations", "pandas",
    "pyspark", "psycopg", "vllm",
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] in OPTIONAL:
            pytest.skip(f"{exc.name} is not installed")
        raise
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


def public():
    """Every name of `docs/api.md`, and the public methods of its classes, by dotted name."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for package, name in re.findall(r"^### ([\w.]+)\.(\w+)$", page, re.MULTILINE):
        value = getattr(importlib.import_module(package), name)
        yield f"{package}.{name}", value
        methods = vars(value).items() if isinstance(value, type) else ()
        for key, method in methods:
            if isinstance(method, FunctionType) and not key.startswith("_"):
                yield f"{package}.{name}.{key}", method


def test_the_public_api_is_documented_and_no_page_has_a_placeholder():
    pytest.importorskip("dptext_etl_eval")
    pytest.importorskip("pyspark")
    pytest.importorskip("dagster")
    assert [name for name, value in public() if not value.__doc__] == []
    pages = [
        path
        for path in (ROOT / "docs").rglob("*.md")
        if re.search(r"^\{\{|\{\{ frontier", path.read_text(), re.MULTILINE)
    ]
    assert pages == []
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = {room.strip(" ()") for layer in contract["layers"] for room in layer.split("|")}
    here = {path.stem for path in (ROOT / "dptext_etl").iterdir() if (path / "__init__.py").exists()}
    here |= {path.stem for path in (ROOT / "dptext_etl").glob("[!_]*.py")}
    assert not {f"dptext_etl.{name}" for name in here} - layers


CALLED = (
    *("dptext_etl.runner.scan_published", "dptext_etl.runner.open_classifier"),
    *("dptext_etl.corpora.Corpus", "dptext_etl.corpora.estimate_frequencies"),
    "dptext_etl.families.aggregate.classifier.Classifier",
    *(f"dptext_etl.checks.great_expectations.expectations.{name}" for name in ("suite_for", "validate")),
)
"""Names that other pages call, outside the packages that export all of theirs."""


def test_the_page_of_the_api_has_a_whole_sentence_for_each_method_and_argument(markdown, api):
    for package in ("dptext_etl_eval", "pyspark", "dagster", "great_expectations"):
        pytest.importorskip(package)
    page = " ".join((ROOT / "docs" / "api.md").read_text(encoding="utf-8").split())
    for name in CALLED:
        assert f"### {name} " in page
    missing, checked = [], 0
    for kind in (Policy, Ledger):
        for owner in kind.__mro__:
            for name, method in vars(owner).items() if owner.__module__.startswith("dptext_etl") else ():
                said = inspect.getdoc(method) if isinstance(method, FunctionType | property | classmethod) else None
                home = getattr(method, "__module__", owner.__module__)
                inherited = vars(kind).get(name, method) is method  # a parent's, if the class has no such method itself
                if said and inherited and home.startswith("dptext_etl") and not name.startswith("_"):
                    checked += 1
                    first = api.first_sentence(said)
                    missing += [] if f"* `{name}`: {markdown.linked(first)}" in page else [f"{kind.__name__}.{name}"]
    for name, value in [item for item in public() if not item[0].startswith(api._RESULTS)]:
        section = re.search(r"^Args:\n((?:    .*\n?|\n)+)", inspect.getdoc(value) or "", re.MULTILINE)
        is_method = name.rpartition(".")[0].rpartition(".")[2][:1].isupper()
        for entry in re.split(r"\n {4}(?=\S)", "\n" + section[1].rstrip())[1:] if section and not is_method else ():
            argument, _, said = entry.partition(":")
            checked += 1
            whole = markdown.linked(api.first_sentence(said))
            missing += [] if whole in page or "(see `" in said else [f"{name}({argument})"]
    assert missing == []
    assert checked > 150


def test_exit_codes_come_from_one_list():
    assert f"Exit codes: {EXIT_NAMES}." in " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    lists = repeats = 0
    for page in markdown_pages():
        for line in page.read_text(encoding="utf-8").splitlines():
            if re.search(r"\b0 \w+, 1 \w+, 2 \w+", line):
                lists += 1
                assert EXIT_NAMES in line, page.name
            for codes in re.findall(r"exit codes ((?:\d+, )+and \d+)", line):
                repeats += 1
                assert {int(code) for code in re.findall(r"\d+", codes)} == TRANSIENT, page.name
    assert lists
    assert repeats > 1


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed")
    pytest.importorskip("dptext_etl_eval")
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    yield folder
    shutil.rmtree(folder)


def test_the_committed_pages_are_what_the_code_says(monkeypatch):
    pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")
    monkeypatch.syspath_prepend(ROOT / "studies")
    from generators import mechanism_pages
    from generators.__main__ import pages

    from dptext_etl.cli.commands import explain

    monkeypatch.setattr(mechanism_pages, "command_json", cache(mechanism_pages.command_json))
    for law in ("distribution", "worked"):  # on no page, and seconds of work over the default vocabulary
        monkeypatch.setattr(explain, law, lambda *_: {})

    assert [path.name for path, text in pages().items() if path.read_text(encoding="utf-8") != text] == []


def slug(heading):
    """The anchor of a heading, as GitHub and mkdocs make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading).strip().lower()
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", text)).strip("-")


def anchors(page):
    text = page.read_text(encoding="utf-8")
    found = {slug(re.sub(r"\{#.*?\}", "", line)) for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    return found | set(re.findall(r"\{\s?#([\w-]+)", text)) | set(re.findall(r"(?:id|name)=\"([\w-]+)\"", text))


PLACES = ("docs", "deploy", "studies", "models", "eval", "dagster_project", "examples", "kernel", "udfs", "tests")


def markdown_pages():
    """Every page of ours, in a checkout or in an unpacked sdist."""
    yield from ROOT.glob("*.md")
    for place in PLACES:
        yield from (ROOT / place).rglob("*.md")


def links():
    for page in markdown_pages():
        text = page.read_text(encoding="utf-8")
        prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if not re.match(r"[a-z]+:", target):
                yield page, target


def test_every_relative_link_and_every_anchor_of_every_page_works():
    broken, found = [], 0
    for page, target in links():
        path, _, anchor = target.partition("#")
        there = page.parent.joinpath(path).resolve() if path else page
        found += bool(anchor)
        known = anchors(there) if anchor and there.is_file() and there.suffix in (".md", ".html") else {anchor}
        if not there.exists() or (anchor and anchor not in known):
            broken.append((str(page.relative_to(ROOT)), target))
    assert found > 100
    assert broken == []


FIGURES = {
    "CPU-seconds of a run over 10^6 rows": r"\b(\d+\.\d) CPU-s\b[^|\n]*(?=\|[^|\n]*10(?:⁵|\^5) rows)",
    "odds at epsilon 30": r"\| 30 \| (10\^[\d.]+) \|",
}
"""Figures that may occur on several pages, each by the words around it."""


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_on_several_pages_is_one_figure(name):
    texts = {page.name: page.read_text(encoding="utf-8") for page in markdown_pages()}
    found = {page: set(re.findall(FIGURES[name], text)) for page, text in texts.items()}
    values = set().union(*found.values())
    assert len(values) == 1, {page: figures for page, figures in found.items() if figures}


def test_pages_are_generated_and_link_to_the_rules(site):
    assert "shard_rows" in (site / "policy.html").read_text()
    assert "dptext ledger verify" in (site / "cli.html").read_text()
    assert "Weekday" in (site / "extending.html").read_text()
    assert "canary_text_absent" in (site / "how-it-works.html").read_text()
    assert "dptext_etl.orchestration.build_definitions" in (site / "api.html").read_text()
    assert 'href="spec/privacy.html#custext"' in (site / "mechanisms.html").read_text()
    assert 'href="spec/privacy.html"' in (site / "extending.html").read_text()
    assert "docs/spec/" not in (site / "mechanisms.html").read_text()
    for page in site.rglob("*.html"):
        sources = re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"'](https?:)?//", page.read_text())
        assert not sources, page.name
    page = (site / "mechanisms.html").read_text()
    sections = re.split(r"<h[23] id=\"([\w-]+)\">", page)
    found = dict(zip(sections[1::2], sections[2::2], strict=True))
    for name in available():
        assert "epsilon" in found[name], name
        rows = re.findall(rf'<tr>\s*<td><a href="#{name}">.*?</tr>', page, re.DOTALL)
        assert rows, name
        assert all(re.search("<code>[A-Z_]+</code>", row) and ("ε" in row or "∞" in row) for row in rows), name


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "images").glob("*.svg")), ids=lambda path: path.stem)
def test_pictures_are_legible_on_a_phone(path):
    """No text of a picture is smaller than 14 px where a page is 390 px wide, 16 px of them margins on each side."""
    picture = path.read_text(encoding="utf-8")
    width = float(re.search(r'viewBox="0 0 ([\d.]+) ', picture)[1])
    sizes = [float(size) for size in re.findall(r"font-size[:=]\"?([\d.]+)", picture)]
    assert sizes
    assert min(sizes) * min(1, (390 - 32) / width) >= 14
    assert 'role="img" aria-label="' in picture
