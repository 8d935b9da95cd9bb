"""Find columns that a run would publish unchanged although they hold the raw texts of their rows.

The answer depends on raw texts. So it stays inside, comes before any charge, and has no counts
(docs/spec/boundary.md#inside-only).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from dptext_etl.data_types import parts_of
from dptext_etl.errors import PolicyError, seam
from dptext_etl.policy import Policy
from dptext_etl.runner.source.table import READ_HINT, batches

LEAST_CHARACTERS = 20
"""Shorter strings are not compared: texts and values of kept columns share words."""
LEAST_ROWS, LEAST_SHARE = 2, 0.01
"""A column is refused if this many rows, and this share of the rows with long strings, hold their text."""
READ_ROWS = 1 << 14
Counts = Mapping[str, Sequence[int]]
"""By column: rows that have a long string and a long text, and those of them in which one contains the other."""
_ROW, _CELL = "__dptext_row", "__dptext_cell"


def compared_columns(policy: Policy, schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns with strings or bytes that are published unchanged, except those that the policy accepts."""
    names = [policy.id] if policy.ids == "keep" and not policy.one_table else []
    names += [item.column for item in policy.kept if not item.rule]
    return tuple(
        name
        for name in names
        if name not in policy.keep_copies and any(part in (pl.String, pl.Binary) for part in parts_of(schema[name]))
    )


def copied_columns(frame: pl.LazyFrame, policy: Policy) -> tuple[str, ...]:
    """Return the columns that hold texts of their rows. Texts are read only if another column has long strings."""
    schema = frame.collect_schema()
    names = compared_columns(policy, schema)
    plain = [name for name in names if schema[name] == pl.String]
    if plain:
        with seam("reading the kept columns", PolicyError, READ_HINT):
            long = frame.select((pl.col(name).str.len_chars() >= LEAST_CHARACTERS).sum() for name in plain)
            rows = long.collect(engine="streaming").row(0, named=True)
        names = tuple(name for name in names if rows.get(name, LEAST_ROWS) >= LEAST_ROWS)
    if not names:
        return ()
    read = frame.select(*names, *policy.text_columns)
    return over(count(batch, names, policy.text_columns) for batch in batches(read, READ_ROWS))


def count(frame: pl.DataFrame, names: Sequence[str], texts: Sequence[str]) -> Counts:
    """Count the rows of a frame, column by column."""
    counts = {}
    for name in names:
        cells = [cells for cells in _strings(frame[name].alias(_CELL).to_frame().with_row_index(_ROW)) if len(cells)]
        long, copied = [pl.Series(dtype=pl.UInt32)], [pl.Series(dtype=pl.UInt32)]
        for some in cells:
            for text in texts:
                pairs = some.with_columns(frame[text].gather(some[_ROW]).alias(text))
                pairs = pairs.filter(pl.col(text).str.len_chars() >= LEAST_CHARACTERS)
                cell, whole = pl.col(_CELL), pl.col(text)
                contained = whole.str.contains(cell, literal=True) | cell.str.contains(whole, literal=True)
                long.append(pairs[_ROW])
                copied.append(pairs.filter(contained)[_ROW])
        counts[name] = [pl.concat(rows).n_unique() for rows in (long, copied)]
    return counts


def _strings(cells: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the long strings of a column with the numbers of their rows, from lists and structs, too."""
    dtype = cells.schema[_CELL]
    if dtype == pl.Binary:
        return _strings(cells.with_columns(pl.col(_CELL).cast(pl.String, strict=False)))
    if dtype == pl.String:
        return [cells.filter(pl.col(_CELL).str.len_chars() >= LEAST_CHARACTERS)]
    if isinstance(dtype, pl.Map):
        return _strings(cells.with_columns(pl.col(_CELL).map.entries()))
    if isinstance(dtype, pl.List | pl.Array):
        return _strings(cells.explode(_CELL))
    if isinstance(dtype, pl.Struct):
        fields = (pl.col(_CELL).struct.field(field.name).alias(_CELL) for field in dtype.fields)
        return [inner for field in fields for inner in _strings(cells.select(_ROW, field))]
    return []


def over(counts: Iterable[Counts]) -> tuple[str, ...]:
    """Return the columns of which too many rows hold their text; counts of different rows add up."""
    total: dict[str, list[int]] = {}
    for part in counts:
        for name, numbers in part.items():
            total[name] = [sum(pair) for pair in zip(total.get(name, (0, 0)), numbers, strict=True)]
    return tuple(
        name for name, (long, copied) in total.items() if copied >= LEAST_ROWS and copied >= LEAST_SHARE * long
    )


def refuse_copies(policy: Policy, columns: Sequence[str]) -> None:
    """Refuse to publish columns that hold the texts of their rows."""
    if not columns:
        return
    names = ", ".join(map(repr, columns))
    what = f"the column {names} holds" if len(columns) == 1 else f"the columns {names} hold"
    msg = f"{what} raw texts of the rows, and would be published unchanged; nothing was spent"
    written = ", ".join(f'"{name}"' for name in columns)
    hint = 'write ids = "keyed"' if policy.id in columns else "leave out what holds them, or coarsen it"
    hint += f"; if readers may see these texts, write keep_copies = [{written}]"
    raise PolicyError(msg, hint, {"columns": list(columns)})
