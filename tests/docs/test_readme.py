"""README and guide are run, block by block, as a reader would (`tests.page_reader`): nothing there is only claimed.

* All blocks of a page share one folder. A page whose first paragraph is `CONTINUES` starts in the folder that the other
  page left.
* The last part of `QUESTIONS` starts in the folder that the demo left: `tests/integration/test_cli_demo.py` follows it.
"""

import re
import shutil
import tomllib
from pathlib import Path

import polars as pl
import pytest

from dptext_etl.runner import init
from tests.page_reader import NEEDS, Block, Reader, blocks, follow
from tests.spark_sessions import WORKER_SECRET

ROOT = Path(__file__).resolve().parents[2]
NEEDS_MORE = re.compile(r"dptext_etl_(?:models|eval)|dptext (?:audit|evaluate|train|calibrate)|dpmlm|dp_prompt|dpbart")
"""Names from the two other packages."""
MORE = "transformers.models.bart.modeling_bart transformers.models.gpt2.modeling_gpt2 dptext_etl_eval.*"
"""What their commands import."""


def needs_more(page: Path) -> bool:
    """Whether a block that is followed has a name from the two other packages."""
    return any(NEEDS_MORE.search(block.code) for block in blocks(page) if not block.code.startswith(NEEDS))


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONTINUES = re.compile(
    r"\A# .*\n\nRun the commands below in the folder that \[[^\]]*\]\((\w+\.md)\) leaves\.$", re.MULTILINE
)
"""The visible sentence at the top of a page that continues another."""


@pytest.fixture(scope="module")
def left(request, tmp_path_factory, warm, warm_commands):
    """The folder that a page leaves behind, which those that continue it copy; every page is followed once."""
    folders: dict[Path, Path] = {}

    def leave(page: Path) -> Path:
        if page not in folders:
            folders[page] = folder = tmp_path_factory.mktemp(page.stem)
            before = CONTINUES.match(page.read_text(encoding="utf-8"))
            if before:
                shutil.copytree(leave(page.with_name(before[1])), folder, dirs_exist_ok=True)
            env = {"WARM": MORE} if needs_more(page) else {}
            spark = None
            if any("SparkSession" in block.code for block in blocks(page)):
                spark = request.getfixturevalue("spark")
                env |= {"SPARK_REMOTE": request.getfixturevalue("spark_connect"), "DPTEXT_SECRET": WORKER_SECRET}
            reader = Reader(folder, warm, warm_commands, spark, DPTEXT_ANCHORS=f"{folder}.anchors", **env)
            try:
                if before:  # a copied project needs another anchor store (docs/runbook.md)
                    reader.run(Block("sh", "dptext ledger maintain privacy.toml", 0, None))
                follow(page, reader)
            finally:
                reader.leave()
        return folders[page]

    return leave


