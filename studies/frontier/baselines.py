"""Guess the labels of every data set without its texts, and say which release does better than that."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from dptext_etl_eval.baselines import BETTER, BLIND, NAMES, PUBLIC, label_names, public_data
from dptext_etl_eval.statistics import macro_f1
from frontier import tidy
from frontier.data import CUTS, read
from frontier.shares import BOUND
from frontier.tables import amount, figure, named, table

MEASURE, SETS = "baselines", " (baselines)"
"""Name of the figures in the tidy file, and how names of their data sets end."""


def rows() -> Iterator[dict[str, Any]]:
    """Yield macro-F1 of both guesses on the texts that mechanisms without a language model release."""
    for name in (name for name, cut in CUTS.items() if cut.label):
        data = read(name)
        texts = data.texts[: data.cut.rows]
        assert data.label is not None
        truth = data.label[: len(texts)]
        for title, guess in ((NAMES, label_names), (PUBLIC, public_data)):
            guesses = guess(np.unique(truth), texts)
            if guesses is not None:
                common = {"dataset": name + SETS, "measure": MEASURE, "kind": "kept", "n": len(texts), "key": 0}
                yield {**common, "figure": title, "value": round(float(macro_f1(truth, guesses)), 5)}


def baselines(measured_rows: pl.DataFrame, points: pl.DataFrame) -> str:
    """Return, by data set, what guesses get, and the best release with a bound per text and nothing shown."""
    mine = measured_rows.filter(pl.col("measure") == MEASURE)
    lines = []
    for name in (name for name, cut in CUTS.items() if cut.label):
        free = dict(mine.filter(pl.col("dataset") == name + SETS).select("figure", "value").rows())
        here = points.filter(pl.col("dataset") == name, pl.col("epsilon_per_text") <= BOUND)
        sound = here.filter(pl.col("discloses") == "nullness").sort("use", descending=True).to_dicts()
        if free and sound:
            lines.append([name, *_line(free, sound)])
    head = ["data set", "texts", "raw", NAMES, PUBLIC, "best at ε ≤ 4", f"best at ε ≤ {BOUND:g}", "what to do"]
    return table(head, lines)


def verdict(free: Mapping[str, float], best: Mapping[float, float]) -> str:
    """Say from which epsilon on releases beat all guesses, or that none does.

    Args:
        free: Macro-F1 of guesses that need no private text.
        best: Macro-F1 of the best release by epsilon.
    """
    name = max(free, key=lambda title: free[title])
    above: list[float] = []
    for epsilon, use in sorted(best.items(), reverse=True):
        if use <= free[name] + BETTER:
            break
        above.append(epsilon)
    if not above:
        return f"do not publish; use {name}"
    return f"more than {name} from ε = {amount(above[-1])} on"


def _line(free: dict[str, float], sound: list[dict[str, Any]]) -> list[str]:
    """Return the cells of a data set; `sound` are its releases, the best first."""
    small = next((row for row in sound if row["epsilon_per_text"] <= 4.0), None)
    best = {row["epsilon_per_text"]: row["use"] for row in reversed(sound)}
    cells = [f"{sound[0]['n']:,}", figure(sound[0]["raw"]), *(figure(free.get(title)) for title in (NAMES, PUBLIC))]
    return [*cells, _release(small), _release(sound[0]), verdict({**free, BLIND: sound[0]["blind"]}, best)]


def _release(row: dict[str, Any] | None) -> str:
    return "" if row is None else f"{row['use']:.3f} ({named(row)} at {amount(row['epsilon_per_text'])})"


if __name__ == "__main__":
    tidy.put(MEASURE, rows())
    sys.stdout.write("written: run `python -m generators` and `frontier.page.write()` for the pages\n")
