"""Find out how a CSV file is written: its encoding, separator and quotes. Only counts of characters decide."""

from __future__ import annotations

import codecs
import csv
from pathlib import Path
from typing import Literal

from dptext_etl.errors import InputError, seam
from dptext_etl.policy.terms import CsvSpec
from dptext_etl.runner.source.table import READ_HINT

SEPARATORS = ",;\t|"
_BLOCK = 1 << 20
_HEAD = 1 << 16
_LINES = 50
_CP1252 = frozenset(range(0x80, 0xA0)) - {0x81, 0x8D, 0x8F, 0x90, 0x9D}
Encoding = Literal["utf-8", "utf-16", "cp1252", "latin-1"]


def sniff(path: str) -> CsvSpec:
    """Return how a local CSV file is written.

    Raises:
        InputError: It cannot be read.
    """
    with seam("looking at the CSV file", InputError, READ_HINT):
        encoding = _encoding(Path(path))
        with Path(path).open("rb") as file:
            raw = file.read(_HEAD)
        head = codecs.getincrementaldecoder(encoding)(errors="replace").decode(raw)
        lines = head.splitlines()
        lines = lines[:_LINES] if len(lines) > _LINES else (lines[:-1] if len(raw) == _HEAD else lines)
        quote = "'" if _around(lines, "'") > _around(lines, '"') else '"'
        best = max(SEPARATORS, key=lambda separator: _fit(lines, separator, quote))
    return CsvSpec(separator=best, encoding=encoding, quote=quote)


def _encoding(path: Path) -> Encoding:
    """Return the encoding: by the mark at the file's begin, else UTF-8 if all bytes are, else one with a byte each."""
    decoder, utf8, windows, other = codecs.getincrementaldecoder("utf-8")(), True, False, False
    with path.open("rb") as file:
        if file.read(2) in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}:
            return "utf-16"
        file.seek(0)
        while block := file.read(_BLOCK):
            try:
                decoder.decode(block, final=False)
            except UnicodeDecodeError:
                utf8 = False
            found = set(block)
            windows |= bool(found & _CP1252)
            other |= bool(found & (set(range(0x80, 0xA0)) - _CP1252))
    if utf8 and not decoder.getstate()[0]:
        return "utf-8"
    return "cp1252" if windows and not other else "latin-1"


def _around(lines: list[str], quote: str) -> int:
    """Count fields that begin with a quote right after a separator, or at the begin of a line."""
    return sum(
        line.startswith(quote) + sum(line.count(f"{separator}{quote}") for separator in SEPARATORS) for line in lines
    )


def _fit(lines: list[str], separator: str, quote: str) -> tuple[bool, float, int, int]:
    """Rate a separator: whether the header has several fields, and the share of records with as many."""
    records = list(csv.reader(lines, delimiter=separator, quotechar=quote))
    width = len(records[0]) if records else 0
    same = sum(len(record) == width for record in records) / max(1, len(records))
    return (width > 1 and same > 0.5, round(same, 1), width, -SEPARATORS.index(separator))
