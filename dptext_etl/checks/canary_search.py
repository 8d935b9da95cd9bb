"""Search cells and files for the words of canaries, in any writing.

Words are searched as written, in other case, reversed, in base64 (at all three alignments), percent-encoded, in
hexadecimal and in UTF-16. In tables, every column is searched (nested, binary and categorical ones included), and texts
that are split over neighboring columns. In folders, file names are searched, too; in Parquet files also the footers,
whose statistics may hold values that no column shows any more.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Iterator
from itertools import pairwise, starmap
from pathlib import Path
from typing import IO

import polars as pl
import pyarrow.parquet as pq

from dptext_etl import _kernel
from dptext_etl.errors import InputError, seam

FORMS = ("plain", "reversed", "base64", "percent", "hex", "utf16")
"""The forms of writing that are searched. Letters need no URL encoding; "percent" finds encoders that encode all."""

_CHUNK = 1 << 22
_ROWS = 20_000
_EXACT = frozenset({"base64"})
"""Forms in which case matters; the others are found in any case."""


def find(tokens: Iterable[str], anything: bytes | str | Path | pl.DataFrame) -> dict[str, int]:
    return Searcher(tokens).find(anything)


class Searcher:
    """Holds the patterns of a set of tokens, made once."""

    def __init__(self, tokens: Iterable[str]) -> None:
        tokens = sorted(set(tokens))
        if any(len(token) < 8 or not (token.isascii() and token.isalpha()) for token in tokens):
            raise InputError("a canary token has at least 8 ASCII letters")
        patterns = {form: sorted({pattern for token in tokens for pattern in _written(token, form)}) for form in FORMS}
        self._patterns = _kernel.Patterns([(patterns[form], form not in _EXACT) for form in FORMS])
        self._longest = max((len(pattern) for written in patterns.values() for pattern in written), default=1)

    def find(self, anything: bytes | str | Path | pl.DataFrame) -> dict[str, int]:
        hits = dict.fromkeys(FORMS, 0)
        with seam("searching for canaries"):
            for found in self._search(anything):
                for form, count in zip(FORMS, found, strict=True):
                    hits[form] += count
        return hits

    def _search(self, anything: bytes | str | Path | pl.DataFrame) -> Iterator[list[int]]:
        if isinstance(anything, pl.DataFrame):
            yield from self._in_frame(anything)
        elif isinstance(anything, Path):
            yield from self._in_path(anything)
        else:
            data = anything if isinstance(anything, bytes) else anything.encode("utf-8", "surrogatepass")
            yield self._patterns.occurrences(data, 0)

    def _in_path(self, path: Path) -> Iterator[list[int]]:
        if path.is_dir():
            for inner in sorted(item for item in path.rglob("*") if item.is_file()):
                yield self._patterns.occurrences(str(inner.relative_to(path)).encode("utf-8", "surrogateescape"), 0)
                yield from self._in_path(inner)
            return
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(0)
            if head == b"PAR1":
                yield from self._in_parquet(path)
            elif head[:2] == b"\x1f\x8b":
                with gzip.open(file) as inflated:
                    yield from self._in_stream(inflated)
            else:
                yield from self._in_stream(file)

    def _in_parquet(self, path: Path) -> Iterator[list[int]]:
        with path.open("rb") as file:
            size = file.seek(-8, 2)
            footer = min(size, int.from_bytes(file.read(4), "little"))
            file.seek(size - footer)
            yield self._patterns.occurrences(file.read(footer), 0)
        with pq.ParquetFile(path) as table:
            for batch in table.iter_batches(batch_size=_ROWS):
                frame = pl.from_arrow(batch)
                if isinstance(frame, pl.DataFrame):
                    yield from self._in_frame(frame)

    def _in_stream(self, file: IO[bytes] | gzip.GzipFile) -> Iterator[list[int]]:
        tail = b""
        while chunk := file.read(_CHUNK):
            window = tail + chunk
            yield self._patterns.occurrences(window, len(tail))  # those that end after what was searched before
            tail = window[-(self._longest - 1) :]

    def _in_frame(self, frame: pl.DataFrame) -> Iterator[list[int]]:
        yield self._patterns.occurrences("\0".join(frame.columns).encode(), 0)
        for start in range(0, frame.height, _ROWS):
            rows = frame.slice(start, _ROWS)
            leaves = [leaf for column in rows for leaf in _leaves(column)]
            yield from map(self._patterns.holding, leaves)
            per_row = [leaf for leaf in leaves if len(leaf) == rows.height]
            yield from starmap(self._patterns.across, pairwise(per_row))


def _written(token: str, form: str) -> Iterator[bytes]:
    """Yield every way in which `form` may write `token`; case-folded where case does not matter."""
    lower = token.lower().encode()
    if form == "plain":
        yield lower
    elif form == "reversed":
        yield lower[::-1]
    elif form == "utf16":
        yield b"\0".join(bytes([letter]) for letter in lower)
    else:
        for written in {token.encode(), lower, lower.upper(), lower.capitalize()}:
            if form == "base64":
                yield from _base64(written)
            elif form == "hex":
                yield written.hex().encode()
            else:
                yield "".join(f"%{byte:02x}" for byte in written).encode()


def _base64(written: bytes) -> Iterator[bytes]:
    """Yield the letters of a base64 text that `written` alone decides, at each of the three alignments."""
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + written)
        first = -(-shift * 8 // 6)
        last = (shift + len(written)) * 8 // 6
        yield encoded[first:last]


def _leaves(column: pl.Series) -> Iterator[pl.Series]:
    """Write a column of any type as strings: nested ones by their leaves, binary ones decoded and in hexadecimal."""
    dtype = column.dtype
    if dtype == pl.String:
        yield column
    elif dtype == pl.Binary:
        yield column.bin.encode("hex")
        yield pl.Series([None if cell is None else cell.decode("latin-1") for cell in column], dtype=pl.String)
    elif isinstance(dtype, (pl.Categorical, pl.Enum)):
        yield column.cast(pl.String)
    elif isinstance(dtype, (pl.List, pl.Array)):
        yield from _leaves(column.explode())
    elif isinstance(dtype, pl.Map):
        yield from _leaves(column.map.entries())
    elif isinstance(dtype, pl.BaseExtension):
        yield from _leaves(column.ext.storage())
    elif isinstance(dtype, pl.Struct):
        for field in dtype.fields:
            yield from _leaves(column.struct.field(field.name))
    elif dtype == pl.Object:
        yield pl.Series([str(cell) for cell in column], dtype=pl.String)
