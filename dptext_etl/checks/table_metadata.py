"""Show the text of a table that is next to its cells, and hold kept columns to the types that were published.

A written Parquet file holds more than cells: the index of a pandas frame and the names of its levels, `attrs`, the name
of the index of the columns, categories that no row has, metadata of fields, parameters of types. Data frames drop most
of it when they are converted, and write it when they are saved. `shown` makes columns of it, so that every check of
cells sees it. Text never takes the place of numbers in a kept column (`changed`).
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl.checks.sink import MANIFEST, PublishedManifest
from dptext_etl.errors import DPTextError
from dptext_etl.policy import Policy
from dptext_etl.storage import Storage

CATEGORIES = " (categories without a row)"
"""What the name of a column ends with that holds the categories of another one that no row has."""
_OTHER = "(metadata)"
_PLAIN_EXTENSIONS = frozenset({"arrow.json", "arrow.uuid", "arrow.bool8", "pandas.period", "pandas.interval"})
"""Extension types without a parameter that a user writes; others are text themselves."""
_ENUM = b"_PL_ENUM_VALUES2"
"""Metadata in which Polars writes the categories of an Enum."""
_PLAIN_METADATA = {b"_PL_CATEGORICAL2": re.compile(rb"0;0;u(8|16|32);"), b"PARQUET:field_id": re.compile(rb"-?\d+")}
"""Metadata that libraries write by themselves: a Categorical without a name, the number of a field."""
_SPARK_VERSION, _SPARK_ROW = b"org.apache.spark.version", b"org.apache.spark.sql.parquet.row.metadata"
_OFFSET = re.compile(r"[+-]\d\d:\d\d")


def shown(frame: Any) -> pl.DataFrame:
    """Return a table with more columns, of lists of texts, for the texts next to its cells.

    An index of pandas becomes columns, unless it is unnamed and holds whole numbers that name each row once.
    """
    other: list[str] = []
    if isinstance(frame, pl.DataFrame):
        table, arrow = frame, frame.to_arrow()
    else:
        arrow = frame if isinstance(frame, pa.Table) else _of_pandas(frame, other)
        table = pl.DataFrame(arrow)
        other += _of_file(arrow.schema.metadata or {})
    more: dict[str, list[str]] = {}
    for field, column in zip(arrow.schema, arrow.columns, strict=True):
        unused: list[str] = []
        _look(field, column.combine_chunks() if column.num_chunks else pa.array([], column.type), unused, other)
        if unused:
            more[field.name + CATEGORIES] = unused
    if other:
        more[_OTHER] = other
    for name, texts in more.items():
        made = pl.Series(name, [texts, *[None] * (table.height - 1)][: table.height], dtype=pl.List(pl.String))
        while made.name in table.columns and not table[made.name].equals(made):  # a frame may come here twice
            made = made.alias(f"{made.name}'")
        table = table.with_columns(made)
    return table


def _of_pandas(frame: Any, other: list[str]) -> pa.Table:
    """Convert a pandas frame as its `to_parquet` does, its index as columns."""
    other += [_said(key, value) for key, value in frame.attrs.items()]
    other += [str(name) for name in frame.columns.names if name is not None]
    index = frame.index
    other += [str(index.name)] if isinstance(getattr(index, "start", None), int) and index.name is not None else []
    if index.names != [None] or index.dtype.kind not in "iu" or not index.is_unique:
        frame = frame.reset_index()
    return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)


def _of_file(metadata: dict[bytes, bytes]) -> Iterable[str]:
    """Yield what a user wrote into the metadata of a file; versions and types that libraries write are left out."""
    for key, value in metadata.items():
        if key == b"pandas":
            about = json.loads(value)
            yield from [_said(*item) for item in about.get("attributes", {}).items()]
            ranges = [level for level in about.get("index_columns", []) if isinstance(level, dict)]
            levels = [*ranges, *about.get("column_indexes", [])]
            yield from [str(level["name"]) for level in levels if level["name"] is not None]
        elif key != _SPARK_VERSION and (key != _SPARK_ROW or b'"metadata":{' in value.replace(b'"metadata":{}', b"")):
            yield _said(key, value)


def _look(field: pa.Field, array: Any, unused: list[str], other: list[str]) -> None:
    """Collect categories that no row has, and metadata and parameters of types, of a field and those inside it."""
    kind = array.type
    for key, value in (field.metadata or {}).items():
        if key == _ENUM and pa.types.is_dictionary(kind):
            unused += Counter(_enum_values(value)) - Counter(array.dictionary.to_pylist())
        elif not (key in _PLAIN_METADATA and _PLAIN_METADATA[key].fullmatch(value)):
            other.append(_said(key, value))
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name not in _PLAIN_EXTENSIONS:
            other.append(_said(kind.extension_name, getattr(kind, "__arrow_ext_serialize__", str)()))
        _look(pa.field("", kind.storage_type), array.storage, unused, other)
    elif pa.types.is_dictionary(kind):
        unused += _without_a_row(array)
        _look(pa.field("", kind.value_type), array.dictionary, unused, other)
    elif pa.types.is_struct(kind):
        for inner, cells in zip(kind.fields, array.flatten(), strict=True):
            _look(inner, cells, unused, other)
    elif pa.types.is_map(kind):
        _look(kind.key_field, array.keys, unused, other)
        _look(kind.item_field, array.items, unused, other)
    elif pa.types.is_nested(kind):
        _look(kind.value_field, array.flatten(), unused, other)
    elif zone := getattr(kind, "tz", None):
        other += [] if _OFFSET.fullmatch(zone) or zone in available_timezones() else [zone]


def _without_a_row(array: pa.DictionaryArray) -> list[str]:
    """Return the values of a dictionary that no cell has, unless they are numbers or moments."""
    used = pc.is_in(pa.array(range(len(array.dictionary))), value_set=pc.unique(array.indices).cast(pa.int64()))
    values = array.dictionary.filter(pc.invert(used))
    if pa.types.is_primitive(values.type) or pa.types.is_decimal(values.type):
        return []
    return [_said(value) for value in values.to_pylist() if value is not None]


def _enum_values(written: bytes) -> Iterable[str]:
    """Read the categories of an Enum of Polars: "1;x3;raw" is "x" and "raw"."""
    while written:
        size, _, rest = written.partition(b";")
        yield rest[: int(size)].decode()
        written = rest[int(size) :]


def _said(*given: Any) -> str:
    return " ".join(item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in given)


_KINDS = (
    (re.compile(r"\b(U?Int|Float)\d+\b|\bDecimal(\([^()]*\))?"), "Boolean"),
    (re.compile(r"\b(Datetime|Duration)(\([^()]*\))|\b(Date|Time|Datetime|Duration)\b"), "Date"),
    (re.compile(r"""\bEnum\(categories=\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|, )*\]\)|\bCategorical\b"""), "String"),
    (re.compile(r", shape=\([^()]*\)"), ""),
    (re.compile(r"\bArray\("), "List("),
)
"""How types are compared: engines widen numbers, know no Enum, and keep moments in units of their own."""


def published_types(policy: Policy, manifest: PublishedManifest | None = None) -> dict[str, str]:
    """Return the types of the published columns, as the manifest writes them."""
    if manifest is not None:
        return _types(manifest.facts)
    with suppress(DPTextError, ValueError):
        if "://" in policy.sink:
            found = Storage.open(policy.sink, policy.storage_options).read(MANIFEST)
            return {} if found is None else _types(json.loads(found))
    sink = Path(policy.sink).absolute()
    pattern = escape(str(sink.relative_to(sink.anchor))).replace("{partition}", "*")
    for place in sorted(Path(sink.anchor).glob(pattern)):
        with suppress(DPTextError):
            return _types(PublishedManifest.read(place).facts)
    return {}


def _types(facts: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(kind) for name, kind in dict(facts.get("schema", {})).items()}


def changed(schema: Mapping[str, pl.DataType], policy: Policy, types: Mapping[str, str]) -> set[str]:
    """Return the kept columns whose cells are of another kind than was published.

    Numbers, moments and texts are three kinds. Where the published type is not known, a kept column holds no text.
    """
    return {name for name in policy.keep if name in schema and not _same(schema[name], types.get(name))}


def without_published(table: pl.DataFrame, types: Mapping[str, str]) -> pl.DataFrame:
    """Leave out the columns of categories without a row (`shown`) that were published with an Enum."""
    more = [name for name in table.columns if name.endswith(CATEGORIES)]
    held = {name: _categories(types.get(name.removesuffix(CATEGORIES), "")) for name in more}
    return table.drop([name for name in more if set(table[name].explode().drop_nulls()) <= held[name]])


def _same(dtype: pl.DataType, published: str | None) -> bool:
    if dtype == pl.Null:
        return True
    kind = _kind(str(dtype))
    if published is None:
        return re.search("String|Binary|Object|Extension|Unknown", kind) is None
    return kind == _kind(published)


def _kind(said: str) -> str:
    for pattern, kind in _KINDS:
        said = pattern.sub(kind, said)
    return said


def _categories(said: str) -> set[str]:
    with suppress(ValueError, SyntaxError):
        return set(ast.literal_eval(said.removeprefix("Enum(categories=").removesuffix(")")))
    return set()
