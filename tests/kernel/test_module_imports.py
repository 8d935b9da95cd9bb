"""The kernel's rooms import one way, and no file of theirs imports itself over others."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "kernel" / "src"
LAYERS = [
    "errors", "panics", "threads", "pages", "processor", "csv_rows", "json_rows", "pseudo_random", "keys", "draw",
    "text", "laws", "columns", "polars_plugin", "expressions", "py",
]  # fmt: skip
"""From the ground up: a room imports from those before it, and from itself."""
ROOMS = {"keys", "draw", "text", "laws", "columns", "py"}


def code(path):
    """A file without its unit tests and comments."""
    text = path.read_text().split("#[cfg(test)]\nmod tests")[0]
    return re.sub(r"//.*", "", text)


def imports():
    """The files that every file imports, by their names under `crate::`."""
    edges = {}
    for path in SOURCES.rglob("*.rs"):
        if path.name in {"mod.rs", "lib.rs"}:
            continue
        name = "::".join(path.relative_to(SOURCES).with_suffix("").parts)
        named = re.findall(r"crate::(\w+)(?:::(\w+))?", code(path))
        edges[name] = {f"{room}::{file}" if room in ROOMS and file else room for room, file in named} - {name}
    return edges


def test_no_file_imports_itself_over_others():
    order = list(TopologicalSorter(imports()).static_order())
    assert "draw::stream" in order


def test_rooms_import_downwards():
    upwards = [
        f"{file} imports {other}"
        for file, others in imports().items()
        for other in others
        if LAYERS.index(other.split("::")[0]) > LAYERS.index(file.split("::")[0])
    ]
    assert upwards == []
