"""Release the text columns of a table of any library that speaks Arrow: pandas, pyarrow, Polars, DuckDB."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa

from dptext_etl import column
from dptext_etl.arrays import arrow_kind, is_string
from dptext_etl.data_types import by_name, plain
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.policy import ColumnPolicy, PolicyLike, columns_and_id

Given = TypeVar("Given")


@bare
def privatize_table(table: Given, policy: PolicyLike, *, id: str | None = None) -> Given:  # noqa: A002
    """Release the text columns of a table under differential privacy, and return a table of the same kind.

    It writes no ledger, so the result must not be published (`dptext_etl.run` and `dptext_etl.polars.run_frame` make
    releases that may be published).

    Args:
        table: A data frame of pandas or Polars (lazy ones stay lazy); a table, record batch or reader of pyarrow; a
            relation of DuckDB; or any object with `__arrow_c_stream__`, for which a table of pyarrow comes back.
        policy: A policy, or the path of its file; or the policy of one column, with the column's name.
        id: Column of record ids; None uses the policy's. The policy of one column names none.

    Returns:
        The table with released texts in the places of the raw ones; other columns and their order stay. Metadata of
        the table and of its text columns goes, as do the `attrs` of pandas.

    Raises:
        InputError: The table is of no such kind, a column is missing or of a wrong type, or an id is null or has
            several texts.
        PolicyError: The policy names no column or no id column, or a model fails on public texts.
    """
    columns, ids = columns_and_id(policy, id)
    kind, result = type(table).__module__.partition(".")[0], table
    source: Any = table
    if isinstance(table, pl.DataFrame | pl.LazyFrame):
        from dptext_etl.polars import privatize

        with seam("reading the table", InputError, "is the query behind it valid?"):
            types = table.lazy().collect_schema()
        texts = {str(item.column): types[str(item.column)] for item in columns if item.column in types}
        strings = table.with_columns(plain(by_name(name), dtype) for name, dtype in texts.items())
        released: Any = strings.with_columns(privatize(str(item.column), item, id=ids) for item in columns)
        return released  # type: ignore[no-any-return]
    bases = {(base.__module__.partition(".")[0], base.__name__) for base in type(table).__mro__}
    if ("pandas", "DataFrame") in bases:
        return _pandas(source, columns, ids)  # type: ignore[no-any-return]
    if isinstance(table, pa.RecordBatch):
        released = _arrow(pa.Table.from_batches([table]), columns, ids)
        cells = [
            pa.concat_arrays(cells.chunks) if cells.num_chunks else pa.array([], cells.type)
            for cells in released.columns
        ]
        result = pa.RecordBatch.from_arrays(cells, schema=released.schema)
    elif isinstance(table, pa.RecordBatchReader):
        result = _arrow(table.read_all(), columns, ids).to_reader()
    elif isinstance(table, pa.Table) or hasattr(table, "__arrow_c_stream__"):
        with seam("reading the table", InputError, "is the query behind it valid?"):
            read = pa.table(source)
        result = _arrow(read, columns, ids)
        if kind in {"duckdb", "_duckdb"}:  # a relation of the same connection, which no name of its catalog can replace
            connection = getattr(source, "_con", None)  # no public interface gives a relation's connection
            if connection is None:
                msg = "a relation of DuckDB from before version 2.0 does not show its connection"
                hint = "install a newer version, or give the rows as a table of pyarrow, relation.arrow()"
                raise InputError(msg, hint)
            with seam("handing the released rows to DuckDB", InputError, "is its connection open?"):
                result = connection.from_arrow(result)
    else:
        msg = f"a table of pandas, pyarrow, Polars or DuckDB is needed here, got {type(table).__name__}"
        raise InputError(msg, "any object with __arrow_c_stream__ will do; a Spark frame goes to dptext_etl.spark")
    return result


def _arrow(table: pa.Table, columns: Sequence[ColumnPolicy], ids: str) -> pa.Table:
    _require_columns(table.column_names, columns, ids)
    records = table.column(ids).combine_chunks()
    for item in columns:
        at = table.column_names.index(str(item.column))
        texts = table.column(at)
        dtype = texts.type if is_string(texts.type) else pa.large_string()
        released = column.privatize(_strings(texts), records, item)
        ends = itertools.accumulate(map(len, texts.chunks), initial=0)
        parts = [released.slice(start, end - start).cast(dtype) for start, end in itertools.pairwise(ends)]
        field = table.field(at).with_type(dtype).remove_metadata()  # metadata may hold texts, too
        table = table.set_column(at, field, pa.chunked_array(parts, dtype))
    return table.replace_schema_metadata(None)


def _strings(texts: pa.ChunkedArray) -> pa.Array:
    """Return texts as one array of strings: a dictionary's are written out, JSON's are unchanged, no type has none."""
    if isinstance(texts.type, pa.BaseExtensionType) and texts.type.extension_name == "arrow.json":
        texts = pa.chunked_array([chunk.storage for chunk in texts.chunks], texts.type.storage_type)
    dtype = texts.type.value_type if pa.types.is_dictionary(texts.type) else texts.type
    if not (pa.types.is_null(dtype) or is_string(dtype)):
        raise InputError(f"a text column holds strings, got {arrow_kind(dtype)}", "cast the column, or name another")
    return texts.cast(pa.large_string()).combine_chunks()


def _require_columns(names: Sequence[Any], columns: Sequence[ColumnPolicy], ids: str) -> None:
    for wanted in (ids, *(str(item.column) for item in columns)):
        count = list(names).count(wanted)
        if count != 1:
            msg = f"the table has {f'{count} columns' if count else 'no column'} {wanted!r}"
            raise InputError(msg, "correct id or [[column]] in the policy, or rename the column")


_NO_TEXTS = "category", "null[pyarrow]"
"""Types of pandas that hold no released text: such a column returns as one of objects."""


def _pandas(frame: Any, columns: Sequence[ColumnPolicy], ids: str) -> Any:
    _require_columns(frame.columns, columns, ids)
    records, texts_by_name = _of_series(frame[ids]), {}
    for item in columns:
        series = frame[item.column]
        released = column.privatize(_strings(pa.chunked_array([_of_series(series)])), records, item).to_pandas()
        released.index = series.index
        texts_by_name[str(item.column)] = released.astype(object if series.dtype.name in _NO_TEXTS else series.dtype)
    copy = frame.copy(deep=False)
    for name, texts in texts_by_name.items():  # `assign` accepts no column named "self"
        copy[name] = texts
    copy.attrs = {}  # metadata may hold texts, too
    return copy


def _of_series(series: Any) -> pa.Array:
    """Turn a series into Arrow; values that pandas treats as missing become null."""
    with seam("reading a column of pandas", InputError, "a column holds values of one type; cast it"):
        array = pa.array(series, from_pandas=True)
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return array.cast(pa.string()) if pa.types.is_null(array.type) else array
