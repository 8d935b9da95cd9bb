"""Read logical types of columns, choose the types of kept columns, and coarsen kept columns.

Ids that are UUIDs are then strings in lower case, as in every other library (docs/spec/stream.md#record-id).

Parts of one table have the same types, or no reader opens it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from itertools import pairwise
from typing import Any

import polars as pl
import pyarrow as pa

from dptext_etl.accounting.shuffling import OTHER
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.data_types import by_name, from_text, kind_of, parsed, plain_type
from dptext_etl.errors import InputError, by_place, counted, seam
from dptext_etl.policy import Policy
from dptext_etl.policy.terms import CsvType, Kept
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.source.table import READ_HINT, Files, schema_of

HELD = "__dptext_held"
"""Column that says whether the id of a row is published now."""
_NAMES = frozenset({"arrow.uuid", "arrow.json", "null"})
_STORES = ("s3://", "gs://", "az://", "abfs")
_UUID_PARTS = ((0, 8), (8, 4), (12, 4), (16, 4), (20, 12))


def logical_types(files: Files, wanted: Collection[str] = ()) -> dict[str, pa.DataType]:
    """Return the Arrow types of the columns that hold UUIDs, JSON, or nothing; refuse types that no engine reads.

    With `wanted`, only these columns count, and the files are compared (`Files.refuse_drift`) once it is known that
    Polars can open them.
    """
    schemas = [files.version.arrow_schema()] if files.version is not None and files.format == "iceberg" else []
    for path in files.paths if files.version is None else ():
        with seam(f"opening the file {path}", InputError, READ_HINT):
            if (schema := files.kind.arrow_schema(path, files.storage)) is not None:
                schemas.append(schema)
    if wanted:
        files.refuse_drift(wanted)
        schemas = [pa.schema([field for field in schema if field.name in wanted]) for schema in schemas]
    types = [{field.name: field.type for field in schema if is_logical(field.type)} for schema in schemas]
    for other in types[1:]:
        if other != types[0]:
            names = {name for name in {*types[0], *other} if types[0].get(name) != other.get(name)}
            columns = ", ".join(map(repr, sorted(names))) if wanted else by_place(names, schemas[0].names)
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


def restored(frame: pl.LazyFrame, types: Mapping[str, pa.DataType]) -> pl.LazyFrame:
    """Return a frame whose columns of these types hold strings, or nothing; `types` are `logical_types`."""
    if not types:
        return frame
    schema = schema_of(frame)
    chosen = {name: dtype for name, dtype in types.items() if name in schema}
    return frame.with_columns(
        pl.lit(None).alias(name) if pa.types.is_null(dtype) else _restored(by_name(name), dtype, schema[name])
        for name, dtype in chosen.items()
    )


def _restored(column: pl.Expr, dtype: pa.DataType, read: Any) -> pl.Expr:
    if not is_logical(dtype) or isinstance(read, pl.BaseExtension):
        return column
    if isinstance(read, pl.Struct):
        fields = zip(dtype, read.fields, strict=True)
        return column.struct.with_fields(
            _restored(pl.field(field.name), field.type, stored.dtype)
            for field, stored in fields
            if is_logical(field.type)
        )
    if isinstance(read, pl.List):
        return column.list.eval(_restored(pl.element(), dtype.value_type, read.inner))
    if read == pl.Binary and dtype == pa.uuid():
        letters = column.bin.encode("hex")
        return pl.concat_str([letters.str.slice(start, size) for start, size in _UUID_PARTS], separator="-")
    return column.cast(pl.String)


_TYPES: Mapping[CsvType, pl.DataType] = {
    "String": pl.String(),
    "Int64": pl.Int64(),
    "Float64": pl.Float64(),
    "Boolean": pl.Boolean(),
    "Date": pl.Date(),
    "Datetime": pl.Datetime("us"),
}
_PINNED = {str(dtype): name for name, dtype in _TYPES.items()}
_INFERRED: tuple[CsvType, ...] = ("Int64", "Float64", "Boolean")
"""The types that a column may get by its values, in this order."""
_COARSE = {"as", "bins", "top"}, {"top"}
_ZONE = re.compile(r"(?<=time_zone=')[^']+")
_NO_TIME = "no time"
_HINT = "cast it in the source; incremental = false publishes every row again at no cost"


def period_of(policy: Policy, schema: Mapping[str, pl.DataType]) -> tuple[str, pl.Expr] | None:
    """Return a kept column of times, and its month or year, best as it is published; None if there is none."""
    for item in sorted(policy.kept, key=lambda item: item.as_ is None):
        time = by_name(item.column)
        if item.as_ is not None:
            return item.column, time.cast(pl.String).str.head(len("2026-01")).fill_null(_NO_TIME)
        if not item.rule and isinstance(schema.get(item.column), pl.Date | pl.Datetime):
            return item.column, time.dt.strftime("%Y-%m").fill_null(_NO_TIME)
    return None


def rows_by_period(rows: pl.LazyFrame, policy: Policy) -> dict[str, int]:
    """Count rows by month or year; none without a kept column of times."""
    by = period_of(policy, schema_of(rows))
    if by is None:
        return {}
    with seam("counting rows by period", InputError, READ_HINT):
        counts = rows.group_by(by[1].alias("period")).len().collect(engine="streaming")
    return dict(counts.iter_rows())


def with_nulls_typed(rows: pl.LazyFrame, policy: Policy, layout: Layout) -> pl.LazyFrame:
    """Give kept columns of nulls, which have no type, the type under which they are published."""
    kept = [item.column for item in policy.kept if not item.rule and policy.incremental]
    schema = schema_of(rows)
    nulls = [name for name in kept if schema.get(name) == pl.Null]
    manifest = Manifest.of_release(policy, layout) if nulls else None
    types = {} if manifest is None else {name: parsed(manifest.schema.get(name, "")) for name in nulls}
    return rows.with_columns(by_name(name).cast(dtype) for name, dtype in types.items() if dtype is not None)


def require_same_types(policy: Policy, layout: Layout, manifest: Manifest, schema: pl.Schema) -> None:
    """Refuse to add parts with other types than those that are published, before anything is charged."""
    clear = {*policy.kept_columns, *([policy.id] if policy.ids == "keep" else [])}
    for place, name in enumerate(manifest.schema, start=1):
        if name not in clear:
            continue
        both = now, then = kind_of(plain_type(schema[name], rename=True)), manifest.schema[name]
        if layout.logged:  # a table with a log holds the moments of every zone in UTC
            both = _ZONE.sub("UTC", now), _ZONE.sub("UTC", then)
        if both[0] != both[1]:
            msg = f"column {place} ({name!r}) is of type {now}, and published as {then}; no budget used"
            raise InputError(msg, _HINT, {"column": name})


def csv_scan(files: Files, policy: Policy, layout: Layout) -> Callable[..., pl.LazyFrame]:
    """Return how to scan CSV files: all columns are text, except kept ones that have a type.

    A type is named by the policy, pinned by the manifest of the release, or inferred where every value writes back to
    the same spelling (docs/policy.md#sources).
    """
    rows = files.scan(all_text=True)
    columns, manifest = list(schema_of(rows)), Manifest.of_release(policy, layout)
    kept = [name for name in policy.kept_columns if name in columns and name != policy.subject]
    changed, top = ({item.column for item in policy.kept if ways & item.rule.keys()} for ways in _COARSE)
    texts: dict[str, CsvType] = dict.fromkeys(top, "String")
    types = {**texts, **policy.csv.types}
    named = {name: types[name] for name in kept if name in types}
    schema = {} if manifest is None else {name: kind for name, kind in manifest.schema.items() if name not in changed}
    pinned = {name: _PINNED[schema[name]] for name in kept if name not in named and schema.get(name) in _PINNED}
    as_before: dict[str, pl.DataType] = {}
    if manifest is not None and not manifest.exact:  # Polars chose its types, and casts values to them
        as_before = {name: _TYPES[kind] for name, kind in pinned.items()}
        pinned = {}
    free = [name for name in kept if not {name} & {*named, *pinned, *as_before}]
    chosen: dict[str, CsvType] = {name: kind for name, kind in {**named, **pinned}.items() if kind != "String"}
    candidates = {name: (kind,) for name, kind in chosen.items()} | dict.fromkeys(free, _INFERRED)
    values, fitting = _count(rows, candidates, named)
    for name, kind in chosen.items():
        if count := values[name] - fitting[name, kind]:
            where = f"column {columns.index(name) + 1} ({name!r})"
            unfit = counted(count, "value does", "values do")
            ways = (f"csv = {{ types = {{ {json.dumps(name)} = {json.dumps(way)} }} }}" for way in ("String", kind))
            as_text, as_now = ways
            msg, hint = f"csv.types reads {where} as {kind}, and {unfit} not fit", f"text fits all values: {as_text}"
            if name not in named:
                msg = f"{where} is published as {kind}, and {unfit} not keep their spelling as such"
                hint = f"{as_text} and incremental = false publish all rows as text, at no cost; "
                hint += f"{as_now} gives up spellings"
            raise InputError(f"{msg}; no budget used", hint, {"column": name, "values": count})
    for name in free:
        kinds = [kind for kind in _INFERRED if 0 < values[name] == fitting[name, kind]]
        chosen |= {name: kinds[0]} if kinds else {}

    def scan(paths_as: str | None = None) -> pl.LazyFrame:
        frame = files.scan(all_text=True, schema=as_before, paths_as=paths_as)
        return frame.with_columns(from_text(by_name(name), _TYPES[kind], strict=True) for name, kind in chosen.items())

    return scan


def keeps_spelling(files: Files, policy: Policy, layout: Layout, schema: Mapping[str, pl.DataType]) -> bool:
    """Return whether a table of CSV files has types that no policy named, and values keep their spelling under them."""
    free = {item.column for item in policy.kept if not item.rule} - policy.csv.types.keys()
    typed = [name for name in free if schema[name] != pl.String]
    if files.kind.holds != "none" or not typed:
        return False
    manifest = Manifest.of_release(policy, layout)
    before = {} if manifest is None or manifest.exact else manifest.schema
    return not before.keys() & {*typed}


def _count(
    rows: pl.LazyFrame, candidates: Mapping[str, Sequence[CsvType]], named: Container[str]
) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
    """Count the values of columns of strings, and those that fit a type: in one pass over the rows."""
    if not candidates:
        return {}, {}
    pairs = [(name, kind) for name, kinds in candidates.items() for kind in kinds]
    counts = [by_name(name).count() for name in candidates]
    for name, kind in pairs:
        value = from_text(by_name(name), _TYPES[kind], strict=False)
        # a value of a type that no policy named fits only if it writes back to the same spelling
        fits = value.is_finite() if kind == "Float64" else value.is_not_null()
        if name not in named and kind != "Datetime":  # which is written with a blank or with a T
            fits &= value.cast(pl.String) == by_name(name)
        counts.append(fits.sum())
    with seam("reading the kept columns", InputError, READ_HINT):
        named_counts = (count.alias(str(number)) for number, count in enumerate(counts))
        numbers = rows.select(named_counts).collect(engine="streaming").row(0)
    return dict(zip(candidates, numbers, strict=False)), dict(zip(pairs, numbers[len(candidates) :], strict=True))


def coarse_type(kept: Kept, dtype: pl.DataType) -> pl.DataType:
    """Return the type under which a kept column is published, or refuse a type whose values it cannot coarsen."""
    if not kept.rule:
        return dtype
    (way,) = kept.rule
    fits, wanted, kind = {
        "as": (isinstance(dtype, pl.Date | pl.Datetime), "dates or times", "Datetime"),
        "bins": (dtype.is_numeric(), "numbers", "Float64"),
        "top": (dtype == pl.String, "strings", "String"),
    }[way]
    if not fits:
        msg = f"keep: {way!r} needs {wanted}, and column {kept.column!r} holds {kind_of(dtype)}; no budget used"
        hint = f'cast it in the source; of a CSV file, csv = {{ types = {{ {json.dumps(kept.column)} = "{kind}" }} }}'
        raise InputError(msg, hint, {"column": kept.column})
    return pl.Int32() if kept.as_ == "year" else pl.String()


def coarse(kept: Kept, dtype: pl.DataType) -> pl.Expr:
    """Return the published values of a kept column, whose values have a type that `coarse_type` accepts."""
    cell = by_name(kept.column)
    if kept.as_ is not None:
        if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:  # Spark knows no zone of a value
            cell = cell.dt.convert_time_zone("UTC")
        year, month = cell.dt.year(), cell.dt.month()
        parts = year.cast(pl.String).str.zfill(4), month.cast(pl.String).str.zfill(2)
        # `strftime` panics at moments that no calendar holds, such as "infinity" of PostgreSQL; these are null
        return year if kept.as_ == "year" else pl.concat_str(*parts, separator="-")
    if kept.bins is not None:
        cell = cell.fill_nan(None) if dtype.is_float() else cell
        label: pl.Expr = pl.when(cell.is_not_null()).then(pl.lit(f"{kept.bins[-1]}+"))  # others go before the last one
        for low, high in reversed([*pairwise(kept.bins)]):
            label = pl.when(cell < high).then(pl.lit(f"{low} to <{high}")).otherwise(label)
        return pl.when(cell < kept.bins[0]).then(pl.lit(f"<{kept.bins[0]}")).otherwise(label).alias(kept.column)
    if kept.top is not None:
        others = pl.when(cell.is_not_null()).then(pl.lit(OTHER))
        return pl.when(cell.is_in(kept.top)).then(cell).otherwise(others).alias(kept.column)
    return cell
