"""Find the long strings of columns that are published unchanged, and decide if too many are raw texts of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from dptext_etl.data_types import parts_of
from dptext_etl.policy import Policy

LEAST_CHARACTERS = 20
"""Shorter strings are not compared: texts and values of kept columns share words."""
LEAST_ROWS, LEAST_SHARE = 2, 0.01
"""A column fails if this many rows, and this share of the rows with long strings, hold their text."""
ROW, CELL = "__dptext_row", "__dptext_cell"


def compared_columns(policy: Policy, schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns with strings or bytes that are published unchanged, except those that the policy accepts."""
    names = [policy.id] if policy.ids == "keep" and not policy.one_table else []
    names += [item.column for item in policy.kept if not item.rule]
    return tuple(
        name
        for name in names
        if name not in policy.keep_copies
        and name in schema
        and any(part in (pl.String, pl.Binary) for part in parts_of(schema[name]))
    )


def long_strings(column: pl.Series) -> list[pl.DataFrame]:
    """Return the long strings of a column with the numbers of their rows, from lists and structs, too."""
    return _strings(column.alias(CELL).to_frame().with_row_index(ROW))


def _strings(cells: pl.DataFrame) -> list[pl.DataFrame]:
    dtype = cells.schema[CELL]
    if dtype == pl.Binary:  # bytes that are not UTF-8 hold no text; `cast` would fail by them
        return _strings(cells.with_columns(pl.Series(CELL, [_decoded(cell) for cell in cells[CELL]], pl.String)))
    if dtype == pl.String:
        return [cells.filter(pl.col(CELL).str.len_chars() >= LEAST_CHARACTERS)]
    if isinstance(dtype, pl.Map):
        return _strings(cells.with_columns(pl.col(CELL).map.entries()))
    if isinstance(dtype, pl.List | pl.Array):
        return _strings(cells.explode(CELL))
    if isinstance(dtype, pl.Struct):
        fields = (pl.col(CELL).struct.field(field.name).alias(CELL) for field in dtype.fields)
        return [inner for field in fields for inner in _strings(cells.select(ROW, field))]
    return []


def _decoded(cell: bytes | None) -> str | None:
    try:
        return None if cell is None else cell.decode()
    except UnicodeDecodeError:
        return None


def too_many(long: int, copied: int) -> bool:
    """Return whether too many rows hold their text, of those that have a long string."""
    return copied >= LEAST_ROWS and copied >= LEAST_SHARE * long
