"""Print data types by kind, and remove text that a user wrote: names, categories, metadata.

Parameters of a type are data: categories of an Enum, names of the fields of a struct, name and metadata of an
extension, a time zone that no clock has. They can hold texts of rows that are never published, or of people who were
forgotten. So no message and no manifest prints them, and no published file holds them
(docs/spec/privacy.md#data-types). Numbers stay: precision, scale, time unit, width. So do the time zones of IANA.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from zoneinfo import available_timezones

import polars as pl
from polars import selectors

from dptext_etl.errors import counted

_OFFSET = re.compile(r"[+-]\d\d:\d\d")


def by_name(name: str) -> pl.Expr:
    """Return the column of this name. `pl.col` treats "*" and "^…$" as patterns of several names.

    >>> pl.DataFrame({"*": [1], "^id$": [2], "id": [3]}).select(by_name("*"), by_name("^id$")).row(0)
    (1, 2)
    """
    pattern = name == "*" or (name.startswith("^") and name.endswith("$"))
    return selectors.by_name(name).as_expr() if pattern else pl.col(name)


def kind_of(dtype: Any) -> str:  # noqa: PLR0911  (one per kind)
    """Print a type of Polars without text that a user wrote (`arrays.arrow_kind` prints one of Arrow).

    >>> kind_of(pl.List(pl.Enum(["raw"]))), kind_of(pl.Struct({"raw": pl.Int64, "text": pl.String}))
    ('List of Enum', 'Struct of 2 fields (Int64, String)')
    """
    if isinstance(dtype, pl.List):
        return f"List of {kind_of(dtype.inner)}"
    if isinstance(dtype, pl.Array):
        return f"Array({dtype.size}) of {kind_of(dtype.inner)}"
    if isinstance(dtype, pl.Map):
        return f"Map of {kind_of(dtype.key)} to {kind_of(dtype.value)}"
    if isinstance(dtype, pl.Struct):
        kinds = [kind_of(field.dtype) for field in dtype.fields]
        return f"Struct of {counted(len(kinds), 'field')} ({', '.join(kinds)})"
    if isinstance(dtype, pl.Datetime):
        return str(pl.Datetime(dtype.time_unit, _zone(dtype.time_zone)))
    if isinstance(dtype, pl.Duration | pl.Decimal):
        return str(dtype)
    if isinstance(dtype, pl.BaseExtension):
        return "Extension"
    return str(dtype.base_type().__name__)


def plain_type(dtype: Any, *, rename: bool = False) -> Any:  # noqa: PLR0911  (one per kind)
    """Return the type of what `plain` makes of a column."""
    if isinstance(dtype, pl.Enum | pl.Categorical | pl.Null):
        return pl.String()
    if isinstance(dtype, pl.BaseExtension):
        return plain_type(dtype.ext_storage(), rename=rename)
    if isinstance(dtype, pl.List):
        return pl.List(plain_type(dtype.inner, rename=rename))
    if isinstance(dtype, pl.Array):
        return pl.Array(plain_type(dtype.inner, rename=rename), dtype.size)
    if isinstance(dtype, pl.Map):
        return pl.Map(plain_type(dtype.key, rename=rename), plain_type(dtype.value, rename=rename))
    if isinstance(dtype, pl.Struct):
        names = field_names(len(dtype.fields)) if rename else [field.name for field in dtype.fields]
        inner = (plain_type(field.dtype, rename=rename) for field in dtype.fields)
        return pl.Struct(dict(zip(names, inner, strict=True)))
    if isinstance(dtype, pl.Datetime):
        return pl.Datetime(dtype.time_unit, _zone(dtype.time_zone))
    return dtype


def in_zone(dtype: Any, zone: str) -> Any:
    """Return a type whose moments, which may be inside, are in a zone; timestamps without a zone stay."""
    if isinstance(dtype, pl.List):
        return pl.List(in_zone(dtype.inner, zone))
    if isinstance(dtype, pl.Map):
        return pl.Map(in_zone(dtype.key, zone), in_zone(dtype.value, zone))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: in_zone(field.dtype, zone) for field in dtype.fields})
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
        return pl.Datetime(dtype.time_unit, zone)
    return dtype


def plain(column: pl.Expr, dtype: Any, *, rename: bool = False) -> pl.Expr:  # noqa: PLR0911  (one per kind)
    """Return a column without the metadata of its type; with `rename`, fields of structs are named by position, too.

    Categories become strings, extensions their storage, columns of type Null texts that are all null. Cells stay.
    """
    if dtype == plain_type(dtype, rename=rename):
        return column
    if isinstance(dtype, pl.BaseExtension):
        return plain(column.ext.storage(), dtype.ext_storage(), rename=rename)
    if isinstance(dtype, pl.List):
        return column.list.eval(plain(pl.element(), dtype.inner, rename=rename))
    if isinstance(dtype, pl.Array):
        return column.arr.eval(plain(pl.element(), dtype.inner, rename=rename), as_list=False)
    if isinstance(dtype, pl.Map):
        both = (plain(pl.field(name), getattr(dtype, name), rename=rename) for name in ("key", "value"))
        entries = column.map.entries().list.eval(pl.element().struct.with_fields(both))
        return entries.cast(plain_type(dtype, rename=rename))
    if isinstance(dtype, pl.Struct):
        names = field_names(len(dtype.fields)) if rename else [field.name for field in dtype.fields]
        column = column.struct.rename_fields(names) if rename else column
        types = zip(names, dtype.fields, strict=True)
        return column.struct.with_fields(plain(pl.field(name), field.dtype, rename=rename) for name, field in types)
    if isinstance(dtype, pl.Datetime):  # moments are stored in UTC, whatever the zone
        return column.cast(pl.Int64).cast(plain_type(dtype))
    return column.cast(pl.String)


def all_plain(frame: pl.LazyFrame, schema: Mapping[str, Any], *, rename: bool = False) -> pl.LazyFrame:
    """Return a frame of plain columns (`plain`); `schema` is the schema of the frame."""
    changed = {name: dtype for name, dtype in schema.items() if dtype != plain_type(dtype, rename=rename)}
    return frame.with_columns(plain(by_name(name), dtype, rename=rename) for name, dtype in changed.items())


def parts_of(dtype: Any) -> Iterator[Any]:
    """Yield a type and all types inside it."""
    yield dtype
    inner = [getattr(dtype, name) for name in ("inner", "key", "value") if hasattr(dtype, name)]
    inner += [dtype.ext_storage()] if isinstance(dtype, pl.BaseExtension) else []
    for part in (*inner, *(field.dtype for field in getattr(dtype, "fields", ()))):
        yield from parts_of(part)


def named_as(column: pl.Expr, dtype: Any) -> pl.Expr:
    """Return a column with the field names that a type has, in its order, after `rename` removed them."""
    if not isinstance(dtype, pl.Struct):
        return column
    names = [field.name for field in dtype.fields]
    column = column.struct.rename_fields(names)
    inner = [
        named_as(pl.field(field.name), field.dtype) for field in dtype.fields if isinstance(field.dtype, pl.Struct)
    ]
    return column.struct.with_fields(inner) if inner else column


def parsed(written: str) -> Any | None:
    """Read a type that Polars printed, as manifests hold simple ones; None where it is none, or printed by its kind.

    >>> parsed("Datetime(time_unit='us', time_zone='UTC')") == pl.Datetime("us", "UTC"), parsed("List of Int64")
    (True, None)
    """
    try:
        return _read(ast.parse(written, mode="eval").body)
    except (SyntaxError, ValueError, TypeError, AttributeError, LookupError, RecursionError, MemoryError):
        return None


def carries(written: str) -> bool:
    """Return whether a type of a manifest holds names or categories: no run publishes such a type.

    >>> carries("Struct({'raw': Int64})"), carries("Struct of 1 field (Int64)"), carries("List(Int64)")
    (True, False, False)
    """
    dtype = parsed(written)
    return dtype is not None and dtype != plain_type(dtype, rename=True)


def in_json(kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return the types that NDJSON files have for columns of a manifest, as far as Polars cannot infer others.

    A column may be null in all rows from which a type is inferred.

    >>> in_json({"n": "UInt8", "day": "Date", "list": "List of Int64"})
    {'n': Int64, 'day': String}
    """
    types = {name: parsed(kind) for name, kind in kinds.items()}
    return {
        name: _in_json(dtype)
        for name, dtype in types.items()
        if dtype is not None and not dtype.is_nested() and dtype != pl.UInt64
    }


