"""Infer masked words of a few releases, as papers 001 (Table 2) and 004 (Figure 4) do: a model reads for every word."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

from dptext_etl_eval.attacks.masked_tokens import POSITIONS, MaskedTokens
from dptext_etl_eval.pairs import RAW, RELEASED, Pairs
from frontier import data, plan
from frontier.cells import WORK_FOLDER, Cell, kept_figures, rounded, store

ROWS = 100
"""Texts of a release, under its first key, and of these `POSITIONS` words at most; 3 to 30 CPU-seconds each."""
NAME = "masked_tokens"
LINES = {
    ("custext", ""): (1.0, 5.0, 10.0, 20.0),
    ("custext", "counter-fitted"): (1.0, 2.0, 3.0),
    ("santext", "counter-fitted"): (1.0, 2.0),
    ("diffractor", "geometric"): (0.1, 1.0),
    ("dpbart", "CLV"): (500.0, 1000.0),
    ("dpmlm", "at once"): (25.0, 50.0, 100.0),
}
"""Variants and budgets on SST-2, as paper 004 has them, and DP-MLM's."""
OTHERS = {
    ("custext", ""): (5.0,),
    ("diffractor", "geometric"): (0.1, 1.0),
    ("dpbart", "CLV"): (500.0, 1000.0),
    ("dpmlm", "at once"): (50.0,),
}
"""The same on sets of persons, as paper 001 has them."""
SETS = {"SST-2": LINES, "movie_snippets4": OTHERS, "blog_gender": OTHERS}


def cells() -> Iterator[Cell]:
    """Yield the cells whose releases are attacked."""
    for name, lines in SETS.items():
        for line in (line for line in plan.lines({}) if name in line.sets):
            for epsilon in lines.get((line.mechanism, line.variant), ()):
                yield Cell(line, epsilon, data.read(name), 0)


def attacked(cell: Cell, memory: dict[Any, Any]) -> bool:
    """Attack the kept release of a cell, once, and keep the figures next to the others; say whether that was new.

    Args:
        cell: The cell; it was measured before.
        memory: What attacks on the same raw texts share.
    """
    kept, path = kept_figures(cell), WORK_FOLDER / f"{cell.name(cell.mechanism())}.gz"
    if kept is None or not path.exists() or NAME in kept["scores"]:
        return False
    texts = json.loads(gzip.decompress(path.read_bytes()))["texts"][:ROWS]
    pairs = Pairs(cell.data.texts[:ROWS], tuple(texts), memory=dict(memory))
    scores = MaskedTokens().of(pairs)
    memory.update((key, value) for key, value in pairs.memory.items() if RAW in key and RELEASED not in key)
    figures = [rounded(score.as_dict()) for score in scores]
    kept["scores"][NAME] = {"kind": "learnt", "n": ROWS, "figures": figures}
    store(cell, kept)
    return True


def measure() -> None:
    """Run the missing attacks."""
    memories: dict[str, dict[Any, Any]] = {}
    for cell in cells():
        if attacked(cell, memories.setdefault(cell.data.name, {})):
            print(f"masked words: {cell.data.name}, {cell.line.title}, ε = {cell.epsilon:g}", flush=True)


__all__ = ["LINES", "NAME", "POSITIONS", "ROWS", "SETS", "attacked", "cells", "measure"]
