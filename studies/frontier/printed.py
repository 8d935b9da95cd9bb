"""Compare figures that a paper prints with those measured here: orders, not levels."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import polars as pl

from frontier.tables import figure

RELEASED = ("downstream", "accuracy, learned from released texts, tested on released texts")
STATIC = ("attribute", "static attacker, macro-F1")
LEVEL = 0.02
"""Smaller differences count as none: about one standard error of a share of 600 texts."""

Figures = Mapping[tuple[str, int], float | None]


def order(printed: Figures, ours: Figures, level: float = LEVEL) -> str:
    """Say how many of the printed orders hold here: all pairs at one budget that differ in print by more than `level`.

    Args:
        printed: Printed figures by line and budget.
        ours: Our figures, likewise; None where there is none.
        level: Smaller differences count as none.
    """
    holds, even, fails = 0, 0, []
    for (name, at), (other, where) in itertools.permutations(printed, 2):
        one, two = ours[name, at], ours[other, where]
        differ = (printed[name, at] or 0.0) - (printed[other, where] or 0.0)
        if at != where or one is None or two is None or differ <= level:
            continue
        holds, even = holds + (one - two > level), even + (abs(one - two) <= level)
        fails += [f"{name} over {other} at ε = {at:,}"] if two - one > level else []
    text = f"<b>The printed order holds in {holds} of {holds + even + len(fails)} comparisons</b>"
    text += f", {even} level here (within {level:g})" if even else ""
    return text + (f"; it does not hold: {'; '.join(fails)}." if fails else ".")


def compared(printed: Figures, ours: Figures, digits: int) -> list[list[str]]:
    """Return one row per line with printed and own figures side by side, budget after budget."""
    lines = {name: [at for other, at in printed if other == name] for name, _ in printed}
    return [
        [name, *(f"{printed[name, at]:.{digits}f} / {figure(ours[name, at], digits=digits) or '–'}" for at in budgets)]
        for name, budgets in lines.items()
    ]


def rows_of(
    table: pl.DataFrame, data_set: str, mechanism: str, variant: str, epsilon: float, measure: str, what: str
) -> pl.DataFrame:
    """Return the rows of one figure of a cell: one row, or none."""
    keys = (data_set, mechanism, variant, epsilon, measure, what)
    names = ("dataset", "mechanism", "variant", "epsilon", "measure", "figure")
    return table.filter(*(pl.col(name) == value for name, value in zip(names, keys, strict=True)))


def one(table: pl.DataFrame, *asked: Any, column: str = "value") -> float | None:
    """Return one figure of a cell, or the figure next to it; None where it was not measured.

    Args:
        table: Means over keys.
        asked: As for `rows_of`.
        column: "value", "raw" or "blind".
    """
    rows = rows_of(table, *asked)
    return rows[column].item() if len(rows) == 1 else None
