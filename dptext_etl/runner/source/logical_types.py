"""Read the logical types of Parquet files and Iceberg tables that Polars takes for bytes or numbers: UUID, JSON, Null.

Ids that are UUIDs are then strings in lower case, as in every other library (docs/spec/stream.md#record-id).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_etl import object_stores
from dptext_etl.errors import InputError, by_place, counted, seam
from dptext_etl.runner.layout import is_remote
from dptext_etl.runner.source.table import READ_HINT, TABLE_HINT, Files

_NAMES = frozenset({"arrow.uuid", "arrow.json", "null"})
_STORES = ("s3://", "gs://", "az://", "abfs")
_UUID_PARTS = ((0, 8), (8, 4), (12, 4), (16, 4), (20, 12))


def logical_types(files: Files, wanted: Collection[str] = ()) -> dict[str, pa.DataType]:
    """Return the Arrow types of the columns that hold UUIDs, JSON, or nothing; refuse types that no engine reads.

    With `wanted`, only these columns count, and the files are compared (`Files.refuse_drift`) once it is known that
    Polars can open them.
    """
    if files.format == "iceberg":
        with seam("opening the source", InputError, TABLE_HINT):
            from pyiceberg.table import StaticTable

            table = StaticTable.from_metadata(files.paths[0], properties=dict(files.storage))
            found = [table.scan(snapshot_id=int(files.version or 0)).projection().as_arrow()]
    elif files.format == "parquet":
        with seam("opening the source (parquet)", InputError, READ_HINT):
            found = [_arrow_schema(file) for path in files.paths if (file := _opened(path, files)) is not None]
    else:
        found = []
    if wanted:
        files.refuse_drift(wanted)
        found = [pa.schema([field for field in schema if field.name in wanted]) for schema in found]
    types = [{field.name: field.type for field in schema if is_logical(field.type)} for schema in found]
    for other in types[1:]:
        if other != types[0]:
            names = {name for name in {*types[0], *other} if types[0].get(name) != other.get(name)}
            columns = ", ".join(map(repr, sorted(names))) if wanted else by_place(names, found[0].names)
            msg = f"{columns}: some of the source's files hold UUIDs, JSON, or nulls there, and others other types"
            raise InputError(msg, "write the files alike: a run reads one table")
    return types[0] if types else {}


def is_logical(dtype: pa.DataType, names: frozenset[str] = _NAMES) -> bool:
    """Return whether a type is one of some logical types, or holds one."""
    if pa.types.is_struct(dtype):
        return any(is_logical(field.type, names) for field in dtype)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return is_logical(dtype.value_type, names)
    return (dtype.extension_name if isinstance(dtype, pa.BaseExtensionType) else str(dtype)) in names


def restored(frame: pl.LazyFrame, types: Mapping[str, pa.DataType], schema: Mapping[str, Any]) -> pl.LazyFrame:
    """Return a frame whose columns of these types hold strings, or nothing; `schema` is that of the frame."""
    found = {name: dtype for name, dtype in types.items() if name in schema}
    return frame.with_columns(
        pl.lit(None).alias(name) if pa.types.is_null(dtype) else _restored(pl.col(name), dtype, schema[name])
        for name, dtype in found.items()
    )


def _restored(column: pl.Expr, dtype: pa.DataType, read: Any) -> pl.Expr:
    if not is_logical(dtype) or isinstance(read, pl.BaseExtension):
        return column
    if isinstance(read, pl.Struct):
        fields = zip(dtype, read.fields, strict=True)
        return column.struct.with_fields(
            _restored(pl.field(mine.name), mine.type, theirs.dtype) for mine, theirs in fields if is_logical(mine.type)
        )
    if isinstance(read, pl.List):
        return column.list.eval(_restored(pl.element(), dtype.value_type, read.inner))
    if read == pl.Binary and dtype == pa.uuid():
        letters = column.bin.encode("hex")
        return pl.concat_str([letters.str.slice(start, size) for start, size in _UUID_PARTS], separator="-")
    return column.cast(pl.String)


def _arrow_schema(file: pq.ParquetFile) -> pa.Schema:
    with file:
        columns = [file.metadata.schema.column(place) for place in range(file.metadata.num_columns)]
        intervals = sum(column.converted_type == "INTERVAL" for column in columns)
        if intervals:
            msg = f"{counted(intervals, 'column')} of the source of type INTERVAL cannot be read; nothing was spent"
            raise InputError(msg, "leave the column out of the file, or cast it to a number of seconds")
        return file.schema_arrow


def _opened(path: str, files: Files) -> pq.ParquetFile | None:
    """Open a local file, or the footer of the first object that a URL names, if the extra for objects is installed."""
    if not is_remote(path):
        return _readable(path)
    if not path.startswith(_STORES) or find_spec("obstore") is None:
        return None
    url = object_stores.matching(path, files.storage)[0]
    return _readable(pa.BufferReader(object_stores.footer_of(url, files.storage)))


def _readable(source: Any) -> pq.ParquetFile | None:
    """Open a file unless it holds integers of 128 bits, which Polars alone writes, and then no UUIDs or JSON."""
    try:
        return pq.ParquetFile(source)
    except pa.ArrowNotImplementedError:
        return None
