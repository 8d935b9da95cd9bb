"""Write and read the tidy file: one row per figure, cell and key. Every number of the pages comes from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from frontier.cells import Cell, kept_figures
from frontier.data import ROOT

FILE = ROOT / "docs" / "frontier.parquet"
SCHEMA: dict[str, Any] = {
    "dataset": pl.String,
    "mechanism": pl.String,
    "variant": pl.String,
    "reading": pl.String,
    "epsilon": pl.Float64,
    "epsilon_per_text": pl.Float64,
    "delta": pl.Float64,
    "guarantee": pl.String,
    "discloses": pl.String,
    "key": pl.Int8,
    "n": pl.Int32,
    "kind": pl.String,
    "measure": pl.String,
    "figure": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "blind": pl.Float64,
    "raw": pl.Float64,
}
FAMILIES = ("latent_utility", "score_utility", "surrogate_utility", "encoder_utility", "form_utility")
"""Measures of the studies of latent, score, and surrogate mechanisms, by the same names."""
IN_PLACE = "words that stand where they stood"
"""A figure that every cell has once."""
BY = ("dataset", "mechanism", "variant", "epsilon")


def rows(cells: Iterable[Cell]) -> Iterator[dict[str, Any]]:
    """Yield the rows of all cells that were measured."""
    for cell in cells:
        kept = kept_figures(cell)
        if kept is None:
            continue
        claim = cell.mechanism().guarantee
        common = {
            "dataset": cell.data.name,
            "mechanism": cell.line.mechanism,
            "variant": cell.line.variant,
            "reading": cell.line.reading,
            "epsilon": cell.epsilon,
            "epsilon_per_text": kept["cost"]["epsilon"],
            "delta": kept["cost"]["delta"],
            "guarantee": claim.guarantee_class.value,
            "discloses": ", ".join(sorted(item.value for item in claim.disclosures)),
            "key": cell.key,
            "n": cell.rows,
        }
        for measure, result in kept["scores"].items():
            for score in result["figures"]:
                low, high = score["interval"] or (None, None)
                figure = {"figure": score["what"], "value": score["value"], "low": low, "high": high}
                context = {name: score[name] for name in ("blind", "raw")}
                common["n"] = result.get("n", cell.rows)
                yield {**common, "kind": result["kind"], "measure": measure, **figure, **context}


def write(cells: Iterable[Cell], earlier: Iterable[dict[str, Any]] = (), path: Path = FILE) -> pl.DataFrame:
    """Write the file, sorted, so that equal figures give equal bytes."""
    return _written([*rows(cells), *earlier], path)


def families(path: Path = FILE) -> list[dict[str, Any]]:
    """Return the rows of commands that measure one family with separate questions."""
    return read(path).filter(pl.col("measure").is_in(FAMILIES)).to_dicts()


def put(measure: str, new_rows: Iterable[dict[str, Any]], path: Path = FILE) -> pl.DataFrame:
    """Put the figures of one family in the place of its earlier ones.

    Args:
        measure: One of `FAMILIES`.
        new_rows: Rows; columns that a row does not name are null.
        path: The file.
    """
    others = read(path).filter(pl.col("measure") != measure).to_dicts()
    return _written([*others, *({**row, "measure": measure} for row in new_rows)], path)


def _written(new_rows: Iterable[dict[str, Any]], path: Path) -> pl.DataFrame:
    filled = [{**dict.fromkeys(SCHEMA), **row} for row in new_rows]
    table = pl.DataFrame(filled, schema=SCHEMA)
    table = table.sort(*BY, "key", "measure", "figure", nulls_last=True, maintain_order=True)
    table.write_parquet(path, compression="zstd", compression_level=19, statistics=False)
    return table


def read(path: Path = FILE) -> pl.DataFrame:
    """Read the file."""
    return pl.read_parquet(path)


def means(table: pl.DataFrame) -> pl.DataFrame:
    """Return every figure once per cell: its mean over the keys, half its range, and how many keys there are."""
    fixed = ("reading", "epsilon_per_text", "delta", "guarantee", "discloses", "n", "kind")
    return (
        table.group_by(*BY, "measure", "figure", maintain_order=True)
        .agg(
            *(pl.col(name).first() for name in fixed),
            pl.col("value").mean(),
            spread=(pl.col("value").max() - pl.col("value").min()) / 2,
            keys=pl.col("key").n_unique(),
            blind=pl.col("blind").mean(),
            raw=pl.col("raw").mean(),
        )
        .sort(*BY, "measure", "figure", maintain_order=True)
    )
