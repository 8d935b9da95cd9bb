"""docs/spec/inputs.md#reach says what every entry of a policy reads, writes, and contacts; no entry is missing."""

import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from dptext_etl import catalog, extensions
from dptext_etl.object_stores import _STORE, CATALOG, Kind
from dptext_etl.policy import Policy

DOCS = Path(__file__).parents[2] / "docs" / "spec" / "inputs.md"
SECTION = DOCS.read_text("utf-8").partition("{#reach}")[2].partition("\n## ")[0]
PLAIN = {bool, int, float, type(None), Ellipsis}


def models(annotation):
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)


def is_free(annotation):
    """Whether a value can be any text."""
    if get_origin(annotation) is Literal or annotation in PLAIN:
        return False
    if annotation in {str, Any, dict, object}:
        return True
    return any(is_free(part) for part in get_args(annotation) if get_origin(part) is not None or isinstance(part, type))


def free_entries(kind):
    """Yield (name, full name) of every entry that can hold any text, at any depth."""
    for own_name, field in kind.model_fields.items():
        name = field.alias or own_name
        inner = [model for model in models(field.annotation) if model is not kind]
        for model in inner:
            yield from ((entry, f"{name}.{full}") for entry, full in free_entries(model))
        if not inner and is_free(field.annotation):
            yield name, name


KINDS = [
    Policy,
    *map(catalog.load, extensions.names("mechanisms")),
    *map(catalog.load_postprocess, extensions.names("postprocesses")),
]
ROWS = [line.split("|")[1] for line in SECTION.splitlines() if line.startswith("| `")]
LISTED = {entry for row in ROWS for entry in re.findall(r"`([\w.]+)`", row)}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_entry_that_holds_any_text_is_listed(kind):
    missing = [full for name, full in free_entries(kind) if not {name, full} & LISTED]
    assert not missing, f"say in {DOCS.name} what these entries read, write, and contact: {missing}"


@pytest.mark.parametrize("kind", KINDS[1:], ids=lambda kind: kind.__name__)
def test_entries_that_name_files_are_no_plain_texts(kind):
    """The table says of public inputs that they are read."""
    reading = {
        entry
        for row in SECTION.splitlines()
        if "file" in row or "model" in row
        for entry in re.findall(r"`(\w+)`", row)
    }
    assert kind.artifact_fields <= reading


def test_the_walk_finds_entries_at_every_depth():
    found = {full for _, full in free_entries(Policy)}
    assert {"source", "table.catalog", "dagster.tags", "ledger.anchors", "synthetic.mechanism.corpus"} <= found
    assert {"cap.period", "keep.top", "storage_options", "column.name", "synthetic.labels.names"} <= found
    assert not {"unit", "shard_rows", "csv.encoding", "publish"} & found


@pytest.mark.parametrize(("title", "known"), [("store", _STORE), ("catalog", CATALOG)])
def test_the_options_are_listed_by_kind(title, known):
    listing = SECTION.partition(f"<!-- options: {title} -->")[2].partition("<!-- end of options -->")[0]
    written = [set(re.findall(r"`([a-z0-9_.-]+)`", part)) for part in listing.split("\n* ")]
    by_kind = [{name for name, kind in known.items() if kind is one} for one in Kind]
    assert sorted(map(sorted, filter(None, written))) == sorted(map(sorted, filter(None, by_kind)))
