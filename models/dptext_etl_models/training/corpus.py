"""Read public corpora as streams of texts, and hold some texts out for evaluation.

A corpus is public text that belongs to no one's release (docs/spec/privacy.md#public-parameters). The hash of a text
decides whether it is held out, so every command and every machine holds out the same texts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dptext_etl.artifacts import sha256_file
from dptext_etl.errors import InputError, PolicyError, seam

if TYPE_CHECKING:
    import pyarrow.parquet as pq

COLUMN = "text"
WORD = re.compile(r"\w+(?:'\w+)*")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
_MARKUP = re.compile(r"<br ?/?>|<unk>")
_JOINED = re.compile(r" @(.)@ ")  # WikiText writes "1 @,@ 000"
_HELD_OUT = 50


@dataclass(frozen=True)
class Corpus:
    """Name a Parquet file of public texts."""

    path: Path  # the file
    share: float = 1.0  # weight of this file in a training, relative to the weights of the other files
    column: str = COLUMN  # name of the column of texts

    @classmethod
    def parse(cls, given: str, column: str = COLUMN) -> Self:
        """Read "PATH" or "PATH=SHARE"."""
        path, separator, share = given.rpartition("=")
        if not separator:
            return cls(Path(given), column=column)
        try:
            number = float(share)
        except ValueError:
            number = 0.0
        if not 0.0 < number < float("inf"):
            raise PolicyError(f"{share!r} is no share of a corpus; allowed: PATH or PATH=SHARE, a number above 0")
        return cls(Path(path), number, column)

    @property
    def name(self) -> str:
        """Return the file's name without its suffix."""
        return self.path.stem

    @property
    def sha256(self) -> str:
        """Return the hash of the file."""
        return sha256_file(self.path)

    def __len__(self) -> int:
        return int(self._open().metadata.num_rows)

    def texts(self) -> Iterator[str]:
        """Yield the texts in the file's order without nulls, reading a few thousand rows at a time."""
        file = self._open()
        for batch in file.iter_batches(batch_size=4096, columns=[self.column]):
            for text in batch.column(0).to_pylist():
                if text is not None:
                    yield str(text)

    def _open(self) -> pq.ParquetFile:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self.path.is_file():
            raise InputError(f"there is no file {self.path}", "name a Parquet file of public texts")
        with seam("reading a public corpus", InputError, "a corpus is a Parquet file with a column of texts"):
            file = pq.ParquetFile(self.path)
            schema = file.schema_arrow
        if self.column not in schema.names:
            raise InputError(
                f"{self.path.name} has no column {self.column!r}; it has {len(schema.names)} others",
                "name the column of texts with --text",
            )
        kind = schema.field(self.column).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
            raise InputError(f"column {self.column!r} of {self.path.name} is {kind}; allowed: strings")
        return file


def held_out(text: str) -> bool:
    """Say whether a text is held out for evaluation: its hash holds out two texts in a hundred."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % _HELD_OUT == 0


def clean(text: str) -> str:
    """Remove HTML line breaks and the marks of WikiText, and replace the typographic apostrophe by the plain one."""
    return " ".join(_JOINED.sub(r"\1", _MARKUP.sub(" ", text.replace("\u2019", "'"))).split())


def sentences(text: str) -> list[str]:
    """Split a clean text after full stops, question and exclamation marks; the split is rough."""
    return [part for part in _SENTENCE_END.split(text) if part]


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, nearly as the kernel segments them; punctuation is dropped.

    >>> words("Don't go -- it's 1955!")
    ["don't", 'go', "it's", '1955']
    """
    return WORD.findall(text.lower())
