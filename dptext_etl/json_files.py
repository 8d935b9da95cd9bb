"""Refuse NDJSON files with lines that are not JSON objects, or whose values no reader holds, by line and kind.

One pass over the bytes of a file. Messages hold numbers of lines, and never a value or a name.
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from dptext_etl import _kernel
from dptext_etl.errors import InputError, seam

_BLOCK = 1 << 20
_READ = "is it there, and readable?"
_PROBLEMS = {
    "array": ("begins a JSON array of rows", "write one object per line: jq -c '.[]' FILE"),
    "other": ("holds another value than an object", "write one object per line"),
    "syntax": ("is not one JSON object", "write one object per line, with line breaks inside texts as \\n"),
    "cut": ("is cut: the file ends within it", "is the file complete, and not being written?"),
    "not a number": ("holds NaN or Infinity, which JSON does not have", "write null in their place"),
    "too large": ("holds a number that no type holds", "write the column as strings"),
    "surrogate": ("holds half of a surrogate pair (\\ud800 to \\udfff), which is not a character", "repair the text"),
    "twice": ("holds an object with one field twice", "write each field once"),
    "encoding": ("is not in UTF-8", "convert the file to UTF-8"),
}
LARGE, FLOAT, STRING = 2, 4, 8

Kinds = Mapping[tuple[str, ...], int]
"""The kinds of the numbers and strings of a field, by the names that lead to it."""


def require_lines(chunks: Iterable[bytes], name: str, *, marked: bool = True) -> Kinds:
    """Refuse an NDJSON file with a line that readers lose or read differently; return the kinds of its values.

    Args:
        chunks: The bytes of the file, in order.
        name: What messages call the file.
        marked: Whether the file may begin with the byte-order mark of UTF-8.

    Raises:
        InputError: A line is not a JSON object, or holds a value that no reader holds.
    """
    rows, first = _kernel.JsonRows(), True
    for chunk in chunks:
        if first and not marked and chunk.startswith(codecs.BOM_UTF8):
            raise InputError(f"{name} begins with the byte-order mark of UTF-8", "remove its first three bytes")
        first = False
        if not rows.feed(chunk):
            break
    else:
        rows.finish()
    if rows.problem is None:
        return {tuple(path): kinds for path, kinds in rows.kinds}
    kind, line = rows.problem
    what, hint = _PROBLEMS[kind]
    raise InputError(f"line {line} of {name} {what}; no budget used", hint, {"line": line})


def require_local_lines(path: str) -> Kinds:
    """Check a local file as `require_lines` does, and not again in this process while it stays as it is."""
    with seam(f"reading the file {path}", InputError, _READ):
        stat = Path(path).stat()
    return _require_local_lines(path, (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))


@lru_cache(maxsize=1 << 12)
def _require_local_lines(path: str, _state: tuple[int, ...]) -> Kinds:
    return require_lines(_blocks(path), f"the file {path}")


def _blocks(path: str) -> Iterator[bytes]:
    with seam(f"reading the file {path}", InputError, _READ), Path(path).open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def without_mark(path: str) -> bytes | None:
    """Return the bytes of a file behind its byte-order mark; None if it has none."""
    with seam(f"reading the file {path}", InputError, _READ), Path(path).open("rb") as file:
        return file.read() if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else None


def refuse_mixed(files: Iterable[Kinds], columns: Sequence[str]) -> None:
    """Refuse columns that hold integers that a float would round next to floats, or floats next to strings."""
    together = Counter[tuple[str, ...]]()
    for kinds in files:
        for path, kind in kinds.items():
            together[path] |= kind
    for path, kind in sorted(together.items()):
        if path[0] in columns and kind & FLOAT and kind & (LARGE | STRING):
            others = "integers beyond 2^53" if kind & LARGE else "strings"
            msg = (
                f"column {path[0]!r} holds {others} next to numbers with a fraction or an exponent, whose digits change"
            )
            raise InputError(f"{msg}; no budget used", "write all its values as strings", {"column": path[0]})
