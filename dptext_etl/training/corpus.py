"""Public corpora as streams of texts: what trainings and calibrations read, and what they keep for the examination.

A corpus is public text that belongs to nobody's release (docs/spec/privacy.md#public-parameters). Which texts are held
out is decided by the text's own hash, so every command and every machine holds out the same ones.
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
    """One Parquet file of public texts.

    Attributes:
        path: The file.
        share: What part of a training it is, beside the shares of the other files.
        column: Which column holds the texts.
    """

    path: Path
    share: float = 1.0
    column: str = COLUMN

    @classmethod
    def parse(cls, given: str, column: str = COLUMN) -> Self:
        """Read "PATH" or "PATH=SHARE".

        Raises:
            PolicyError: The share is no positive number.
        """
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
        """The file's name without its suffix."""
        return self.path.stem

    @property
    def sha256(self) -> str:
        """The hash of the file."""
        return sha256_file(self.path)

    def __len__(self) -> int:
        return int(self._open().metadata.num_rows)

    def texts(self) -> Iterator[str]:
        """Yield the texts that are no nulls, in the file's order, reading a few thousand rows at a time.

        Raises:
            InputError: The file is no Parquet file, or has no such column of text.
        """
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
                f"{self.path.name} has no column {self.column!r}; it has {', '.join(schema.names)}",
                "name the column of texts with --column",
            )
        kind = schema.field(self.column).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
            raise InputError(f"column {self.column!r} of {self.path.name} is {kind}; allowed: strings")
        return file


def held_out(text: str) -> bool:
    """Say whether a text is kept for the examination: two in a hundred, by its own hash."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % _HELD_OUT == 0


def clean(text: str) -> str:
    """Drop what is no language: line breaks of HTML, WikiText's marks; the typographic apostrophe becomes the plain."""
    return " ".join(_JOINED.sub(r"\1", _MARKUP.sub(" ", text.replace("\u2019", "'"))).split())


def sentences(text: str) -> list[str]:
    """Split a clean text after full stops, question and exclamation marks; rough, and good enough to train on."""
    return [part for part in _SENTENCE_END.split(text) if part]


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, nearly as the kernel segments them; punctuation is dropped.

    >>> words("Don't go -- it's 1955!")
    ["don't", 'go', "it's", '1955']
    """
    return WORD.findall(text.lower())
