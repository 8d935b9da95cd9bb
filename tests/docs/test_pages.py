"""The documentation builds strictly, says every mechanism, and the examples in docstrings run."""

import doctest
import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import FunctionType

import pytest

from dptext_etl import available

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ((".", "dptext_etl"), (".", "udfs"), ("models", "dptext_etl_models"), ("eval", "dptext_etl_eval"))
MODULES = sorted(
    ".".join(path.relative_to(ROOT / base).with_suffix("").parts).removesuffix(".__init__")
    for base, package in (
        (".", "dptext_etl"),
        (".", "udfs"),
        ("models", "dptext_etl_models"),
        ("eval", "dptext_etl_eval"),
    )
    for path in (ROOT / base / package).rglob("*.py")
    if path.name != "__main__.py"
)
OPTIONAL = {
    "dptext_etl_models",
    "dptext_etl_eval",
    "torch",
    "transformers",
    "dagster",
    "great_expectations",
    "pandas",
    "pyspark",
    "psycopg",
    "vllm",
}


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


def test_the_public_api_is_documented():
    pytest.importorskip("dptext_etl_eval")
    pytest.importorskip("pyspark")
    pytest.importorskip("dagster")
    assert [name for name, value in public() if not value.__doc__] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed")
    pytest.importorskip("dptext_etl_eval")
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    yield folder
    shutil.rmtree(folder)


def test_every_mechanism_has_a_page_with_its_facts(site):
    for name in available():
        page = (site / "mechanisms" / f"{name}.html").read_text()
        for fact in ("Released exactly", "neighbors", "log10 odds", "epsilon"):
            assert fact in page


def test_the_committed_pages_are_what_the_code_says(monkeypatch):
    pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")
    monkeypatch.syspath_prepend(ROOT / "studies")
    from generators.__main__ import pages

    assert [path.name for path, text in pages().items() if path.read_text(encoding="utf-8") != text] == []


def test_no_committed_page_has_a_placeholder():
    pages = [
        path
        for path in (ROOT / "docs").rglob("*.md")
        if re.search(r"^\{\{|\{\{ frontier", path.read_text(), re.MULTILINE)
    ]
    assert pages == []


def slug(heading):
    """The anchor of a heading, as GitHub and mkdocs make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading).strip().lower()
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", text)).strip("-")


def anchors(page):
    text = page.read_text(encoding="utf-8")
    found = {slug(re.sub(r"\{#.*?\}", "", line)) for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    return found | set(re.findall(r"\{\s?#([\w-]+)", text)) | set(re.findall(r"(?:id|name)=\"([\w-]+)\"", text))


def links():
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.split():
        text = (ROOT / name).read_text(encoding="utf-8")
        prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if not re.match(r"[a-z]+:", target):
                yield name, target


def test_every_relative_link_of_every_page_works():
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout: an unpacked sdist has no list of tracked files")
    broken = []
    for name, target in links():
        path, _, anchor = target.partition("#")
        page = (ROOT / name).parent.joinpath(path).resolve() if path else ROOT / name
        if not page.exists() or (anchor and page.suffix == ".md" and anchor not in anchors(page)):
            broken.append((name, target))
    assert broken == []


def test_the_reference_pages_are_generated(site):
    assert "shard_rows" in (site / "policy.html").read_text()
    assert "dptext ledger verify" in (site / "cli.html").read_text()
    assert "Weekday" in (site / "extending.html").read_text()
    assert "dptext_etl.orchestration.build_definitions" in (site / "api.html").read_text()


def test_generated_pages_link_to_the_rules(site):
    assert 'href="../spec/privacy.html#custext"' in (site / "mechanisms" / "custext.html").read_text()
    assert 'href="spec/privacy.html"' in (site / "extending.html").read_text()
    assert not [page.name for page in site.glob("mechanisms/*.html") if "docs/spec/" in page.read_text()]


def test_the_design_names_what_exists():
    page = (ROOT / "docs" / "design.md").read_text()
    named = re.findall(r"`((?:dptext_etl|kernel|udfs|dagster_project|models|eval|docs|tests|studies)/[\w/.]*)`", page)
    assert len(named) > 25
    assert not [path for path in named if not (ROOT / path).exists()]


def test_every_room_is_in_the_import_contract():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = {room.strip(" ()") for layer in contract["layers"] for room in layer.split("|")}
    here = {path.stem for path in (ROOT / "dptext_etl").iterdir() if (path / "__init__.py").exists()}
    here |= {path.stem for path in (ROOT / "dptext_etl").glob("[!_]*.py")}
    assert not {f"dptext_etl.{name}" for name in here} - layers


def test_no_page_loads_anything_from_elsewhere(site):
    for page in site.rglob("*.html"):
        sources = re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"'](https?:)?//", page.read_text())
        assert not sources, page.name


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "images").glob("*.svg")), ids=lambda path: path.stem)
def test_pictures_are_legible_on_a_phone(path):
    """No text of a picture is smaller than 14 px where a page is 390 px wide, 16 px of them margins on each side."""
    picture = path.read_text(encoding="utf-8")
    width = float(re.search(r'viewBox="0 0 ([\d.]+) ', picture)[1])
    sizes = [float(size) for size in re.findall(r"font-size[:=]\"?([\d.]+)", picture)]
    assert sizes
    assert min(sizes) * min(1, (390 - 32) / width) >= 14
    assert 'role="img" aria-label="' in picture
