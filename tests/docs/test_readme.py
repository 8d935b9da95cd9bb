"""README and guide are run, block by block, as a reader would (`tests.page_reader`): nothing there is only claimed.

* All blocks of a page share one folder. A page that begins with `<!-- continues OTHER.md -->` starts in the folder
  that OTHER.md left.
* The last part of `QUESTIONS` starts in the folder that the demo left: `tests/integration/test_cli_demo.py` follows it.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import polars as pl
import pytest

from dptext_etl.runner import init
from tests.page_reader import Block, Reader, blocks, follow
from tests.spark_sessions import WORKER_SECRET

ROOT = Path(__file__).resolve().parents[2]
NEEDS_MORE = re.compile(r"dptext_etl_(?:models|eval)|dptext (?:audit|evaluate|train|calibrate)|dpmlm|dp_prompt|dpbart")
"""Names from the two other packages."""
MORE = "transformers.models.bart.modeling_bart transformers.models.gpt2.modeling_gpt2 dptext_etl_eval.*"
"""What their commands import."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONTINUES = re.compile(r"\A<!-- continues (\S+) -->")


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
            if page.name in READS_THE_SAMPLE:
                sample = next(block for block in blocks(ROOT / "docs" / "start.md") if block.language == "python")
                subprocess.run([sys.executable, "-c", sample.code], cwd=folder, check=True)
            env = {"WARM": MORE} if NEEDS_MORE.search(page.read_text(encoding="utf-8")) else {}
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


READS_THE_SAMPLE = {"README.md", "index.md"}
"""Pages that begin with the table of the tutorial."""
LATER = {"allocation", "evidence", "models", "great-expectations"}
"""Pages that are thorough: of the two other packages, and of expectations, which tests/leaks runs on every engine."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name, marks=[pytest.mark.thorough] * (page.stem in LATER)) for page in PAGES]
)
def test_every_example_runs(page, left):
    if NEEDS_MORE.search(page.read_text(encoding="utf-8")):
        pytest.importorskip("dptext_etl_models")
        pytest.importorskip("dptext_etl_eval")
    if shutil.which("bash") is None:
        pytest.skip("shell examples need bash")
    left(page)


def test_every_block_says_its_language():
    for page in (*PAGES, ROOT / "CONTRIBUTING.md"):
        fences = re.findall(r"^```(\w*)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert fences[1::2] == [""] * (len(fences) // 2), page
        other_programs = {"py"}  # a file that another program runs, in a separate test
        assert set(fences[::2]) <= {"python", "sh", "toml", "yaml", "text", "sql", "", *other_programs}, page


def test_init_and_all_pages_agree_on_key_and_release(tmp_path):
    """Who follows two pages in one folder has one key, and releases of one kind of name."""
    pl.DataFrame({"id": ["a"], "text": ["b"]}).write_parquet(tmp_path / "raw.parquet")
    proposed = tomllib.loads(init(tmp_path / "raw.parquet", form="rows"))
    assert (proposed["release"], proposed["key"]) == ("1", "file:noise.key")
    folders = (ROOT / "dptext_etl" / "data" / "demo", ROOT / "dagster_project", ROOT / "examples")
    for page in [*PAGES, *(path for folder in folders for path in folder.iterdir() if path.is_file())]:
        text = page.read_text(encoding="utf-8")
        assert "dptext.key" not in text, page.name
        assert not re.search(r"""\brelease\\?"?\s*[=:]\s*f?\\?"[0-9]{4}""", text), page.name


def test_readme_and_the_choice_show_the_same_generated_figures_with_the_rule():
    parts = {}
    for page in (ROOT / "README.md", ROOT / "docs" / "choose.md"):
        text = page.read_text(encoding="utf-8")
        parts[page.name] = {
            name: text.partition(f"<!-- generated: {name} -->")[2].partition("<!-- end -->")[0]
            for name in ("all_forms", "rule")
        }
    assert parts["README.md"] == parts["choose.md"]
    assert "more than 0.02 above every baseline" in parts["README.md"]["rule"]
    assert parts["README.md"]["all_forms"].count("\n| ") == 8
