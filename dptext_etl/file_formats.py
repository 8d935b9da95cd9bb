"""Read, check, and write files of rows: a format is one class, and its entry in `FORMATS`.

What depends on a format asks its object, so a format is added here and nowhere else.
"""

from __future__ import annotations

import io
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import IO, Any, ClassVar, Literal

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_etl import object_stores
from dptext_etl.data_types import size_of
from dptext_etl.errors import InputError, counted
from dptext_etl.files import literal

INFERRED_ROWS = 10_000
"""The rows from which the column types of a CSV file are inferred."""
GROUP_BYTES = 4 << 20
"""Bytes of strings in a row group of a published file, about: readers decode groups side by side."""
READERS = "polars", "pandas", "duckdb", "spark", "arrow"
_STORES = ("s3://", "gs://", "az://", "abfs")
TABLES = {"delta": ("Delta Lake", "deltalake"), "iceberg": ("Iceberg", "pyiceberg")}
"""Titles of the formats of tables with a log (`table_formats`), and the libraries that they need."""

Source = str | IO[bytes]
"""A path, the URL of an object, or the bytes of a file."""
Types = Mapping[str, pl.DataType]
Dialect = Any
"""How CSV files are written: separator, quote, and encoding (`policy.terms.CsvSpec`)."""


@dataclass(frozen=True)
class Reading:
    """Say how files are to be read."""

    dialect: Dialect = None  # of CSV files; None: in UTF-8, with commas
    all_text: bool = False  # whether columns of files without types are read as text
    schema: Types | None = None  # types of columns of files without types, or of all columns of JSON
    in_json: Types | None = None  # types of some columns of files with the types of JSON
    infer: int | None = INFERRED_ROWS  # the rows from which types of CSV files are inferred; None for all


PLAIN = Reading()


class FileFormat(ABC):
    """A format of files of rows.

    `unfit` has the types that its files, or the gates that read them, cannot hold; `spark` has name, options, and types
    of the reader of Spark, or None if Spark has none.
    """

    name: ClassVar[str]  # in manifests, and the ending of published files
    title: ClassVar[str]  # its name in messages
    suffixes: ClassVar[tuple[str, ...]]  # the endings of its files
    unfit: ClassVar[tuple[Any, ...]] = (pl.Int128, pl.UInt128, pl.Object, pl.Unknown)
    holds: ClassVar[Literal["all", "json", "none"]] = "all"  # the types of which columns its files hold
    dialect: ClassVar[bool] = False  # whether [csv] says how they are written, and a first line names the columns
    checked: ClassVar[bool] = False  # whether the files of others are checked before they are read
    spark: ClassVar[tuple[str, Mapping[str, str], Mapping[type[pl.DataType], pl.DataType]] | None] = None
    readers: ClassVar[tuple[str, str, str, str, str]]  # the code with which the `READERS` read the files of an export

    @abstractmethod
    def scan(self, sources: Sequence[Source], how: Reading = PLAIN, **options: Any) -> pl.LazyFrame:
        """Scan files by their literal paths; `options` go to Polars."""

    @abstractmethod
    def writer(self, frame: pl.LazyFrame, compression: str) -> Callable[[IO[bytes]], object]:
        """Return the function that writes rows into an open file; equal rows give equal bytes."""

    def for_suffix(self, paths: Iterable[str], dialect: Dialect) -> Dialect:  # noqa: ARG002
        """Return the dialect of files, which may follow from their endings."""
        return dialect

    def check(self, paths: Sequence[str], dialect: Dialect, storage: Mapping[str, Any]) -> Any:  # noqa: B027
        """Check files that others wrote, before they are read; return facts for `require_columns`."""

    def require_columns(self, names: Sequence[str], wanted: Sequence[str], facts: Any) -> None:  # noqa: B027
        """Refuse names and columns that engines read differently."""

    def columns(self, path: str, dialect: Dialect) -> pl.Schema | None:  # noqa: ARG002
        """Return the columns of a local file, to compare files before they are read; None: the reader compares."""
        return None

    def arrow_schema(self, path: str, storage: Mapping[str, Any]) -> pa.Schema | None:  # noqa: ARG002
        """Return the types that the file itself names, its metadata included; None if it has none that matter."""
        return None


