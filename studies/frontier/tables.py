"""Write tables as HTML. A table of figures is sorted by a click on the head of a column."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import polars as pl

from frontier.shares import axes
from frontier.tidy import BY

BESIDE = {
    "words that stay": ("words_kept", "words that stand anywhere in the release"),
    "BLEU": ("bleu", "BLEU, case ignored"),
    "nearness": ("cosine", "mean cosine"),
    "re-identified": ("nearest_neighbour", "own raw text found first"),
}
"""Columns next to use and attack: measure and figure."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, sorts: bool = False) -> str:
    """Return a table; cells are HTML, and those that begin with a digit are set as numbers."""
    cells = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    names = "".join(f"<th>{name}</th>" for name in head)
    kind = ' class="sorts"' if sorts else ""
    return f'<div class="scroll"><table{kind}><thead><tr>{names}</tr></thead><tbody>{cells}</tbody></table></div>'


def folded(title: str, content: str) -> str:
    """Return content that a click on its title opens; printing opens it too."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def named(row: dict[str, Any]) -> str:
    """Return the name of a line, with its variant."""
    return escape(row["mechanism"] + (f", {row['variant']}" if row["variant"] else ""))


def amount(epsilon: float | None) -> str:
    """Write an epsilon; three digits are enough."""
    if epsilon is None or math.isinf(epsilon):
        return "∞"
    return f"{epsilon:,.0f}" if epsilon >= 100 else f"{epsilon:.3g}"


def figure(value: float | None, spread: float | None = None, digits: int = 3) -> str:
    """Write a figure, with half the range over the keys where there are several."""
    if value is None or math.isnan(value):
        return ""
    return f"{value:.{digits}f}" + (f" ± {spread:.{digits}f}" if spread else "")


def of_data_set(points: pl.DataFrame, means: pl.DataFrame, data_set: str) -> str:
    """Return everything about one data set: use and attack with their comparisons, then other figures."""
    here = points.filter(pl.col("dataset") == data_set)
    for title, (measure, what) in BESIDE.items():
        other = means.filter(pl.col("measure") == measure, pl.col("figure") == what)
        here = here.join(
            other.select(*BY, pl.col("value").alias(title)), on=list(BY), how="left", maintain_order="left"
        )
    rows = [
        [
            named(row),
            amount(row["epsilon_per_text"]),
            f"{row['epsilon']:g} {escape(row['reading'])}",
            figure(row["use"], row["spread"]),
            figure(row["use_kept"], digits=2),
            figure(row["attack"], row["spread_attack"]),
            figure(row["attack_kept"], digits=2),
            *(figure(row[title], digits=2) for title in BESIDE),
            f"{row['n']:,} × {row['keys']}",
        ]
        for row in here.sort("epsilon_per_text", maintain_order=True).to_dicts()
    ]
    chosen, one = axes(data_set), here.row(0, named=True) if len(here) else {}
    head = ["mechanism", "ε per text", "its ε", chosen.use_says, "use kept", chosen.attack_says, "attack left"]
    context = (
        f"<p>Without looking: use {one.get('blind', 0):.3f}, attack {one.get('blind_attack', 0):.3f}. From raw "
        f"texts, by the rows of a line: {_range(here, 'raw')} and {_range(here, 'raw_attack')}.</p>"
    )
    return context + table([*head, *BESIDE, "texts × keys"], rows, sorts=True)


def _range(here: pl.DataFrame, column: str) -> str:
    low, high = here.select(low=pl.min(column), high=pl.max(column)).row(0)
    return f"{low:.3f}" if low == high else f"{low:.3f} to {high:.3f}"


def _cell(content: str) -> str:
    number = content[:1].isdigit() or content[:1] in "-∞"
    return f'<td class="n">{content}</td>' if number and content else f"<td>{content}</td>"
