"""Hold kept columns to the types that were published: text never takes the place of numbers."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any

import polars as pl

from dptext_etl.checks.manifest import PublishedManifest
from dptext_etl.checks.sink import MANIFEST
from dptext_etl.checks.table_metadata import CATEGORIES
from dptext_etl.errors import DPTextError
from dptext_etl.objects import Objects
from dptext_etl.policy import Policy

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
            found = Objects.of(policy.sink, policy.storage_options).get(MANIFEST)
            return {} if found is None else _types(json.loads(found.content))
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
    """Leave out the columns of categories without a row (`beside.shown`) that were published with an Enum."""
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
