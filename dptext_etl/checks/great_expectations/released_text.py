"""Count the cells of text in a wider table that the ledger did not commit and no one declared public.

The table may be made from a release by joins, renames, nesting or explosion. Every cell of text is looked up by the
record id of its row. A text that any column of the policy released for that record passes, under any name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.checks.great_expectations.tallies import Counts, Tally, known, registered
from dptext_etl.checks.kept_types import changed, published_types, without_published
from dptext_etl.checks.table_metadata import CATEGORIES
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Ledger, ReleaseRef

_NESTED = (pl.List, pl.Array)
_READABLE = (pl.String, pl.Categorical, pl.Enum)
"""Types of cells that may be a released text; bytes, objects and types unknown to us never are."""


class ReleasedTextTally:
    """Count cells of text that no one released."""

    def __init__(self, policy: str, public: str, refs: Mapping[str, ReleaseRef], types: Mapping[str, str]) -> None:
        read = known(policy).policy
        self._id = read.id
        texts = {column.name for column in read.columns}
        self._public = {*json.loads(public)} - texts
        self._public |= {name + CATEGORIES for name in self._public}
        self._kept = {*read.keep} - texts - self._public
        self._policy, self._types = read, types
        self._ledger = Ledger.open(read.ledger.url, read.ledger.id_key, create=False, read_only=True)
        self._refs = refs
        self._chains = {item.column: item.chain for item in read.column_policies()}
        self._found: Counter[str] = Counter(checked=0)

    def feed(self, table: pl.DataFrame) -> None:
        """Look up the cells of a batch of rows."""
        if table.is_empty():  # columns of a database have no types before the first rows
            return
        self._found["checked"] += table.height
        table = without_published(table, self._types)
        public = self._public | (self._kept - changed(table.schema, self._policy, self._types))
        rows = pl.int_range(table.height, dtype=pl.UInt32, eager=True)
        ids = self._ids(table, rows)
        released = self._released(ids)
        for place, column in enumerate(table.iter_columns(), start=1):
            for cells in _cells(column, rows, column.name, public):
                named = cells.join(ids, on="row")
                keys = ["id"] if column.name == self._id else ["id", "digest"]  # ids are those that the ledger knows
                unreleased = cells.height - named.join(released, on=keys, how="semi").height
                if unreleased:
                    self._found[f"unreleased_in_column_{place}"] += unreleased

    def counts(self) -> Counts:
        """Return rows, and cells of text that no one released by the column's place; close the ledger."""
        self._ledger.close()
        return dict(self._found)

    def _ids(self, table: pl.DataFrame, rows: pl.Series) -> pl.DataFrame:
        """Return row and canonical record id of the rows that have an id."""
        if self._id not in table.columns:
            return pl.DataFrame(schema={"row": pl.UInt32, "id": pl.String})
        there = table[self._id].is_not_null()
        ids = canonical_ids(table[self._id].filter(there).to_arrow())
        return pl.DataFrame({"row": rows.filter(there), "id": pl.Series(ids, dtype=pl.String)})

    def _released(self, ids: pl.DataFrame) -> pl.DataFrame:
        """Return record id and digest of every text that was committed for these records, or made of one of these."""
        wanted = ids["id"].unique()
        found = pl.DataFrame(schema={"id": pl.String, "digest": pl.Binary})
        asked = wanted.to_arrow().cast(pa.large_string())
        for name, ref in self._refs.items():
            held, chain = [self._ledger.committed(ref, asked).digests], self._chains.get(name)
            if chain is not None:
                held.append(self._ledger.posted(ref, chain, asked).digests)
            for written in held:
                digests = pl.Series(written.cast(pa.large_binary()), dtype=pl.Binary)
                found.vstack(pl.DataFrame({"id": wanted, "digest": digests}).drop_nulls(), in_place=True)
        return found


def _cells(column: pl.Series, rows: pl.Series, path: str, public: set[str]) -> Iterator[pl.DataFrame]:
    """Yield row and digest of every cell of text inside a column; no digest for a cell that cannot be a release."""
    dtype = column.dtype
    if path in public or dtype.is_numeric() or dtype.is_temporal() or dtype in (pl.Boolean, pl.Null):
        return
    if isinstance(dtype, pl.BaseExtension):
        yield from _cells(column.ext.storage(), rows, path, public)
    elif isinstance(dtype, pl.Struct):
        for field in dtype.fields:
            yield from _cells(column.struct.field(field.name), rows, f"{path}.{field.name}", public)
    elif isinstance(dtype, _NESTED):
        inner = pl.DataFrame({"row": rows, "cell": column}).explode("cell")
        yield from _cells(inner["cell"], inner["row"], path, public)
    else:
        there = column.is_not_null()
        rows = rows.filter(there)
        digests = pl.Series([None] * len(rows), dtype=pl.Binary)
        if isinstance(dtype, _READABLE):
            texts = column.filter(there).cast(pl.String).to_arrow()
            digests = pl.Series(pa.array(_kernel.digests(texts)).cast(pa.large_binary()), dtype=pl.Binary)
        yield pl.DataFrame({"row": rows, "digest": digests})


def released_text(policy: str, public: str) -> Callable[[], Tally]:
    """Prepare the look-up of cells of a wider table; the releases are found here, because the artifacts are here."""
    return partial(ReleasedTextTally, policy, public, registered(policy), published_types(known(policy).policy))
