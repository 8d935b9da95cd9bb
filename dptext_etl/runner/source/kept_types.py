"""Keep the types of published columns: parts of one table have the same types, or no reader opens it."""

from __future__ import annotations

import re

import polars as pl

from dptext_etl.data_types import kind_of, parsed, plain_type
from dptext_etl.errors import InputError
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Manifest

_ZONE = re.compile(r"(?<=time_zone=')[^']+")
_HINT = "cast it in the source; incremental = false publishes every row again at no cost"


def with_nulls_typed(rows: pl.LazyFrame, found: pl.Schema, policy: Policy, layout: Layout) -> pl.LazyFrame:
    """Give kept columns of nulls, which have no type of their own, the type under which they are published."""
    nulls = [name for name in policy.keep if policy.incremental and found.get(name) == pl.Null]
    manifest = Manifest.of_release(policy, layout) if nulls else None
    types = {} if manifest is None else {name: parsed(manifest.schema.get(name, "")) for name in nulls}
    return rows.with_columns(pl.col(name).cast(dtype) for name, dtype in types.items() if dtype is not None)


def require_same_types(policy: Policy, layout: Layout, manifest: Manifest, schema: pl.Schema) -> None:
    """Refuse to add parts with other types than those that are published, before anything is charged."""
    clear = {*policy.keep, *([policy.id] if policy.ids == "keep" else [])}
    for place, name in enumerate(manifest.schema, start=1):
        if name not in clear:
            continue
        both = now, then = kind_of(plain_type(schema[name], rename=True)), manifest.kinds[name]
        if layout.logged:  # a table with a log holds the moments of every zone in UTC
            both = _ZONE.sub("UTC", now), _ZONE.sub("UTC", then)
        if both[0] != both[1]:
            msg = f"column {place} ({name!r}) is of type {now}, and published as {then}; nothing was spent"
            raise InputError(msg, _HINT, {"column": name})
