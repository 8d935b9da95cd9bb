"""README and guide are run, block by block, as a reader would: nothing on these pages is only claimed.

* `toml` that begins with `# NAME` is written to that file; `python` has nothing of the blocks before it but the modules
  that they loaded and the Spark that they started (Spark Connect has a Python of its own); `sh` is run by bash; all
  blocks of a page share one folder. `text` after a block is what it prints (… stands for anything).
* A page that begins with `<!-- continues OTHER.md -->` starts in the folder that OTHER.md left.
* `QUESTIONS` starts in the folder that the demo left, so `tests/integration/test_cli_demo.py` follows it.
* Commands that set up, serve or test this project itself are left out (`NOT_HERE`).
"""

import doctest
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDS_MORE = re.compile(r"dptext_etl_(?:models|eval)|dptext (?:audit|evaluate|train|calibrate)|dpmlm|dp_prompt|dpbart")
"""What the two other packages bring."""
MORE = "transformers.models.bart.modeling_bart transformers.models.gpt2.modeling_gpt2 dptext_etl_eval.*"
"""What their commands import."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
QUESTIONS = ROOT / "docs" / "questions.md"
NOT_HERE = ("make", "git clone", "cd ", "pip ", "dagster ", "dg ", "python -m pytest", ". .venv/")
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONTINUES = re.compile(r"\A<!-- continues (\S+) -->")


class Block(NamedTuple):
    language: str
    code: str
    line: int
    prints: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [(match[1], match[2], text[: match.start()].count("\n") + 1) for match in BLOCK.finditer(text)]
    after = [*found, ("", "", 0)][1:]
    return [
        Block(language, code, line, following[1] if following[0] == "text" else None)
        for (language, code, line), following in zip(found, after, strict=True)
        if language != "text"
    ]


def environment(commands: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "DPTEXT_SECRET": secrets.token_hex(),
        "COLUMNS": "160",
        "NO_COLOR": "1",
    }


BLOCKS = """
import contextlib, io, json, sys, traceback
for line in sys.stdin:
    printed, failure = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(printed):
            exec(json.loads(line), {"__name__": "__main__"})
    except BaseException:
        failure = traceback.format_exc()
    print(json.dumps([printed.getvalue(), failure]), flush=True)
"""


class Reader:
    """Someone who follows a page: a folder, an environment, one Python for all of its blocks (and one for Connect).

    Every command is a process of its own, as for a reader, and begins at once (`warm_python.py`).
    """

    def __init__(self, folder: Path, python: list[str], commands: Path, **more: str) -> None:
        self.folder, self.env = folder, environment(commands) | more
        self._start = python
        self._pythons: dict[bool, subprocess.Popen[str]] = {}

    def run(self, block: Block) -> str:
        if block.language == "toml":
            named = re.match(r"# (\S+\.toml)", block.code)
            if named:
                (self.folder / named[1]).write_text(block.code)
            return ""
        printed, failure = self._python_says(block.code) if block.language == "python" else self._bash_says(block.code)
        assert not failure, f"line {block.line}:\n{printed}\n{failure}"
        return printed

    def _bash_says(self, code: str) -> tuple[str, str]:
        lines = [line for line in code.splitlines() if not line.startswith(NOT_HERE)]
        command = ["bash", "-euo", "pipefail", "-c", "\n".join(lines)]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
        return done.stdout, f"{done.stderr}\nexit {done.returncode}" if done.returncode else ""

    def _python_says(self, code: str) -> tuple[str, str]:
        remote = ".remote(" in code  # Spark Connect is refused next to a classic session: it has a Python of its own
        if remote not in self._pythons:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            command = [*self._start, "-c", BLOCKS]
            self._pythons[remote] = subprocess.Popen(command, cwd=self.folder, env=self.env, text=True, **pipes)
        python = self._pythons[remote]
        assert python.stdin is not None
        assert python.stdout is not None
        python.stdin.write(f"{json.dumps(code)}\n")
        python.stdin.flush()
        answer = python.stdout.readline()
        printed, failure = json.loads(answer) if answer else ("", "Python ended")
        return printed, failure

    def leave(self) -> None:
        while self._pythons:
            self._pythons.popitem()[1].communicate()


@pytest.fixture(scope="module")
def left(tmp_path_factory, warm, warm_commands, spark_configuration):
    """The folder that a page leaves behind, which those that continue it copy; every page is followed once."""
    folders: dict[Path, Path] = {}

    def leave(page: Path) -> Path:
        if page not in folders:
            folders[page] = folder = tmp_path_factory.mktemp(page.stem)
            before = CONTINUES.match(page.read_text(encoding="utf-8"))
            if before:
                shutil.copytree(leave(page.with_name(before[1])), folder, dirs_exist_ok=True)
            reader = Reader(
                folder,
                warm,
                warm_commands,
                WARM=MORE if NEEDS_MORE.search(page.read_text(encoding="utf-8")) else "",
                SPARK_CONF_DIR=str(spark_configuration),
                DPTEXT_ANCHORS=f"{folder}.anchors",
            )
            try:
                follow(page, reader)
            finally:
                reader.leave()
        return folders[page]

    return leave


def follow(page: Path, reader: Reader) -> None:
    for block in blocks(page):
        if block.language not in {"toml", "python", "sh"}:
            continue
        printed = reader.run(block)
        if block.prints is not None:
            expected = block.prints.replace("…", "...")
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert doctest.OutputChecker().check_output(expected, printed, flags), (
                f"line {block.line} prints:\n{printed}"
            )


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page != QUESTIONS], ids=lambda page: page.name)
def test_every_example_runs(page, left, request):
    if "SparkSession" in page.read_text(encoding="utf-8"):
        request.getfixturevalue("java")
    if NEEDS_MORE.search(page.read_text(encoding="utf-8")):
        pytest.importorskip("dptext_etl_models")
        pytest.importorskip("dptext_etl_eval")
    if shutil.which("bash") is None:
        pytest.skip("shell examples need bash")
    left(page)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_every_block_says_its_language(page):
    fences = re.findall(r"^```(\w*)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert fences[1::2] == [""] * (len(fences) // 2)
    assert set(fences[::2]) <= {"python", "sh", "toml", "yaml", "text", "sql", ""}
