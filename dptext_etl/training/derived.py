"""What the vectors that ship take seconds to give, whatever epsilon: kept in the package beside them.

    python -m dptext_etl.training.derived

writes the entries anew, or leaves them as they are: they follow from the vectors alone, exactly, on every machine.
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
"""What an entry can be: 1-Diffractor's list, CusText's output sets, the largest distance of two words."""


def derive(out: Path) -> list[Path]:
    """Build the entries of the mechanisms' defaults from the vectors.

    Args:
        out: An empty or missing folder.

    Returns:
        The entries, laid out like those of the artifact cache.
    """
    from dptext_etl.mechanisms.custext import CusText
    from dptext_etl.mechanisms.diffractor import Diffractor
    from dptext_etl.mechanisms.santext import SanText

    before, shipped = os.environ.get(artifacts.CACHE_VARIABLE), artifacts.DERIVED
    with tempfile.TemporaryDirectory(prefix="dptext-derived-") as cache:
        os.environ[artifacts.CACHE_VARIABLE] = cache
        artifacts.DERIVED = Path(cache) / "none"
        try:
            _ = CusText(epsilon=1.0).table, Diffractor(epsilon=1.0).neighbour_lists(), SanText(epsilon=1.0).span
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
    """Put the entries in the place of those that are there."""
    with tempfile.TemporaryDirectory(dir=artifacts.DERIVED.parent) as folder:
        made = derive(Path(folder) / "derived")
        shutil.rmtree(artifacts.DERIVED, ignore_errors=True)
        shutil.copytree(made[0].parent, artifacts.DERIVED)
    sys.stdout.write("".join(f"{entry.name}\n" for entry in made))


if __name__ == "__main__":
    main()
