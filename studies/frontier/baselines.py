"""Guess the labels of every data set without its texts, next to the best releases."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from dptext_etl_eval.baselines import NAMES, PUBLIC, label_names, public_data
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
    head = ["data set", "texts", "raw", NAMES, PUBLIC, "best at ε ≤ 4", f"best at ε ≤ {BOUND:g}"]
    return table(head, lines)


def _line(free: dict[str, float], sound: list[dict[str, Any]]) -> list[str]:
    """Return the cells of a data set; `sound` are its releases, the best first."""
    small = next((row for row in sound if row["epsilon_per_text"] <= 4.0), None)
    cells = [f"{sound[0]['n']:,}", figure(sound[0]["raw"]), *(figure(free.get(title)) for title in (NAMES, PUBLIC))]
    return [*cells, _release(small), _release(sound[0])]


def _release(row: dict[str, Any] | None) -> str:
    return "" if row is None else f"{row['use']:.3f} ({named(row)} at {amount(row['epsilon_per_text'])})"


if __name__ == "__main__":
    tidy.put(MEASURE, rows())
    sys.stdout.write("written: run `python -m generators` for the pages\n")
