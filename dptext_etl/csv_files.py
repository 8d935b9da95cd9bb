"""Refuse CSV files whose rows do not have the fields of their header, or can be read in two ways.

One pass over the bytes of a file counts the fields of every row, over all columns. Messages hold counts and numbers of
lines, and never a cell, nor a name, because names of columns may be texts.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

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
_PROBLEMS = {
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

    Args:
        chunks: The bytes of the file, in order.
        name: What messages call the file.
        separator: The ASCII character between fields.
        quote: The ASCII character around fields, or "".
        encoding: A name that Python knows.

    Raises:
        InputError: A row has another number of fields, or readers would differ about where a field or a row ends.
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
        what, hint = _PROBLEMS[kind]
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
    with seam(f"reading the file {path}", InputError, _READ):
        stat = Path(path).stat()
    state = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    return _require_local_rows(path, state, separator, quote, encoding)


@lru_cache(maxsize=1 << 12)
def _require_local_rows(path: str, _state: tuple[int, ...], *dialect: str) -> tuple[str, ...]:
    return require_rows(_blocks(path), f"the file {path}", *dialect)


def _blocks(path: str) -> Iterator[bytes]:
    with seam(f"reading the file {path}", InputError, _READ), Path(path).open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


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
