"""Read the settings of a paper: `paper-000.toml` to `paper-004.toml` list them as data, `sizes.toml` the sizes."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
SIZES = ("smallest", "small", "full")


@cache
def of_paper(paper: str) -> dict[str, Any]:
    """Return the settings of a paper, such as "000"."""
    return tomllib.loads((FOLDER / f"paper-{paper}.toml").read_text(encoding="utf-8"))


@cache
def of_size(size: str) -> dict[str, Any]:
    """Return the settings of a size."""
    settings: dict[str, Any] = tomllib.loads((FOLDER / "sizes.toml").read_text(encoding="utf-8"))[size]
    return settings


@cache
def sets() -> dict[str, dict[str, str]]:
    """Return the source, the license, and the form of a download of each set, by its name."""
    return tomllib.loads((FOLDER / "sets.toml").read_text(encoding="utf-8"))


@cache
def tools() -> dict[str, dict[str, Any]]:
    """Return the tools of papers (models, vectors, lists, libraries) and their replacements, by name."""
    return tomllib.loads((FOLDER / "tools.toml").read_text(encoding="utf-8"))


def tools_of(paper: str) -> list[str]:
    """Return the tools of all tables of a paper, its classifiers first."""
    training = of_paper(paper)["training"]
    parts = [training, *(part for part in training.values() if isinstance(part, dict))]
    learners = [part["classifier"] for part in parts if "classifier" in part]
    used = [name for table in of_paper(paper)["table"].values() for name in table["uses"]]
    return list(dict.fromkeys([*learners, *used]))


def sets_of(paper: str) -> list[str]:
    """Return the sets that a paper uses, those that a rewriter learns from included."""
    settings = of_paper(paper)
    used = [name for table in settings["table"].values() for name in table["sets"]]
    used += [
        name for part in ("rewriter", "paraphraser", "pruning") for name in settings.get(part, {}).get("learns", [])
    ]
    return list(dict.fromkeys(used))
