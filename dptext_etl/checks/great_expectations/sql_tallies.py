"""Count over a table of a database: rows come here in batches over one connection, and SQL computes nothing.

Great Expectations is not imported here. A type that the database does not keep (a date in SQLite) arrives as another
type. Ids of such a type are unknown to the ledger, so the check fails: it fails closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import polars as pl

from dptext_etl.checks.great_expectations.tallies import Counts, Tally
from dptext_etl.checks.staged_rows import BATCH_ROWS

if TYPE_CHECKING:
    from sqlalchemy import Connection


def batches(connection: Connection, table: Any) -> Iterator[pl.DataFrame]:
    """Read a table, or anything that can be selected from, in batches; an empty table gives one batch without rows."""
    import sqlalchemy

    found = connection.execution_options(stream_results=True).execute(
        sqlalchemy.select(sqlalchemy.text("*")).select_from(table)
    )
    names = list(found.keys())
    yield pl.DataFrame(schema=names)
    for rows in found.partitions(BATCH_ROWS):
        cells = zip(*rows, strict=True)
        yield pl.DataFrame([_column(name, list(column)) for name, column in zip(names, cells, strict=True)])


def schema(connection: Connection, table: Any) -> pl.Schema:
    """Return the columns and the types of their cells; a column that holds only nulls counts as text."""
    found = pl.Schema()
    for place, batch in enumerate(batches(connection, table)):
        found = pl.Schema({name: pl.String() if dtype == pl.Null else dtype for name, dtype in batch.schema.items()})
        if place:
            break
    return found


def count(make: Callable[[], Tally], connection: Connection, table: Any) -> Counts:
    """Count over a table of a database."""
    tally = make()
    for batch in batches(connection, table):
        tally.feed(batch)
    return tally.counts()


def _column(name: str, cells: list[Any]) -> pl.Series:
    found = pl.Series(name, cells, strict=True)
    return found.cast(pl.String) if found.dtype == pl.Null else found