def _in_json(dtype: Any) -> Any:
    if dtype == pl.Boolean:
        return dtype
    if dtype.is_integer():
        return pl.Int64()
    return pl.Float64() if dtype.is_float() else pl.String()


def readable(dtype: Any) -> bool:
    """Return whether values of a type can be read back from strings (`from_text`)."""
    return bool(dtype.is_numeric() or dtype in (pl.Boolean, pl.Date, pl.Time) or isinstance(dtype, pl.Datetime))


def from_text(column: pl.Expr, dtype: Any, *, strict: bool) -> pl.Expr:
    """Read strings as values of a readable type, as CSV and NDJSON files hold them.

    A string that is not such a value fails; with `strict=False`, it becomes null.
    """
    if dtype == pl.Boolean:
        words: dict[str, bool] = {"true": True, "false": False}
        if strict:
            return column.replace_strict(words, return_dtype=pl.Boolean)
        return column.replace_strict(words, default=None, return_dtype=pl.Boolean)
    if dtype == pl.Date:
        return column.str.to_date("%Y-%m-%d", strict=strict)
    if dtype == pl.Time:
        return column.str.to_time("%H:%M:%S%.f", strict=strict)
    if isinstance(dtype, pl.Datetime):
        form = "%Y-%m-%dT%H:%M:%S%.f" + ("" if dtype.time_zone is None else "%z")
        iso = column.str.replace(" ", "T", literal=True)
        moment = iso.str.to_datetime(form, time_unit=dtype.time_unit, strict=strict)
        return moment if dtype.time_zone is None else moment.dt.convert_time_zone(dtype.time_zone)
    return column.cast(dtype, strict=strict)