class Parquet(FileFormat):
    name, title, suffixes = "parquet", "Parquet", (".parquet",)
    spark = "parquet", {}, {}
    readers = (
        'pl.read_parquet("data/*.parquet")',
        'pd.read_parquet("data")',
        "read_parquet('data/*.parquet')",
        'spark.read.parquet("data")',
        'arrow::open_dataset("data")',
    )

    def scan(self, sources: Sequence[Source], how: Reading = PLAIN, **options: Any) -> pl.LazyFrame:
        del how  # its files hold all types
        return pl.scan_parquet(_literal(sources), hive_partitioning=False, **options)

    def writer(self, frame: pl.LazyFrame, compression: str) -> Callable[[IO[bytes]], object]:
        facts = frame.select(size_of(frame.collect_schema()).sum(), rows=pl.len()).collect()
        groups = round(facts["size"].item() / GROUP_BYTES)  # they follow only from the rows
        rows = -(-facts["rows"].item() // groups) if groups > 1 else None
        name, _, level = compression.replace("none", "uncompressed").partition("-")
        options: dict[str, Any] = {"compression": name, "compression_level": int(level) if level else None}
        return partial(frame.sink_parquet, row_group_size=rows, **options)

    def columns(self, path: str, dialect: Dialect) -> pl.Schema:  # noqa: ARG002
        return pl.Schema(pl.read_parquet_schema(literal(Path(path))))

    def arrow_schema(self, path: str, storage: Mapping[str, Any]) -> pa.Schema | None:
        """Return the schema of a local file, or of the first object that a URL names if its footer can be read."""
        source: Any = path
        if "://" in path:
            if not path.startswith(_STORES) or find_spec("obstore") is None:
                return None
            source = pa.BufferReader(object_stores.footer_of(object_stores.matching(path, storage)[0], storage))
        try:
            file = pq.ParquetFile(source)
        except pa.ArrowNotImplementedError:  # integers of 128 bits, which only Polars writes, and then no UUIDs or JSON
            return None
        with file:
            columns = [file.metadata.schema.column(place) for place in range(file.metadata.num_columns)]
            intervals = sum(column.converted_type == "INTERVAL" for column in columns)
            if intervals:
                msg = f"{counted(intervals, 'column')} of the source of type INTERVAL cannot be read; no budget used"
                raise InputError(msg, "leave the column out of the file, or cast it to a number of seconds")
            return file.schema_arrow


_IN_SPARK: Mapping[type[pl.DataType], pl.DataType] = {
    pl.UInt8: pl.Int16(),
    pl.UInt16: pl.Int32(),
    pl.UInt32: pl.Int64(),
    pl.UInt64: pl.Decimal(20, 0),
    pl.Int128: pl.Decimal(38, 0),
    pl.Time: pl.String(),
}
"""Types of Spark for those that it lacks, or that its reader of CSV files does."""


class Csv(FileFormat):
    name, title, suffixes = "csv", "CSV", (".csv", ".tsv")
    unfit = (*FileFormat.unfit, pl.Binary, pl.Duration, pl.List, pl.Array, pl.Struct, pl.Map)
    holds, dialect, checked = "none", True, True
    spark = (
        "csv",
        {
            "header": "true",
            "multiLine": "true",
            "enforceSchema": "false",
            "positiveInf": "inf",  # as Polars writes them
            "negativeInf": "-inf",
            "escape": '"',
            "nullValue": secrets.token_hex(16),  # "" is an empty text; by default Spark makes it null
        },
        _IN_SPARK,
    )
    readers = (
        'pl.read_csv("data/*.csv")',
        'pd.concat(map(pd.read_csv, sorted(glob.glob("data/*.csv"))))',
        "read_csv('data/*.csv')",
        'spark.read.csv("data", header=True, multiLine=True, escape=\'"\')',
        'arrow::open_dataset("data", format = "csv")',
    )

    def scan(self, sources: Sequence[Source], how: Reading = PLAIN, **options: Any) -> pl.LazyFrame:
        if (dialect := how.dialect) is not None:
            options |= {"separator": dialect.separator, "quote_char": dialect.quote or None}
            if dialect.encoding != "utf-8":
                if options.get("include_file_paths") or any("://" in str(source) for source in sources):
                    msg = "are read from a local folder, without columns in folder names"
                    msg = f"csv.encoding: files in {dialect.encoding} {msg}"
                    raise InputError(msg, "convert them to UTF-8 first", {"entry": "csv.encoding"})
                sources = [_in_utf8(Path(str(source)), dialect.encoding) for source in sources]
        untyped = how.all_text or how.schema is not None
        options |= {"infer_schema": not untyped, "infer_schema_length": how.infer, "schema_overrides": how.schema}
        return pl.scan_csv(list[Any](sources), glob=False, **options)  # the files that were checked, and no others

    def writer(self, frame: pl.LazyFrame, compression: str) -> Callable[[IO[bytes]], object]:  # noqa: ARG002
        return frame.sink_csv

    def for_suffix(self, paths: Iterable[str], dialect: Any) -> Any:
        plain = (dialect.separator, dialect.quote, dialect.encoding) == (",", '"', "utf-8")
        tabs = plain and all(path.lower().endswith(".tsv") for path in paths)
        return dialect.model_copy(update={"separator": "\t"}) if tabs else dialect

    def check(self, paths: Sequence[str], dialect: Dialect, storage: Mapping[str, Any]) -> None:
        """Check all rows against their headers, and the headers against each other."""
        from dptext_etl.text_files import require_local_rows, require_rows  # other formats start without it

        spelling = dialect.separator, dialect.quote, dialect.encoding
        first: tuple[str, ...] = ()
        for path in paths:
            if "://" in path:
                names = require_rows(object_stores.chunks(path, storage), path, *spelling)
            else:
                names = require_local_rows(path, *spelling)
            first = first or names
            if names != first:
                msg = f"the file {path} has other columns than the first file {paths[0]}, or has them in another order"
                raise InputError(msg, "write the files alike, or name those that are: a run reads one table")

    def columns(self, path: str, dialect: Dialect) -> pl.Schema:
        return self.scan([path], Reading(dialect, all_text=True)).collect_schema()


class Ndjson(FileFormat):
    name, title, suffixes = "ndjson", "NDJSON", (".ndjson", ".jsonl")
    unfit = (*FileFormat.unfit, pl.Binary, pl.Map)
    holds, checked = "json", True
    spark = "json", {}, {**_IN_SPARK, pl.Decimal: pl.String()}
    readers = (
        'pl.read_ndjson("data/*.ndjson")',
        'pd.concat(pd.read_json(name, lines=True) for name in sorted(glob.glob("data/*.ndjson")))',
        "read_ndjson('data/*.ndjson')",
        'spark.read.json("data")',
        'arrow::open_dataset("data", format = "json")',
    )

    def scan(self, sources: Sequence[Source], how: Reading = PLAIN, **options: Any) -> pl.LazyFrame:
        sources = _literal(_without_marks(sources, named=options.get("include_file_paths") is not None))
        schema = how.schema
        if schema is None and how.in_json is None and len(sources) > 1:  # Polars infers types from the first file
            store = options.get("storage_options")
            scans = (pl.scan_ndjson(source, infer_schema_length=None, storage_options=store) for source in sources)
            schema = pl.concat([rows.collect_schema().to_frame() for rows in scans], how="diagonal_relaxed").schema
        # a value of another type may be in any row, and a column that is null in all others may be filled there
        options |= {"schema": schema, "schema_overrides": how.in_json, "infer_schema_length": None}
        return pl.scan_ndjson(sources, **options)

    def writer(self, frame: pl.LazyFrame, compression: str) -> Callable[[IO[bytes]], object]:  # noqa: ARG002
        return frame.sink_ndjson

    def check(self, paths: Sequence[str], dialect: Dialect, storage: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """Check all lines, and return the kinds of their values by file."""
        from dptext_etl.text_files import require_lines, require_local_lines  # other formats start without it

        chunks = partial(object_stores.chunks, options=storage)
        return [
            require_lines(chunks(path), path, marked=False) if "://" in path else require_local_lines(path)
            for path in paths
        ]

    def require_columns(self, names: Sequence[str], wanted: Sequence[str], facts: Any) -> None:
        from dptext_etl.text_files import refuse_mixed, require_names

        require_names(names, "the source")  # Spark ignores the case of names
        refuse_mixed(facts or (), wanted)


PARQUET = Parquet()
FORMATS: dict[str, FileFormat] = {kind.name: kind for kind in (PARQUET, Csv(), Ndjson())}


def format_of(path: str) -> FileFormat | None:
    """Return the format of a file by its ending."""
    suffix = PurePosixPath(path).suffix.lower()
    return next((kind for kind in FORMATS.values() if suffix in kind.suffixes), None)


def suffixes() -> tuple[str, ...]:
    """Return the endings of all formats."""
    return tuple(suffix for kind in FORMATS.values() for suffix in kind.suffixes)


def _literal(sources: Iterable[Source]) -> list[Any]:
    """Escape local paths for the readers of Polars, which read some characters as a pattern."""
    local = (isinstance(source, str) and "://" not in source for source in sources)
    return [literal(Path(str(source))) if is_path else source for source, is_path in zip(sources, local, strict=True)]


def _without_marks(sources: Sequence[Source], *, named: bool) -> Sequence[Source]:
    """Read files into memory, if one begins with the byte-order mark, which Polars does not read as JSON."""
    from dptext_etl.text_files import without_mark

    local = [source for source in sources if isinstance(source, str) and "://" not in source]
    contents = {path: without_mark(path) for path in local}
    marked = [path for path, content in contents.items() if content is not None]
    if marked and named:
        msg = f"the file {marked[0]} begins with a byte-order mark, and folder names hold columns of the policy"
        raise InputError(msg, "remove the mark: the first three bytes of the file")
    if not marked:
        return sources
    return [io.BytesIO(Path(path).read_bytes() if content is None else content) for path, content in contents.items()]


def _in_utf8(path: Path, encoding: str) -> IO[bytes]:
    try:
        return io.BytesIO(path.read_bytes().decode(encoding).encode())
    except UnicodeError:
        problem = f"csv.encoding: the file {path} is not in {encoding}"
    raise InputError(
        problem, "correct csv.encoding in the policy; `dptext init FILE` shows one that fits", {"entry": "csv.encoding"}
    )
