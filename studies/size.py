"""`make -C studies size`: how large the code is, and how much of it a small run executes."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"core": "dptext_etl", "models": "models/dptext_etl_models", "eval": "eval/dptext_etl_eval"}
LONG = 600
RUN_FIGURES = (
    "files",
    "functions",
    "files without those that are only imported",
    "functions without bodies of classes",
    "files that receive raw texts",
    "changes of file from the charge until the first shard is staged",
    "ledger opened",
    "manifest read",
    "anchor files written with fsync",
)
PAGES = ROOT / "docs"
ROOMS = {"core": ("",), "runner and engines": ("runner", "engines"), "ledger": ("ledger",)}
RUN = """
import sys
files, functions, texts_in, looking = set(), set(), set(), []
called = {}  # functions, which have fast local names (the second flag), and their files; bodies of classes do not
calls = dict.fromkeys(("Ledger.open", "Manifest.read", "_write"), 0)
names = set()
charging = []  # files of functions in the order of their first call since the first batch was charged
def holds(value, depth=0):
    if isinstance(value, (list, tuple)):
        return depth < 2 and any(holds(item, depth + 1) for item in value[:8])
    if isinstance(value, (pl.DataFrame, pl.Series, pa.Array, pa.ChunkedArray, pa.RecordBatch, pa.Table)):
        value = str((value.to_arrow() if isinstance(value, (pl.DataFrame, pl.Series)) else value).to_pylist())
    return isinstance(value, str) and "zanzibar" in value
def note(frame, event, _):
    if event == "call" and "/dptext_etl" in frame.f_code.co_filename and not looking:
        files.add(frame.f_code.co_filename)
        looking.append(True)
        if frame.f_code.co_filename not in texts_in and any(map(holds, list(frame.f_locals.values()))):
            texts_in.add(frame.f_code.co_filename)
        looking.clear()
        if not frame.f_code.co_name.startswith("<"):
            name, file = frame.f_code.co_qualname, frame.f_code.co_filename
            if name in calls and file.endswith(("ledger.py", "sink_files.py", "anchor_files.py")):
                calls[name] += 1
            if frame.f_code not in functions and (charging or name == "Shards.reserve") and "Staging.save" not in names:
                charging.append(file)
            functions.add(frame.f_code)
            if frame.f_code.co_flags & 2:
                called[frame.f_code] = file
            names.add(name)
import threading
import polars as pl
import pyarrow as pa
threading.setprofile(note)
sys.setprofile(note)
from dptext_etl import Policy, _kernel, run
_kernel.Secret().write("noise.key")
words = ["good", "room", "cold", "film", "music", "doctor", "river"]
texts = ["zanzibar " + " ".join(words[(row + at) % 7] for at in range(9)) for row in range(240)]
pl.DataFrame({"id": range(240), "user": [row // 3 for row in range(240)], "text": texts}).write_parquet("raw.parquet")
mechanism = {"name": "custext", "epsilon": 2.0}
column = {"name": "text", "mechanism": mechanism, "allow": ["cluster", "length"]}
run(Policy.parse({
    "dataset": "d", "release": "1", "source": "raw.parquet", "sink": "out", "staging": "inside",
    "id": "id", "subject": "user",
    "key": "file:noise.key", "ledger": {"url": "sqlite:///ledger.db"}, "column": [column],
}))
sys.setprofile(None)
changes = sum(before != after for before, after in zip(charging, charging[1:]))
print(len(files), len(functions), len(set(called.values())), len(called), len(texts_in), changes, *calls.values())
"""


def main() -> None:
    """Print the figures."""
    for title, folder in PACKAGES.items():
        paths = sorted((ROOT / folder).rglob("*.py"))
        texts = [path.read_text(encoding="utf-8") for path in paths]
        lines = sum(len(text.splitlines()) for text in texts)
        docstrings = sum(_docstring_lines(ast.parse(text)) for text in texts)
        longest = [path.name for path, text in zip(paths, texts, strict=True) if len(text.splitlines()) > LONG]
        print(f"{title}: {len(paths)} files, {lines:,} lines, {docstrings:,} of docstrings; above {LONG}: {longest}")
    for title, lines in room_lines().items():
        print(f"{title}: {lines:,} lines")
    print(f"pages for users: {page_words():,} words")
    from dptext_etl.mechanisms.custext import CusText

    above = [kind for kind in CusText.__mro__[1:] if kind.__module__.startswith("dptext_etl")]
    print(f"above CusText: {len(above)} classes; public attributes: {len(_public(CusText))}")
    for title, count in run_figures().items():
        print(f"a first run of 240 rows, {title}: {count}")


def run_figures() -> dict[str, int]:
    """Profile a first run of one shard, threads and imports included, in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", RUN], cwd=folder, capture_output=True, text=True, check=True)
    return dict(zip(RUN_FIGURES, map(int, done.stdout.split()[-len(RUN_FIGURES) :]), strict=True))


def room_lines() -> dict[str, int]:
    """Count the lines of the core, and of its largest packages."""
    counts = {}
    for title, folders in ROOMS.items():
        paths = [path for folder in folders for path in (ROOT / "dptext_etl" / folder).rglob("*.py")]
        counts[title] = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
    return counts


def page_words() -> int:
    """Count the words of all pages except the specification, as `wc -w` does."""
    return sum(len(path.read_text(encoding="utf-8").split()) for path in PAGES.glob("*.md"))


def _docstring_lines(tree: ast.Module) -> int:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(tree) if isinstance(node, kinds) and ast.get_docstring(node))
    return sum((node.body[0].end_lineno or 0) - node.body[0].lineno + 1 for node in nodes)


def _public(kind: type) -> set[str]:
    from pydantic import BaseModel

    names = {name for name, _ in inspect.getmembers_static(kind) if not name.startswith("_")}
    return (names | set(kind.model_fields)) - set(dir(BaseModel))  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
