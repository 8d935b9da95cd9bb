"""Build the cache entries that ship in the package next to the word vectors, because computing them needs seconds.

    python -m studies.shipped_data.derived

writes the entries again, or leaves them as they are. They depend only on the vectors, not on epsilon, and are the same
bytes on every machine.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from dptext_etl import artifacts

FORMATS = ("dptext-neighbour-lists/1", "dptext-sets/1", "dptext-span/1")
"""Kinds of entries: neighbor lists of 1-Diffractor, output sets of CusText, largest distance of two words."""


def derive(out: Path) -> list[Path]:
    """Build the entries that mechanisms with default parameters use."""
    from dptext_etl.embeddings.vectors import SYNONYMS
    from dptext_etl.mechanisms.custext import CusText
    from dptext_etl.mechanisms.diffractor import Diffractor
    from dptext_etl.mechanisms.santext import SanText

    before, shipped = os.environ.get(artifacts.CACHE_VARIABLE), artifacts.DERIVED
    with tempfile.TemporaryDirectory(prefix="dptext-derived-") as cache:
        os.environ[artifacts.CACHE_VARIABLE] = cache
        artifacts.DERIVED = Path(cache) / "none"
        try:
            _ = CusText(epsilon=1.0, vectors=SYNONYMS).table
            _ = CusText(epsilon=1.0).table, Diffractor(epsilon=1.0).neighbor_lists(), SanText(epsilon=1.0).span
        finally:
            artifacts.DERIVED = shipped
            os.environ.pop(artifacts.CACHE_VARIABLE)
            if before is not None:
                os.environ[artifacts.CACHE_VARIABLE] = before
        for entry in Path(cache).iterdir():
            if json.loads((entry / "about.json").read_bytes())["description"]["format"] in FORMATS:
                shutil.copytree(entry, out / entry.name)
    for file in out.rglob("*.*"):
        file.chmod(0o644)
    return sorted(out.iterdir())


def main() -> None:
    """Build the entries and replace those in the package."""
    with tempfile.TemporaryDirectory(dir=artifacts.DERIVED.parent) as folder:
        made = derive(Path(folder) / "derived")
        shutil.rmtree(artifacts.DERIVED, ignore_errors=True)
        shutil.copytree(made[0].parent, artifacts.DERIVED)
    sys.stdout.write("".join(f"{entry.name}\n" for entry in made))


if __name__ == "__main__":
    main()