LATER = {"allocation", "evidence", "models", "great-expectations", "dagster", "runbook", "spark", "surrogate-corpus"}
LATER |= {"table-formats"}
"""Pages that are thorough: they start servers, Spark, or jobs of Dagster, or need the two other packages."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name, marks=[pytest.mark.thorough] * (page.stem in LATER)) for page in PAGES]
)
def test_every_example_runs(page, left):
    if needs_more(page):
        pytest.importorskip("dptext_etl_models")
        pytest.importorskip("dptext_etl_eval")
    if shutil.which("bash") is None:
        pytest.skip("shell examples need bash")
    if page.name == "index.md":  # a part of README, whose blocks run once
        assert {block.code for block in blocks(page)} <= {block.code for block in blocks(ROOT / "README.md")}
        return
    left(page)


@pytest.mark.slow
@pytest.mark.thorough
def test_the_other_engines_of_readme_read_the_same_release(left, spark, monkeypatch):
    pytest.importorskip("dagster")
    readme = ROOT / "README.md"
    (code,) = re.findall(r"^```py\n(.*?)^```", readme.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    folder = left(readme)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DPTEXT_ANCHORS", f"{folder}.anchors")
    names = {"spark": spark}
    exec(code.replace('"few.parquet"', repr(str(folder / "few.parquet"))), names)
    released = pl.from_arrow(names["released"].select("id", "request").toArrow()).sort("id")
    assert names["summary"].rows["released"] == 240
    assert released.equals(pl.read_parquet("published/few").select("id", "request").sort("id"))
    assert len(list(names["defs"].resolve_all_asset_specs())) == 3


def test_readme_is_short_and_names_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert {"make demo", "make test"} <= set(re.findall(r"make (?:demo|test)\b", text))


def test_every_block_says_its_language():
    for page in (*PAGES, ROOT / "CONTRIBUTING.md"):
        fences = re.findall(r"^```(\w*)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert fences[1::2] == [""] * (len(fences) // 2), page
        other_programs = {"py"}  # a file that another program runs, in a separate test
        assert set(fences[::2]) <= {"python", "sh", "toml", "yaml", "text", "sql", "", *other_programs}, page


COMMAND = re.compile(r"^(?:dptext|dagster|dg|pip|make|export|python3?|spark-submit|from|import) ", re.MULTILINE)


def untested(text):
    """Return the blocks of a page that hold commands or Python, but that no reader of pages follows or skips openly."""
    found = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    hidden = [code for language, code in found if language in ("", "text", "sql") and COMMAND.search(code)]
    return hidden + [code for language, code in found if language != "sh" and code.startswith(NEEDS)]


def test_blocks_of_commands_run_or_say_what_they_need():
    """Only `sh` and `python` are followed: commands in another kind of block would be claimed, not tested."""
    assert {page.name: found for page in PAGES if (found := untested(page.read_text(encoding="utf-8")))} == {}
    needs = [block.code for page in PAGES for block in blocks(page) if block.code.startswith(NEEDS)]
    assert all(len(code.splitlines()) > 1 for code in needs)
    assert 5 < len(needs) < 15
    for fault in (
        "```text\ndptext run privacy.toml\n```\n",
        "```\nimport polars\n```\n",
        "```text\n# needs a GPU\n```\n",
    ):
        assert untested(fault), fault


def test_pages_that_continue_another_say_so_at_their_top():
    continued = {page.name: found[1] for page in PAGES if (found := CONTINUES.match(page.read_text(encoding="utf-8")))}
    assert {"dagster.md", "ledger.md", "runbook.md"} <= continued.keys()
    assert set(continued.values()) == {"rows.md"}


def test_init_and_all_pages_agree_on_key_and_release(tmp_path):
    """Who follows two pages in one folder has one key, and releases of one kind of name."""
    pl.DataFrame({"id": ["a"], "text": ["b"]}).write_parquet(tmp_path / "raw.parquet")
    proposed = tomllib.loads(init(tmp_path / "raw.parquet", form="rows"))
    assert (proposed["release"], proposed["key"]) == ("1", "file:noise.key")
    folders = (ROOT / "dptext_etl" / "data" / "demo", ROOT / "dagster_project", ROOT / "examples")
    for page in [*PAGES, *(path for folder in folders for path in folder.iterdir() if path.is_file())]:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"""\brelease\\?"?\s*[=:]\s*f?\\?"[0-9]{4}""", text), page.name


def test_readme_and_the_choice_show_the_same_generated_figures_with_the_rule():
    parts = {}
    for page in (ROOT / "README.md", ROOT / "docs" / "choose.md"):
        found = GENERATED.findall(page.read_text(encoding="utf-8"))
        parts[page.name] = {name: body for name, _, body in found if name in ("all_forms", "rule")}
    assert parts["README.md"] == parts["choose.md"]
    assert "more than 0.02 above every baseline" in parts["README.md"]["rule"]
    assert parts["README.md"]["all_forms"].count("\n| ") == 10


GENERATED = re.compile(r"<!-- generated: (\w+) by ([^>]*?) -->(.*?)<!-- end -->", re.DOTALL)
FIGURE = re.compile(
    r"(?<![\w.,^])0?\.\d\d+(?!\w|\.\d)|\d%|\b[\d.]+ (?:CPU-|ms per|MiB/s)|\b\d+ of 100\b"
    r"|\d (?:rows|records|texts) per second"
)
"""A share, a percentage, a time, or a rate, as measured figures are written."""
RULE = re.compile(
    r"guess of [\d.]+% (?:becomes [\d.]+% at most|can become .*97% at 8)|right in 1% of cases becomes right in 36%"
    r"|(?:more than|least) [\d.]+%|Intervals are 95%|more than 0\.02|`[^`\n]*`|\b0\.01 / δ|(?:at most|≤) 0\.01\b"
)
"""Limits, odds that follow from epsilon, and code: no measured figures."""


def unmarked(page):
    """Return the lines of a page with a measured figure outside of generated parts and blocks that tests run."""
    page = re.sub(r"^[ \t]*```.*?^[ \t]*```", "", page, flags=re.MULTILINE | re.DOTALL)
    page = re.sub(r"\A<!-- generated by.*", "", GENERATED.sub("", page), flags=re.DOTALL)
    return [line for line in RULE.sub("", page).splitlines() if FIGURE.search(line)]


def test_every_measured_figure_of_a_page_is_generated_and_names_its_command():
    of_users = [page for page in PAGES if page.name != "style.md"]
    found = {page.name: unmarked(page.read_text(encoding="utf-8")) for page in of_users}
    assert {name: lines for name, lines in found.items() if lines} == {}
    starts = re.compile(r"^ *<!-- generated: [^\n]*<!-- end -->", re.MULTILINE)  # a line of HTML, not of Markdown
    assert [page.name for page in PAGES if starts.search(page.read_text(encoding="utf-8"))] == []
    commands = {match[1] for page in PAGES for match in GENERATED.findall(page.read_text(encoding="utf-8"))}
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "studies" / "Makefile").read_text(), re.MULTILINE))
    assert len(commands) > 3
    for command in commands - {"make docs"}:
        script = command.removeprefix("python ")
        assert command.removeprefix("make -C studies ") in targets or (ROOT / script).is_file(), command


def test_figures_that_no_script_writes_are_found():
    part = "<!-- generated: x by make docs -->0.63<!-- end -->"
    assert unmarked(f"{part}\n`epsilon = 0.25`\n```text\n0.63536\n```\na cap of more than 10%") == []
    for line in ("About 64 of 100 rows keep the topic.", "It reaches 0.88.", "15% are found.", "it took 45.5 CPU-s"):
        assert unmarked(f"{part}\n{line}") == [line]
