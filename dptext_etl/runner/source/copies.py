"""Find columns that a run would publish unchanged although they hold the raw texts of their rows.

The answer depends on raw texts. So it stays inside, comes before any charge, and has no counts
(docs/spec/boundary.md#inside-only).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from dptext_etl.checks.kept_strings import (
    CELL,
    LEAST_CHARACTERS,
    LEAST_ROWS,
    ROW,
    compared_columns,
    long_strings,
    too_many,
)
from dptext_etl.data_types import by_name
from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.policy import Policy
from dptext_etl.runner.source.table import READ_HINT, batches

READ_ROWS = 1 << 14
_TEXT = "text"
Counts = Mapping[str, Sequence[int]]
"""By column: rows with a long string and a long text, and how many of these hold it or are in it, whatever the case."""


def copied_columns(frame: pl.LazyFrame, policy: Policy) -> tuple[str, ...]:
    """Return the columns that hold texts of their rows. Texts are read only if another column has long strings."""
    schema = frame.collect_schema()
    names = compared_columns(policy, schema)
    plain = [name for name in names if schema[name] == pl.String]
    if plain:
        with seam("reading the source", InputError, READ_HINT):
            long = frame.select((by_name(name).str.len_chars() >= LEAST_CHARACTERS).sum() for name in plain)
            rows = long.collect(engine="streaming").row(0, named=True)
        names = tuple(name for name in names if rows.get(name, LEAST_ROWS) >= LEAST_ROWS)
    if not names:
        return ()
    read = frame.select(map(by_name, (*names, *policy.text_columns)))
    return over(count(batch, names, policy.text_columns) for batch in batches(read, READ_ROWS))


def count(frame: pl.DataFrame, names: Sequence[str], texts: Sequence[str]) -> Counts:
    """Count the rows of a frame, column by column."""
    counts = {}
    for name in names:
        long, copied = [pl.Series(dtype=pl.UInt32)], [pl.Series(dtype=pl.UInt32)]
        for cells in filter(len, long_strings(frame[name])):
            for text in texts:
                pairs = cells.with_columns(frame[text].alias(_TEXT).gather(cells[ROW]))
                pairs = pairs.filter(pl.col(_TEXT).str.len_chars() >= LEAST_CHARACTERS)
                cell, whole = (pl.col(CELL).str.to_lowercase(), pl.col(_TEXT).str.to_lowercase())
                contained = whole.str.contains(cell, literal=True) | cell.str.contains(whole, literal=True)
                long.append(pairs[ROW])
                copied.append(pairs.filter(contained)[ROW])
        counts[name] = [pl.concat(rows).n_unique() for rows in (long, copied)]
    return counts


def over(counts: Iterable[Counts]) -> tuple[str, ...]:
    """Return the columns of which too many rows hold their text; counts of different rows add up."""
    total: dict[str, list[int]] = {}
    for part in counts:
        for name, numbers in part.items():
            total[name] = [sum(pair) for pair in zip(total.get(name, (0, 0)), numbers, strict=True)]
    return tuple(name for name, (long, copied) in total.items() if too_many(long, copied))


def refuse_copies(policy: Policy, columns: Sequence[str]) -> None:
    """Refuse to publish columns that hold the texts of their rows."""
    if not columns:
        return
    names = ", ".join(map(repr, columns))
    what = f"the column {names} holds" if len(columns) == 1 else f"the columns {names} hold"
    msg = f"{what} raw texts of the rows, and would be published unchanged; no budget used"
    written = ", ".join(f'"{name}"' for name in columns)
    hint = 'write ids = "keyed"' if policy.id in columns else "leave out what holds them, or coarsen it"
    hint += f"; if readers may see these texts, write keep_copies = [{written}]"
    raise PolicyError(msg, hint, {"columns": list(columns)})
