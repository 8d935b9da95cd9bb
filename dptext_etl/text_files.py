"""Refuse CSV files whose rows do not have the fields of their header, and NDJSON files whose lines are not objects.

One pass over the bytes of a file counts the fields of every row, or judges every line. Messages hold counts, kinds, and
numbers of lines, and never a cell, a value, or a name, because names of columns may be texts.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from dptext_etl import _kernel
from dptext_etl.errors import InputError, counted, seam

_BLOCK = 1 << 20
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"BZh", b"\xfd7zXZ")
_READ = "is it there, and readable?"
_SETTING = re.compile(rb"(?i)sep=.?")
_QUOTED = (
    "put fields that hold a separator, a quote, or a line break in quotes, and write a quote inside them twice; the "
    'entry csv of the policy names another separator or quote (quote = "" where quotes are plain characters)'
)
_CSV_PROBLEMS = {
    "inside": ("holds a quote inside a field that does not begin with one", _QUOTED),
    "behind": ("holds text behind a closing quote, as where a backslash escapes a quote", _QUOTED),
    "open": ("opens a quote that never closes", f"is the file complete? Otherwise, {_QUOTED}"),
    "return": (
        "holds a carriage return that ends no line, outside quotes",
        r"end every line with \n or with \r\n, and put fields that hold a carriage return in quotes",
    ),
    "mixed": (
        "ends otherwise than the first line",
        r"end every line with \n, or every line with \r\n; put fields that hold a line break in quotes",
    ),
    "header": ("is longer than a mebibyte and still the header", "does the file have lines? Is csv.encoding right?"),
}


def require_rows(
    chunks: Iterable[bytes], name: str, separator: str = ",", quote: str = '"', encoding: str = "utf-8"
) -> tuple[str, ...]:
    """Refuse a CSV file in which a row does not fit the header; return the names of the columns.

    It also refuses a file about which readers would differ where a field or a row ends. Messages call the file `name`.
    """
    rows = _kernel.CsvRows(ord(separator), ord(quote) if quote else None)
    problems = [*_undecodable(rows, chunks, name, encoding)]
    width = len(rows.header)
    if _SETTING.fullmatch(bytes([ord(separator)]).join(rows.header).strip()):
        msg = f"line 1 of {name} names a separator for Excel (sep=…), and is not the header"
        raise InputError(msg, "remove the line; csv.separator in the policy names the separator", {"line": 1})
    only_field = "the header has one field. Is csv.separator right? Otherwise, " if width == 1 else ""
    if rows.problem is not None:
        kind, line = rows.problem
        what, hint = _CSV_PROBLEMS[kind]
        problems.append((line, InputError(f"line {line} of {name} {what}", f"{only_field}{hint}", {"line": line})))
    count, line, fields = rows.others
    if count:
        msg = (
            f"{counted(count, 'row has', 'rows have')} another number of fields than the header of {name}: the first, "
            f"in line {line}, has {fields}, and the header has {width}"
        )
        hint = f"{only_field}{_QUOTED}. If the file ends too early, export it again"
        problems.append(
            (line, InputError(msg, hint, {"rows": count, "line": line, "fields": fields, "columns": width}))
        )
    count, line = rows.blank
    if count:
        msg = f"{counted(count, 'line is', 'lines are')} blank in {name}: the first is line {line}"
        problems.append((line, InputError(msg, "remove them", {"rows": count, "line": line})))
    names = tuple(field.decode("utf-8", "replace") for field in rows.header)
    if min((line for line, _ in problems), default=2) > 1 and names != ("",):
        require_names(names, name)
    if problems:
        raise min(problems, key=lambda problem: problem[0])[1]
    return names


def require_local_rows(path: str, separator: str, quote: str, encoding: str) -> tuple[str, ...]:
    """Check a local file as `require_rows` does, and not again in this process while it stays as it is."""
    names: tuple[str, ...] = _checked(require_rows, path, _state(path), separator, quote, encoding)
    return names


def _undecodable(
    rows: _kernel.CsvRows, chunks: Iterable[bytes], name: str, encoding: str
) -> Iterator[tuple[int, InputError]]:
    """Count rows up to the first byte that is not in the encoding; yield its line and a refusal if there is one."""
    decoder, plain, first, good = codecs.getincrementaldecoder(encoding)(), encoding == "utf-8", True, True
    for chunk in chunks:
        if first and chunk.startswith(_COMPRESSED):
            yield 0, InputError(f"{name} is compressed, and is read as plain CSV", "decompress it first")
            return
        if first and chunk.startswith(codecs.BOM_UTF8):
            if not plain and encoding != "utf-16":
                yield 0, InputError(f"{name} begins with the byte-order mark of UTF-8", 'write encoding = "utf-8"')
            chunk = chunk.removeprefix(codecs.BOM_UTF8) if plain else chunk  # noqa: PLW2901
        first = False
        if not (good := _feed(rows, decoder, chunk, plain=plain)) or rows.problem is not None:
            break
    if good and rows.problem is None:
        try:
            decoder.decode(b"", final=True)
            rows.finish()
        except UnicodeError:
            good = False
    if not good:
        msg = f"csv.encoding: {name} is not in {encoding}: the first other byte is in line {rows.line}"
        hint = "correct csv.encoding in the policy, or the file; `dptext init` proposes an encoding"
        yield rows.line, InputError(msg, hint, {"entry": "csv.encoding", "line": rows.line})


def _feed(rows: _kernel.CsvRows, decoder: codecs.IncrementalDecoder, chunk: bytes, *, plain: bool) -> bool:
    """Count rows in a chunk up to its first undecodable byte; return whether all were decodable."""
    pending, text, wrong = len(decoder.getstate()[0]), "", None
    try:
        text = decoder.decode(chunk)
    except UnicodeDecodeError as error:
        wrong = max(0, error.start - pending)
    except UnicodeError:  # the byte-order mark of UTF-16 is missing
        wrong = 0
    if wrong:
        with suppress(UnicodeError):
            text = decoder.decode(chunk[:wrong])
    rows.feed(chunk[:wrong] if plain else text.encode())
    return wrong is None


def require_names(names: Sequence[str], name: str) -> None:
    """Refuse columns without a name, or with a name that another one has, in upper or lower case."""
    unnamed = [place for place, column in enumerate(names, start=1) if not column.strip()]
    if unnamed:
        msg = f"column {unnamed[0]} of {len(names)} of {name} has no name"
        hint = (
            "does the file have a header line? Name every column there, and end no line with a separator "
            "(pandas: to_csv(…, index=False))"
        )
        raise InputError(msg, hint, {"column": unnamed[0], "columns": len(names)})
    counts = Counter(map(str.casefold, names))
    alike = [place for place, column in enumerate(names, start=1) if counts[column.casefold()] > 1]
    if alike:
        msg = f"columns {', '.join(map(str, alike))} of {name} have the same name (upper and lower case are the same)"
        hint = "does the file have a header line? Give every column its own name there"
        raise InputError(msg, hint, {"columns": alike})


_JSON_PROBLEMS = {
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

    Messages call the file `name`; with `marked`, it may begin with the byte-order mark of UTF-8.
    """
    rows, empty = _kernel.JsonRows(), True
    for at, chunk in enumerate(chunks):
        empty = empty and not chunk.strip()
        if at == 0 and not marked and chunk.startswith(codecs.BOM_UTF8):
            raise InputError(f"{name} begins with the byte-order mark of UTF-8", "remove its first three bytes")
        if not rows.feed(chunk):
            break
    else:
        rows.finish()
    if empty:
        raise InputError(f"{name} is empty; no budget used", "remove it, or name the other files by a pattern")
    if rows.problem is None:
        return {tuple(path): kinds for path, kinds in rows.kinds}
    kind, line = rows.problem
    what, hint = _JSON_PROBLEMS[kind]
    raise InputError(f"line {line} of {name} {what}; no budget used", hint, {"line": line})


def require_local_lines(path: str) -> Kinds:
    """Check a local file as `require_lines` does, and not again in this process while it stays as it is."""
    kinds: Kinds = _checked(require_lines, path, _state(path))
    return kinds


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


def _state(path: str) -> tuple[int, ...]:
    with seam(f"reading the file {path}", InputError, _READ):
        stat = Path(path).stat()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


@lru_cache(maxsize=1 << 12)
def _checked(check: Callable[..., Any], path: str, _: tuple[int, ...], *dialect: str) -> Any:
    def blocks() -> Iterator[bytes]:
        with seam(f"reading the file {path}", InputError, _READ), Path(path).open("rb") as file:
            while block := file.read(_BLOCK):
                yield block

    return check(blocks(), f"the file {path}", *dialect)
