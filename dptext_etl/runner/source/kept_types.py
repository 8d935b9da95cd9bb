"""Compare the types of published columns between runs: parts of one table have the same types, or no reader opens it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import polars as pl

from dptext_etl.errors import InputError
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Manifest, scan
from dptext_etl.runner.source.roles import Table
from dptext_etl.runner.source.table import schema_of

_ZONE = re.compile(r"(?<=time_zone=')[^']+")
_DICTIONARY = re.compile(r"^(Enum|Categorical)\b.*", re.DOTALL)
_WITH_NAMES = (pl.Struct, pl.List, pl.Array, pl.Enum, pl.Categorical)
_HINT = "cast it in the source; incremental = false publishes every row again at no cost"


def with_nulls_typed(table: Table[pl.LazyFrame], policy: Policy, layout: Layout, manifest: Manifest) -> Table[Any]:
    """Give kept columns of nulls, which have no type of their own, the type under which they are published."""
    untyped = [name for name in policy.keep if table.schema[name] == pl.Null]
    if not untyped:
        return table
    published = schema_of(scan(layout, manifest))
    frame = table.frame.with_columns(pl.col(name).cast(published[name]) for name in untyped)
    return replace(table, frame=frame, schema=schema_of(frame))


def require_same_types(policy: Policy, layout: Layout, manifest: Manifest, schema: pl.Schema) -> None:
    """Refuse to add parts with other types than those that are published, before anything is charged."""
    exact = schema_of(scan(layout, manifest)) if manifest.file_format == "parquet" else {}
    for place, name in enumerate(schema, start=1):
        if name not in policy.keep and (name != policy.id or policy.ids != "keep"):
            continue
        then = exact.get(name, manifest.schema[name])
        found = _difference(schema[name], then, logged=layout.logged)
        if found is not None:
            inside, *kinds = found
            what = "{} is of type {}, and published as {}".format(f"{inside}column {place} ({name!r})", *kinds)
            raise InputError(f"{what}; nothing was spent", _HINT, {"column": name})


def _difference(now: Any, then: Any, *, logged: bool) -> tuple[str, str, str] | None:
    """Return where two types differ, by place, and their kinds there; None if they are the same."""
    if isinstance(now, pl.List) and isinstance(then, pl.List):
        found = _difference(now.inner, then.inner, logged=logged)
        return found and (f"a value in {found[0]}", *found[1:])
    if isinstance(now, pl.Struct) and isinstance(then, pl.Struct):
        if [field.name for field in now.fields] != [field.name for field in then.fields]:
            return "", "a struct with other fields", _kind(then)
        for place, (mine, theirs) in enumerate(zip(now.fields, then.fields, strict=True), start=1):
            if found := _difference(mine.dtype, theirs.dtype, logged=logged):
                return f"field {place} of {found[0]}", *found[1:]
        return None
    both = [_DICTIONARY.sub("String", str(dtype)) for dtype in (now, then)]
    if logged:  # a table with a log holds the moments of every zone in UTC
        both = [_ZONE.sub("UTC", dtype) for dtype in both]
    return None if both[0] == both[1] or _kind(now) == then else ("", _kind(now), _kind(then))


def _kind(dtype: Any) -> str:
    """Print a type without the names and values inside it."""
    return str(dtype.base_type()) if isinstance(dtype, _WITH_NAMES) else str(dtype)
