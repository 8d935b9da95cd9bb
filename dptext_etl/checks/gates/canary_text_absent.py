"""Gate `canary_text_absent` requires that no word of an out-of-vocabulary canary is in the release, in any writing.

Words are searched as written, in other case, reversed, in base64 (at all three alignments), percent-encoded, in
hexadecimal and in UTF-16. In tables, every column is searched (nested, binary and categorical ones included), and texts
that are split over neighboring columns. In folders, file names are searched, too; in Parquet files also the footers,
whose statistics may hold values that no column shows any more.
"""

from __future__ import annotations

import base64
import gzip
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, starmap
from pathlib import Path
from typing import IO, Self

import polars as pl
import pyarrow.parquet as pq

from dptext_etl import _kernel
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.candidate import Candidate, Stage, canary_rows, other_rows
from dptext_etl.checks.chance import FALSE_ALARM
from dptext_etl.checks.gate import Gate, Verdict
from dptext_etl.errors import InputError, counted, seam
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.guarantee import Disclosure
from dptext_etl.mechanism import Mechanism
from dptext_etl.policy import Policy


class CanaryTextAbsent(Gate):
    """Searches every cell and file for pseudo-words.

    A faithful mechanism keeps unknown words in clear, these included. In its own column they prove nothing, so they are
    searched everywhere else only. A mechanism that spells texts from pieces of words, or decodes them, may copy a
    canary's words by chance. Where that chance has no small bound, they prove nothing in canary rows of its column;
    they are searched in all other rows and everywhere else. A rewriter reads what was released, where they do not
    stand: so it writes one only by the chance that its own bound states.
    """

    catches = (
        "Raw text that got past the mechanism: unknown words or failed records passed through, a raw column that was "
        "renamed, copied, concatenated, reversed, split or encoded into another, text in a manifest, a log or a file's "
        "statistics."
    )
    stages = frozenset(Stage)
    seen = ("_hits", "_rows")
    order = 30
    needs_markers = False
    rewritten = True

    def __init__(self, policy: Policy, tokens: Mapping[str, Iterable[str]], planted: int = 0) -> None:
        super().__init__(policy)
        self._tokens = {column: frozenset(words) for column, words in tokens.items()}
        self._spelled, self._spelled_again, self._in_clear = {}, {}, {}
        for item in policy.column_policies():
            name, chance = item.column or "", chance_of_foreign_words(item.mechanism)
            if Disclosure.OOV in item.mechanism.guarantee.disclosures and item.mechanism.mode != "strict":
                self._in_clear[name] = self._all_but(name)
            searched = planted * len(self._tokens.get(name, ()))
            if chance * searched > FALSE_ALARM:
                self._spelled[name] = self._all_but(name)
            if (chance + sum(step.foreign_word_chance() for step in item.postprocess)) * searched > FALSE_ALARM:
                self._spelled_again[name] = self._all_but(name)
        self._everything = Searcher(word for words in self._tokens.values() for word in words)
        self._hits = Counter(dict.fromkeys(FORMS, 0))
        self._rows = 0

    @classmethod
    def over(cls, candidate: Candidate) -> Sequence[Self]:
        planted = sum(len(plan.ids("out_of_vocabulary")) for plan in candidate.canaries)
        return (cls(candidate.policy, candidate.pseudo_words(), planted),)

    def _all_but(self, column: str) -> Searcher:
        return Searcher(word for other, words in self._tokens.items() if other != column for word in words)

    def feed(self, batch: pl.DataFrame) -> None:
        self._rows += batch.height
        self._look(batch, self._spelled)

    def feed_rewritten(self, batch: pl.DataFrame) -> None:
        """Search a batch of rows after post-processing, and what is kept next to it as what it is: released."""
        self._rows += batch.height
        kept = {str(item.intermediate): item.name for item in self.policy.columns if item.intermediate in batch.columns}
        self._look(batch.drop(kept), self._spelled_again)
        if kept:
            marks = [name for name in (CANARY,) if name in batch.columns]
            self._look(batch.select(*kept, *marks).rename(kept), self._spelled)

    def _look(self, batch: pl.DataFrame, spelled_by: Mapping[str, Searcher]) -> None:
        clear = [name for name in self._in_clear if name in batch.columns]
        spelled = [name for name in spelled_by if name in batch.columns and CANARY in batch.columns]
        others = [name for name in batch.columns if name not in {*clear, *spelled}]
        self._hits.update(self._everything.find(batch[others]))
        for name in clear:
            self._hits.update(self._in_clear[name].find(batch[[name]]))
        for name in spelled:
            self._hits.update(spelled_by[name].find(canary_rows(batch)[[name]]))
            self._hits.update(self._everything.find(other_rows(batch)[[name]]))

    def search(self, artefact: Path | bytes) -> None:
        self._hits.update(self._everything.find(artefact))

    def verdict(self) -> Verdict:
        total = sum(self._hits.values())
        counts = {"rows": self._rows, "words": sum(map(len, self._tokens.values())), "hits": total, **self._hits}
        if total:
            message = "canary words survived: "
            message += ", ".join(f"{count} {form}" for form, count in self._hits.items() if count)
        else:
            message = f"none of {counts['words']} canary words survived"
        if self._in_clear:
            keeping = counted(len(self._in_clear), "column keeps", "columns keep")
            message += f"; not searched for the unknown words that {keeping} in clear"
        if self._spelled_again:
            message += (
                f"; {counted(len(self._spelled_again), 'column')} may spell them by "
                "chance: their canary rows prove nothing"
            )
        return self.outcome(counts, message, passed=not total and counts["words"] > 0)


def chance_of_foreign_words(mechanism: Mechanism) -> float:
    """Bound the probability that a release holds one given out-of-vocabulary word of 20 letters; 1 means no bound.

    It is 0 if outputs are words of a fixed set, or public texts. A mechanism that spells texts from pieces of words, or
    decodes them, may copy such a word from its input by chance.
    """
    fixed = mechanism.guarantee.unit == "word" or isinstance(mechanism, ChoiceMechanism)
    return 0.0 if fixed or mechanism.output_words() is not None else 1.0


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
