"""Follow a page of the documentation block by block, as a reader would.

`toml` that begins with `# NAME` is written to that file; `python` has nothing of the blocks before it but the modules
that they loaded; `sh` is run by bash. `text` after a block is its output (… stands for anything). Commands that set
up, serve or test this project itself are excluded (`NOT_HERE`). A page about Spark uses the session of all tests:
`python` in this process, the rest by its Connect server.
"""

import contextlib
import doctest
import io
import json
import os
import re
import secrets
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import pytest

QUESTIONS = Path(__file__).resolve().parents[1] / "docs" / "ledger.md"
"""Its last part starts in the folder that the demo left, so that the demo's test follows it."""
AFTER_THE_DEMO = "<!-- from here: the folder that the demo leaves -->"
NOT_HERE = ("make", "git clone", "cd ", "pip ", "dg ", "python -m pytest", ". .venv/")
NEEDS = "# needs "
"""The first words of a block of commands that no test follows; then the things that a reader needs."""
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    code: str
    line: int
    prints: str | None


def blocks(page: Path, demo: bool = False) -> list[Block]:
    """The blocks of a page before its part about the demo, or the blocks of that part."""
    text = page.read_text(encoding="utf-8")
    border = text.find(AFTER_THE_DEMO) if AFTER_THE_DEMO in text else len(text)
    matches = [match for match in BLOCK.finditer(text) if (match.start() > border) == demo]
    found = [(match[1], match[2], text[: match.start()].count("\n") + 1) for match in matches]
    after = [*found, ("", "", 0)][1:]
    return [
        Block(language, code, line, following[1] if following[0] == "text" else None)
        for (language, code, line), following in zip(found, after, strict=True)
        if language != "text"
    ]


def environment(commands: Path) -> dict[str, str]:
    return {
        **os.environ, "PATH": os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "DPTEXT_SECRET": secrets.token_hex(), "COLUMNS": "160", "NO_COLOR": "1",
    }  # fmt: skip


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
    """Someone who follows a page: a folder, an environment, one Python for all of its blocks, and maybe Spark.

    Every command is a separate process, as for a reader, and begins at once (`warm_python.py`).
    """

    def __init__(self, folder: Path, python: list[str], commands: Path, spark: Any = None, **more: str) -> None:
        self.folder, self.env = folder, environment(commands) | more
        self._start = python
        self._python: subprocess.Popen[str] | None = None
        if spark is not None:
            _relative_to(spark, folder)
        self._spark = spark

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

    def _here(self, code: str) -> tuple[str, str]:
        printed, failure = io.StringIO(), ""
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
            patch.chdir(self.folder)
            for name in ("DPTEXT_SECRET", "DPTEXT_ANCHORS"):
                patch.setenv(name, self.env[name])
            try:
                exec(code, {"__name__": "__main__"})
            except BaseException:  # noqa: BLE001
                failure = traceback.format_exc()
        return printed.getvalue(), failure

    def _python_says(self, code: str) -> tuple[str, str]:
        if self._spark is not None and ".remote(" not in code:
            return self._here(code)
        if self._python is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            command = [*self._start, "-c", BLOCKS]
            self._python = subprocess.Popen(command, cwd=self.folder, env=self.env, text=True, **pipes)
        python = self._python
        code = code.replace('.remote("local[2]")', f'.remote("{self.env.get("SPARK_REMOTE")}")')
        assert python.stdin is not None
        assert python.stdout is not None
        python.stdin.write(f"{json.dumps(code)}\n")
        python.stdin.flush()
        answer = python.stdout.readline()
        printed, failure = json.loads(answer) if answer else ("", "Python ended")
        return printed, failure

    def leave(self) -> None:
        if self._python is not None:
            self._python.communicate()
        if self._spark is not None:
            _relative_to(self._spark, Path.cwd())


def _relative_to(spark: Any, folder: Path) -> None:
    """Have the JVM read relative paths as a JVM that was started in this folder."""
    hadoop = spark._jvm.org.apache.hadoop.fs
    local = hadoop.Path(f"file://{folder}").getFileSystem(spark._jsc.hadoopConfiguration())
    local.setWorkingDirectory(hadoop.Path(str(folder)))
    spark._jvm.System.setProperty("user.dir", str(folder))  # what Hadoop reads for other file systems, as of streams


def follow(page: Path, reader: Reader, demo: bool = False) -> None:
    for block in blocks(page, demo):
        if block.language not in {"toml", "python", "sh"} or block.code.startswith(NEEDS):
            continue
        printed = reader.run(block)
        if block.prints is not None:
            expected = block.prints.replace("…", "...")
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert doctest.OutputChecker().check_output(expected, printed, flags), (
                f"line {block.line} prints:\n{printed}"
            )
