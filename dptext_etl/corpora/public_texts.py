"""Read public texts and clean them for a corpus: one form, one length range, no contact data, each text once.

What is dropped is counted by reason. The order of what stays follows the hashes of texts: it depends neither on the
order of the sources nor on the machine.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dptext_etl import _kernel
from dptext_etl.csv_files import require_local_rows
from dptext_etl.errors import InputError, PolicyError, seam

_HINT = "a source is a .parquet or .csv file with a column of texts, or a .txt file with one text per line"


@dataclass(frozen=True)
class Source:
    """Name a file of public texts."""

    path: Path  # a Parquet or CSV file, or a text file with one text per line
    column: str = "text"  # the column of texts; a text file has none
    label: str | None = None  # a column of public labels, or None

    @property
    def mark(self) -> tuple[str, int]:
        """The SHA-256 of the file, in hex digits, and its size in bytes."""
        if not self.path.is_file():
            raise InputError(f"there is no file {self.path}", _HINT)
        with seam(f"reading {self.path.name}", InputError, _HINT), self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest(), self.path.stat().st_size

    def rows(self) -> Iterator[tuple[str, str | None]]:
        """Yield the texts and their labels (None without a column of labels); nulls are left out."""
        kind = self.path.suffix.lower()
        if not self.path.is_file():
            raise InputError(f"there is no file {self.path}", _HINT)
        if kind in (".txt", ".text", ""):
            with seam(f"reading {self.path.name}", InputError, "a text file is UTF-8"):
                content = self.path.read_text("utf-8")
            if self.label is not None:
                raise InputError(f"{self.path.name} has no column of labels", "name a .parquet or .csv file")
            yield from ((text, None) for text in content.splitlines())
        elif kind in (".parquet", ".csv"):
            yield from self._table(kind)
        else:
            raise InputError(f"{self.path.name} is no source of texts: its suffix is {kind}", _HINT)

    def _table(self, kind: str) -> Iterator[tuple[str, str | None]]:
        import polars as pl

        if kind == ".csv":
            require_local_rows(str(self.path), ",", '"', "utf-8")
        with seam(f"reading {self.path.name}", InputError, _HINT):
            frame = pl.scan_parquet(self.path) if kind == ".parquet" else pl.scan_csv(self.path)
            schema = frame.collect_schema()
        for name in (self.column, *([] if self.label is None else [self.label])):
            if name not in schema:
                msg = f"{self.path.name} has no column {name!r}, and {len(schema)} others"
                raise InputError(msg, "name it with --text")
        if schema[self.column] != pl.String:
            raise InputError(f"column {self.column!r} of {self.path.name} is {schema[self.column]}; allowed: strings")
        label = pl.lit(None, pl.String) if self.label is None else pl.col(self.label).cast(pl.String)
        with seam(f"reading {self.path.name}", InputError, _HINT):
            rows = frame.select(text=self.column, label=label).drop_nulls("text").collect(engine="streaming")
        yield from rows.iter_rows()


_MARKUP = re.compile(r"<br ?/?>", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
_DROPPED = {
    "e-mail address": re.compile(r"[\w.+-]+\s?@\s?[\w-]+\s?\.\s?\w+"),
    "URL": re.compile(r"https?\s?:|\bwww\s?\.|\b[\w-]+\.(?:com|org|net|edu|gov|info|io|co)\b", re.IGNORECASE),
    "telephone number": re.compile(r"(?<![\w.])\+?\(?\d(?:[\s().x/-]*\d){6,14}(?!\w)"),
    "long run of digits": re.compile(r"\d{6}"),
}
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Cleaning:
    """Say how texts become lines of a corpus."""

    fewest: int = 4  # words of the shortest text
    most: int = 40  # words of the longest text
    sentences: bool = False  # whether texts are cut into sentences first

    def __post_init__(self) -> None:
        if not 1 <= self.fewest <= self.most:
            raise PolicyError(f"lengths from {self.fewest} to {self.most} words; allowed: 1 <= fewest <= most")


@dataclass
class Usable:
    """The texts of a corpus, and counts of what became of the others."""

    texts: list[str]  # distinct clean texts, in the order of their hashes
    read: int  # number of texts (or sentences) that were read
    dropped: Counter[str] = field(default_factory=Counter)  # number of texts that were left out, by reason


def clean(texts: Iterable[str], how: Cleaning, progress: Progress = lambda _: None) -> Usable:
    """Clean texts, drop those that a corpus must not hold, and keep each once."""
    kept: dict[str, bytes] = {}
    dropped: Counter[str] = Counter()
    seen = 0
    for text in texts:
        for part in split(text) if how.sentences else [text]:
            seen += 1
            if seen % 50_000 == 0:
                progress(f"{seen:,} texts read, {len(kept):,} kept")
            line = normalized(part)
            reason = _reason(line, how)
            if reason is None and line in kept:
                reason = "there already"
            if reason is None:
                kept[line] = hashlib.sha256(line.encode()).digest()
            else:
                dropped[reason] += 1
    return Usable(sorted(kept, key=kept.__getitem__), seen, dropped)


def normalized(text: str) -> str:
    r"""Return a text in Unicode form NFC with single spaces, HTML line breaks removed.

    >>> normalized("  cafe\u0301 <br />au\nlait ")
    'café au lait'
    """
    return " ".join(unicodedata.normalize("NFC", _MARKUP.sub(" ", text)).split())


def split(text: str) -> list[str]:
    """Cut a text into sentences after full stops, question and exclamation marks; the cut is rough.

    >>> split("It rained. We stayed in! Why?")
    ['It rained.', 'We stayed in!', 'Why?']
    """
    return [part for part in _SENTENCE_END.split(normalized(text)) if part]


def _reason(line: str, how: Cleaning) -> str | None:
    """Say why a text is left out; None if it stays."""
    if not all(letter.isprintable() for letter in line):
        return "control character"
    for name, pattern in _DROPPED.items():
        if pattern.search(line):
            return name
    words = sum(is_word for _, is_word in _kernel.split(line))
    if words < how.fewest:
        return "too short"
    return "too long" if words > how.most else None
