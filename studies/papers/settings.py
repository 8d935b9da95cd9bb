"""Read the settings of a paper: `paper-000.toml` to `paper-004.toml` list them as data, `sizes.toml` the sizes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
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


def sets_of(paper: str) -> list[str]:
    """Return the sets that a paper uses, those that a rewriter learns from included."""
    settings = of_paper(paper)
    used = [name for table in settings["table"].values() for name in table["sets"]]
    used += [name for part in ("rewriter", "paraphraser") for name in settings.get(part, {}).get("learns", [])]
    return list(dict.fromkeys(used))


def written(paper: str, number: str) -> str:
    """Return the settings of a table as sentences of the page."""
    settings = of_paper(paper)
    table, training = settings["table"][number], settings["training"]
    stopping = f", early stopping after {training['patience']} epochs" if training["patience"] else ""
    learner = f"{training['classifier']}, {training['epochs']} epochs{stopping}, rate {training['rate']:g}"
    parts = [
        f"section {table['section']}",
        f"sets {', '.join(table['sets']) or 'none'}",
        f"mechanism {_pairs(table['mechanism'])}",
        f"ε = {', '.join(f'{value:g}' for value in table['every'])}",
        f"figures: {', '.join(table['metrics'])}",
        f"{learner}, batches of {training['batch']}, seeds {training['seeds']}",
    ]
    return f"The paper's settings (`studies/papers/paper-{paper}.toml`): {'; '.join(parts)}."


def _pairs(values: Mapping[str, Any]) -> str:
    name, *more = values.values()
    return f"{name} ({', '.join(map(str, more))})" if more else str(name)
