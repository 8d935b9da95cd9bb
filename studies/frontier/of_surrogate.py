"""Write what `surrogate_utility` found: corpora and encoders, what learners gain, what word mechanisms need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from dptext_etl_eval.baselines import NAMES, PUBLIC
from frontier.tables import amount, figure, folded, table

SETS = " (surrogate)"
"""How names of its data sets end."""
F1, OTHERS, TESTED = "macro-F1 on raw test texts", "other labeled texts", "raw texts of the test"
GAIN, BESIDE = ", what learners gain", ", encoders side by side"
SHOWN = (2.0, 4.0, 8.0)
"""Budgets of the overview."""


def corpora(all_rows: pl.DataFrame) -> str:
    """Return one row per data set, and below it, folded, all lines of each."""
    mine = all_rows.filter(pl.col("measure") == "surrogate_utility")
    rows, parts = [], []
    for name in mine.filter(pl.col("dataset").str.ends_with(SETS))["dataset"].unique(maintain_order=True):
        here = mine.filter(pl.col("dataset") == name)
        lines, title = here.filter(pl.col("figure") == F1), name.removesuffix(SETS)
        base = {"raw": first(lines, "raw"), **{what: value_of(here, what) for what in (NAMES, PUBLIC, OTHERS)}}
        base["guessing"] = first(lines, "blind")
        best = dict(_means(lines).group_by("epsilon").agg(pl.col("value").max()).rows())
        rows.append(
            [
                title,
                f"{here.select(pl.max('n')).item():,}",
                *(figure(value) or "–" for value in base.values()),
                *(figure(best.get(at)) for at in SHOWN),
            ]
        )
        tested = f"{value_of(here, TESTED):,.0f} raw texts for the test."
        parts.append(folded(f"{title}: {lines['variant'].n_unique()} lines", f"<p>{tested}</p>{_lines(lines)}"))
    head = [
        "data set",
        "texts",
        "raw",
        NAMES,
        PUBLIC,
        OTHERS,
        "guessing",
        *(f"best at ε = {at:g}" for at in SHOWN),
    ]
    return table(head, rows, sorts=True) + "".join(parts)


def encoders(all_rows: pl.DataFrame) -> str:
    """Return a row per data set, corpus and encoder, models last, and what encoding costs."""
    mine = all_rows.filter(pl.col("measure") == "encoder_utility")
    rows: list[list[str]] = []
    for name in mine.filter(pl.col("figure") == F1)["dataset"].unique(maintain_order=True):
        title = name.removesuffix(BESIDE)
        here = all_rows.filter(pl.col("dataset").is_in([name, title + SETS]), pl.col("figure") != OTHERS)
        lines = here.filter(pl.col("figure") == F1).sort(pl.col("dataset") == name, maintain_order=True)
        means, context = _means(lines), [f"{title}, {here.select(pl.max('n')).item():,} texts"]
        context += [figure(first(lines, "raw")), *(figure(value_of(here, what)) for what in (NAMES, PUBLIC))]
        for line in means["variant"].unique(maintain_order=True):
            rows.append([*context, line, *_cells(means, line, SHOWN)])
            context = [""] * len(context)
    speed = mine.filter(pl.col("kind") == "cost").select("variant", "figure", "value").rows()
    sentence = "; ".join(f"{name}: {value:,.0f} {what}" for name, what, value in sorted(speed, reverse=True))
    head = ["data set", "raw", NAMES, PUBLIC, "corpus and encoder", *(f"ε = {at:g}" for at in SHOWN)]
    return table(head, rows) + f"<p>{sentence}.</p>"


def learners(all_rows: pl.DataFrame) -> str:
    """Return what features gain on released text, data set by data set."""
    rows, parts = all_rows.filter(pl.col("measure") == "surrogate_utility"), []
    for name in rows.filter(pl.col("dataset").str.ends_with(GAIN))["dataset"].unique(maintain_order=True):
        here = rows.filter(pl.col("dataset") == name)
        title = f"<p>{name.removesuffix(GAIN)}, {here.select(pl.max('n')).item():,} texts:</p>"
        parts.append(title + _lines(here, "features"))
    return "".join(parts)


def words(all_rows: pl.DataFrame) -> str:
    """Return what word mechanisms need per text for the same task."""
    here = all_rows.filter(pl.col("dataset") == "Snips, what word mechanisms need")
    budgets = here.select("epsilon", "epsilon_per_text").unique().sort("epsilon").rows()
    head = ["mechanism", *(f"{word:g} per word, {amount(round(text, 1))} per text" for word, text in budgets)]
    rows = [
        [name, *(figure(_at(here, "mechanism", name, word).get("value")) for word, _ in budgets)]
        for name in here["mechanism"].unique(maintain_order=True)
    ]
    return table(head, rows)


def _lines(lines: pl.DataFrame, title: str = "corpus and encoder") -> str:
    """Return a table with one row per line and one column per budget: means over keys, half their range."""
    means = _means(lines)
    budgets = sorted(means["epsilon"].unique())
    return table(
        [title, *(f"ε = {at:g}" for at in budgets)],
        [[name, *_cells(means, name, budgets)] for name in means["variant"].unique(maintain_order=True)],
    )


def _means(lines: pl.DataFrame) -> pl.DataFrame:
    """Return the mean over keys and half their range, by line and budget."""
    half = (pl.col("value").max() - pl.col("value").min()) / 2
    return lines.group_by("variant", "epsilon", maintain_order=True).agg(pl.col("value").mean(), spread=half)


def _cells(means: pl.DataFrame, name: str, budgets: Iterable[float]) -> list[str]:
    rows = (_at(means, "variant", name, at) for at in budgets)
    return [figure(row.get("value"), row.get("spread")) for row in rows]


def _at(all_rows: pl.DataFrame, column: str, name: str, epsilon: float) -> dict[str, Any]:
    rows = all_rows.filter(pl.col(column) == name, pl.col("epsilon") == epsilon)
    return rows.row(0, named=True) if len(rows) else {}


def value_of(here: pl.DataFrame, what: str) -> float | None:
    """Return the one value of a figure; None where it was not measured."""
    rows = here.filter(pl.col("figure") == what)
    return float(rows["value"][0]) if len(rows) else None


def first(lines: pl.DataFrame, column: str) -> float | None:
    """Return the first value of a column; None without rows."""
    return float(lines[column][0]) if len(lines) else None
