"""Read public corpora, hold some of their texts out for evaluation, and draw the batches of trainings.

A corpus is public text that belongs to no one's release (docs/spec/privacy.md#public-parameters). The hash of a text
decides whether it is held out, so every command and every machine holds out the same texts. A batch depends on the seed
and the step only, so a resumed training sees the same batches as one that was never stopped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from dptext_etl.artifacts import sha256_file
from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.files import literal

if TYPE_CHECKING:
    import pyarrow.parquet as pq

COLUMN = "text"
NOTHING = -100
"""Label of a position that the loss does not count."""
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
            raise PolicyError(
                f"{share!r} is not a share of a corpus; allowed: PATH or PATH=SHARE, a number above 0",
                "write a share such as reviews.parquet=0.5",
            )
        return cls(Path(path), number, column)

    @property
    def name(self) -> str:
        """Return the file's name without its suffix."""
        return self.path.stem

    @property
    def sha256(self) -> str:
        """Return the hash of the file."""
        return sha256_file(self.path)

    @property
    def facts(self) -> dict[str, str]:
        """Return the corpus facts of a trained model's provenance."""
        return {"name": self.name, "sha256": self.sha256, "share": repr(self.share)}

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
            raise InputError(
                f"column {self.column!r} of {self.path.name} is {kind}; allowed: strings",
                "name a text column, or cast this one to strings",
            )
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


Rows = npt.NDArray[np.int32]

_CHUNK = 20_000


def token_rows(read: Callable[[Sequence[str]], npt.NDArray[np.integer]], texts: Sequence[str], length: int) -> Rows:
    """Encode texts, some thousands at a time."""
    chunks = (texts[start : start + _CHUNK] for start in range(0, len(texts), _CHUNK))
    rows = [np.asarray(read(chunk), dtype=np.int32) for chunk in chunks]
    return np.concatenate(rows) if rows else np.zeros((0, length), dtype=np.int32)


def public_texts(corpora: Sequence[Corpus], words: int, count: int, seed: int) -> list[str]:
    """Draw short texts from corpora by their shares; leave out texts that are held out for evaluation."""
    total = sum(corpus.share for corpus in corpora)
    good_texts: list[str] = []
    for number, corpus in enumerate(corpora):
        texts = [text for text in corpus.texts() if not held_out(text)]
        good_texts += short_texts(texts, words, round(count * corpus.share / total), seed + number)
    if not good_texts:
        raise InputError("the corpora hold no text to train on", "name Parquet files of public texts")
    return good_texts


def draw_texts(
    given: Sequence[str], column: str, words: int, count: int, seed: int
) -> tuple[list[str], dict[str, list[dict[str, str]]]]:
    """Draw short texts from corpora "PATH" or "PATH=SHARE"; return them, and facts for the model's provenance."""
    corpora = [Corpus.parse(item, column) for item in given]
    return public_texts(corpora, words, count, seed), {"corpora": [corpus.facts for corpus in corpora]}


def short_texts(texts: Sequence[str], words: int, count: int, seed: int) -> list[str]:
    """Draw short public texts: a whole text if it is short, otherwise one of its sentences or some words in a row."""
    if not texts:
        return []
    draw = np.random.default_rng(seed)
    sizes = np.array([len(text) + 1 for text in texts], dtype=np.float64)
    chosen = draw.choice(len(texts), size=count, p=sizes / sizes.sum())
    shortened = (_short(texts[at], words, draw) for at in chosen.tolist())
    shortened = (bare(text) if number % 2 else text for number, text in enumerate(shortened))
    return [text for text in shortened if text]


def bare(text: str) -> str:
    """Replace every character that is neither letter nor digit by a blank, and join adjacent blanks."""
    return " ".join("".join(character if character.isalnum() else " " for character in text).split())


def batch(rows: Rows, size: int, seed: int, step: int) -> Rows:
    """Draw the rows of a step with replacement."""
    draw = np.random.default_rng((seed, step))
    return rows[draw.integers(0, len(rows), size=size)]


def stacked(rows: Sequence[Sequence[int]], padding: int) -> npt.NDArray[np.int64]:
    """Stack rows of different lengths, padded on the right to the longest, shape (rows, longest)."""
    filled = np.full((len(rows), max(map(len, rows))), padding, np.int64)
    for place, row in enumerate(rows):
        filled[place, : len(row)] = row
    return filled


def random_rows(shape: tuple[int, int], ids: range, marks: tuple[int, int], draw: np.random.Generator) -> Rows:
    """Draw rows of uniform ids and uniform lengths; they teach the model to copy tokens that it never saw."""
    count, length = shape
    rows = draw.integers(ids.start, ids.stop, size=shape, dtype=np.int32)
    ends = draw.integers(1, length, size=(count, 1))
    place = np.arange(length)[None, :]
    filled: Rows = np.where(place < ends, rows, np.where(place == ends, *marks)).astype(np.int32)
    return filled


def _short(text: str, words: int, draw: np.random.Generator) -> str:
    split = text.split()
    if len(split) > words:
        parts = sentences(clean(text)) or [text]
        split = parts[int(draw.integers(len(parts)))].split()
    if len(split) > words:
        size = int(draw.integers(min(3, words), words + 1))
        start = int(draw.integers(len(split) - size + 1))
        split = split[start : start + size]
    return " ".join(split)


Pair = tuple[str, str]


@dataclass(frozen=True)
class SentencePairs:
    """Hold the pairs of a file: those to train on, and those held out."""

    train: tuple[Pair, ...]  # pairs of a text and its paraphrase
    held: tuple[Pair, ...]  # held-out pairs: the text's hash holds out two pairs in a hundred
    name: str  # name of the file
    sha256: str  # hash of its bytes

    @classmethod
    def read(cls, path: Path, columns: tuple[str, str] = ("text", "paraphrase")) -> Self:
        """Read a Parquet, CSV, TSV or NDJSON file; leave out rows with a null or an empty text."""
        import polars as pl

        readers: dict[str, Callable[[str], pl.LazyFrame]] = {
            ".parquet": pl.scan_parquet,
            ".csv": pl.scan_csv,
            ".tsv": lambda file: pl.scan_csv(file, separator="\t"),
            ".jsonl": pl.scan_ndjson,
            ".ndjson": pl.scan_ndjson,
        }
        if not path.is_file() or path.suffix not in readers:
            kinds = ", ".join(readers)
            raise InputError(
                f"there is no file {path} that ends in {kinds}", "name a file of public pairs of sentences"
            )
        with seam("reading the pairs", InputError, "it is a table with a column of texts and one of paraphrases"):
            table = readers[path.suffix](literal(path))
            names = table.collect_schema().names()
        missing = [column for column in columns if column not in names]
        if missing:
            raise InputError(
                f"{path.name} has no column {missing[0]!r}; it has {len(names)} others",
                "name the columns with --text and --paraphrase",
            )
        with seam("reading the pairs", InputError, "both columns hold strings"):
            first, other = (pl.col(column).cast(pl.String).str.strip_chars() for column in columns)
            rows = table.select(first.alias("first"), other.alias("other")).drop_nulls()
            pairs: list[Pair] = rows.filter((pl.col("first") != "") & (pl.col("other") != "")).collect().rows()
        kept: tuple[list[Pair], list[Pair]] = ([], [])
        for pair in pairs:
            kept[held_out(pair[0])].append(pair)
        if not kept[False]:
            raise InputError(f"{path.name} has no pairs to train on", "name a file of public pairs of sentences")
        return cls(tuple(kept[False]), tuple(kept[True]), path.name, sha256_file(path))