def _read(node: ast.expr) -> Any:  # noqa: PLR0911  (one per kind)
    """Make a type of Polars from its syntax tree; other syntax raises."""
    if isinstance(node, ast.Name):
        named = getattr(pl, node.id)
        return named() if issubclass(named, pl.DataType) else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise TypeError
    name, arguments = node.func.id, {str(item.arg): item.value for item in node.keywords}
    if name == "List":
        return pl.List(_read(node.args[0]))
    if name == "Array":
        return pl.Array(_read(node.args[0]), ast.literal_eval(arguments["shape"]))
    if name == "Map":
        return pl.Map(_read(node.args[0]), _read(node.args[1]))
    if name == "Struct":
        fields = node.args[0]
        if not isinstance(fields, ast.Dict):
            raise TypeError
        pairs = zip(fields.keys, fields.values, strict=True)
        return pl.Struct({ast.literal_eval(key): _read(value) for key, value in pairs if key is not None})
    if name == "Extension":
        return pl.Extension("", _read(node.args[1]), None)
    if name == "Categorical":
        return pl.Categorical()
    if name not in {"Enum", "Datetime", "Duration", "Decimal"}:
        raise TypeError
    return getattr(pl, name)(**{key: ast.literal_eval(value) for key, value in arguments.items()})


def size_of(schema: pl.Schema) -> pl.Expr:
    """Return an expression for the bytes of the strings of a row."""
    strings = [by_name(name).str.len_bytes() for name, dtype in schema.items() if dtype == pl.String]
    sizes = [size.fill_null(0).cast(pl.Int64) for size in strings]
    return pl.sum_horizontal(sizes).alias("size") if sizes else pl.lit(0, dtype=pl.Int64).alias("size")


def field_names(count: int) -> list[str]:
    """Return the names that the fields of a published struct have: their positions, from 1."""
    return [f"field_{place}" for place in range(1, count + 1)]


def _zone(zone: str | None) -> str | None:
    return zone if zone is None or zone in _zones() or _OFFSET.fullmatch(str(zone)) else "UTC"


_zones = cache(available_timezones)
