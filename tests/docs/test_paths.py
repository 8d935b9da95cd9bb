"""Every file and folder of ours that a page, a docstring or a comment names is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`((?:dptext_etl|kernel|tests|docs|studies|udfs|dagster_project|models|eval)/[\w./*-]*)`")
MADE = {"docs/x.md"}
"""Names of files that a text reveals its reader to write."""


def named(path: Path) -> set[str]:
    """The paths that a file names, without those that may not be there yet."""
    return {found.rstrip("/") for found in NAMED.findall(path.read_text(encoding="utf-8"))} - MADE


def test_every_path_that_is_named_is_there():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    files = listed or [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if ".venv" not in path.parts]
    pages = [name for name in files if name.endswith((".md", ".py", ".rs")) and name != "CHANGELOG.md"]
    seen = {(name, path) for name in pages if (ROOT / name).is_file() for path in named(ROOT / name)}
    assert len(seen) > 100
    assert sorted(item for item in seen if not any(True for _ in ROOT.glob(item[1]))) == []
