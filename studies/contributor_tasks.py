"""`make -C studies tasks`: how many files each of the ten tasks of CONTRIBUTING.md opens, counted from its table."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PATH = re.compile(r"`([\w./-]+)`")
_WAY = "{#the-way-of-one-text}"


def tasks() -> dict[str, tuple[int, int]]:
    """Return for each task that names files the number that the table states, and the number that it names."""
    rows = re.findall(
        r"^\| ([^|]+) \| (\d+) \| ([^|]+) \|$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE
    )
    counts = {task: (int(stated), len(files(text))) for task, stated, text in rows}
    return {task: both for task, both in counts.items() if both[1]}


def files(text: str) -> set[str]:
    """Return the files that a text names; "one in `folder/`" is one file.

    Raises:
        FileNotFoundError: A file or folder does not exist.
    """
    if "docs/design.md" in text:
        text = (ROOT / "docs" / "design.md").read_text("utf-8").partition(_WAY)[2].partition("\n## ")[0]
    named: set[str] = set()
    for name in _PATH.findall(text):
        if "/" not in name and not (ROOT / name).is_file():
            continue  # a word of code
        if not (ROOT / name).exists():
            raise FileNotFoundError(name)
        named.add(name)
    return named


def messages() -> dict[str, set[str]]:
    """Return the constant messages of raised errors, with the modules that hold them."""
    modules_of = defaultdict(set)
    for folder in ("dptext_etl", "models/dptext_etl_models", "eval/dptext_etl_eval"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                    text = node.exc.args[0]
                    if isinstance(text, ast.Constant) and isinstance(text.value, str):
                        modules_of[text.value].add(str(path.relative_to(ROOT)))
    return modules_of


def main() -> None:
    """Print the counts, and in how many modules the messages of errors are."""
    for task, (_, count) in tasks().items():
        print(f"{count:3} files: {task}")
    modules_of = messages()
    single = sum(len(modules) == 1 for modules in modules_of.values())
    print(f"messages of errors that one module holds: {single} of {len(modules_of)}")


if __name__ == "__main__":
    main()
