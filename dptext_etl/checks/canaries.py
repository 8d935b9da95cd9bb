"""Plant canary rows, which hold made-up raw text, and search cells and files for their words.

They belong to no subject. They are in the frame that a run reads, never in the user's file
(docs/spec/privacy.md#canary-rows). There are two kinds:

* Out-of-vocabulary rows hold pseudo-words outside every output set. One of them anywhere behind the mechanism is raw
  text.
* In-vocabulary rows hold words of the vocabulary, or one public text where whole texts are drawn from a corpus. How
  many of them survive has an exact distribution under the mechanism. They come as paired canaries: two records of a
  shard have different ids and equal texts. How often their releases agree has an exact distribution, too.

A canary row is a function of the secret and its id. So a resumed, repeated or incremental run plants the same rows, and
the ledger sees replays.

Words are searched as written, in other case, reversed, in base64 (at all three alignments), percent-encoded, in
hexadecimal and in UTF-16. In tables, every column is searched (nested, binary and categorical ones included), and texts
that are split over neighboring columns. In folders, file names are searched, too; in Parquet files also the footers,
whose statistics may hold values that no column shows any more.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import cache, lru_cache
from itertools import chain, pairwise, starmap
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import pyarrow.parquet as pq

from dptext_etl import _kernel
from dptext_etl._kernel import Secret
from dptext_etl.artifacts import canon
from dptext_etl.data_types import kind_of
from dptext_etl.errors import DPTextError, InputError, PolicyError, seam
from dptext_etl.families.words import by_text, by_word
from dptext_etl.keys import canonical_ids, id_type
from dptext_etl.policy import Policy

if TYPE_CHECKING:
    from dptext_etl.mechanism import Mechanism


CANARY = "__dptext_canary"
"""The column that marks canary rows inside the boundary; it is never published."""
OUT_OF_VOCABULARY_ROWS = 2
PAIRS = 3
IN_VOCABULARY_ROWS = 2 * PAIRS
WORDS = 24
"""Per shard: rows of the two kinds, and pairs of rows of equal text. Per row and column: words."""

Kind = Literal["out_of_vocabulary", "in_vocabulary"]
Taken = Callable[[pl.Series], pl.Series] | pl.Series

_BATCH = 64
_BATCHES = 256


@dataclass(frozen=True)
class CanaryRow:
    """Holds one synthetic record."""

    id: Any  # its id, as the id column holds it
    kind: Kind  # "out_of_vocabulary" or "in_vocabulary"
    texts: Mapping[str, str] = field(repr=False)  # its raw text, by text column
    # the words of that text as the mechanism looks them up, or the public text that it is, by text column
    words: Mapping[str, tuple[str, ...]] = field(repr=False)
    # number of an in-vocabulary row's text, from 0; all rows of a release with this number hold the same text
    pair: int | None = None


@dataclass(frozen=True)
class CanaryPlan:
    """Holds the canary rows of one shard."""

    shard: int  # serial number of the shard
    rows: tuple[CanaryRow, ...]  # first one row of every text, then, in the same order, a second one of each
    tokens: frozenset[str] = field(repr=False)  # the pseudo-words of every text column
    id_dtype: pl.DataType

    def ids(self, kind: Kind | None = None) -> pl.Series:
        return pl.Series([row.id for row in self.rows if kind in {None, row.kind}], dtype=self.id_dtype)


def plan(
    policy: Policy, secret: Secret, shard: int, id_dtype: pl.DataType, taken: Taken, *, partition: str | None = None
) -> CanaryPlan:
    """Plan the canary rows of a shard; the same arguments give the same plan in every process."""

    def draw(label: str, *place: Any) -> bytes:  # the labels of seeds are part of the stream
        return secret.derive("canary", canon([label, policy.dataset, policy.release, *place]))

    pseudo, in_vocabulary = policy_tokens(policy, secret), words_of(policy, secret)
    whole = {item.name for item in policy.columns if by_text(item.mechanism) is not None}
    pairs = range(PAIRS) if any(in_vocabulary.values()) else ()
    rows: dict[int | None, dict[str, CanaryRow]] = {pair: {} for pair in (*pairs, None)}  # by text, two of each
    for batch in range(_BATCHES):
        ids = ids_from([draw("id", partition, shard, batch * _BATCH + place) for place in range(_BATCH)], id_dtype)
        free = ~(ids.is_in(taken.implode()) if isinstance(taken, pl.Series) else taken(ids))
        for value, canonical, is_free in zip(ids, canonical_ids(ids.to_arrow()).to_pylist(), free, strict=True):
            # the number of the text that a row of this id always holds; None for an out-of-vocabulary row
            drawn = int.from_bytes(draw("kind", canonical)[:8], "little")
            drawn %= OUT_OF_VOCABULARY_ROWS + IN_VOCABULARY_ROWS
            pair = None if drawn < OUT_OF_VOCABULARY_ROWS else (drawn - OUT_OF_VOCABULARY_ROWS) % PAIRS
            if not is_free or pair not in rows or len(rows[pair]) == 2:
                continue
            words = {}
            for column, tokens in pseudo.items():
                known = () if pair is None else in_vocabulary[column]
                choices, count = known or tokens, 1 if known and column in whole else WORDS
                seed = draw("words", column, canonical) if pair is None else draw("twin", column, pair)
                number = int.from_bytes(seed, "little")
                words[column] = tuple(choices[number // len(choices) ** place % len(choices)] for place in range(count))
            texts = {column: " ".join(chosen) for column, chosen in words.items()}
            if pair is None:
                texts = {column: f"{text.capitalize()}." for column, text in texts.items()}
            kind: Kind = "out_of_vocabulary" if pair is None else "in_vocabulary"
            rows[pair][canonical] = CanaryRow(value, kind, texts, words, pair)
        if all(len(same) == 2 for same in rows.values()):
            # one row of every text is in front, so a generator that starts anew in a shard meets them in one order
            ordered = chain.from_iterable(zip(*(same.values() for same in rows.values()), strict=True))
            return CanaryPlan(shard, tuple(ordered), frozenset(chain.from_iterable(pseudo.values())), id_dtype)
    msg = f"no free record ids of type {kind_of(id_dtype)} are left for canary rows"
    raise InputError(msg, "cast the id column to a wider type")


def plant(frame: pl.DataFrame, planned: CanaryPlan, policy: Policy) -> pl.DataFrame:
    """Add the canary rows to a shard in memory: half of them in front, the others behind."""
    names = [item.name for item in policy.columns]
    if missing := [name for name in (policy.id, *names) if name not in frame.columns]:
        raise InputError(f"columns are missing: {', '.join(missing)}", "the policy names them")
    if CANARY in frame.columns:
        raise InputError(f"the column {CANARY} is ours", "rename it in the source")
    half = len(planned.rows) // 2
    parts = [frame]
    with seam("adding canary rows"):
        for rows, place in ((planned.rows[:half], 0), (planned.rows[half:], 2)):
            cells = {policy.id: pl.Series([row.id for row in rows], dtype=planned.id_dtype)}
            cells |= {name: pl.Series([row.texts[name] for row in rows], dtype=pl.String) for name in names}
            nothing = [None] * len(rows)
            columns = [
                cells[name].cast(dtype).alias(name) if name in cells else pl.Series(name, nothing, dtype=dtype)
                for name, dtype in frame.schema.items()
            ]
            parts.insert(place, pl.DataFrame(columns))
        return pl.concat(
            [rows.hstack([pl.Series(CANARY, [rows is not frame]).new_from_index(0, rows.height)]) for rows in parts]
        )


def words_of(policy: Policy, secret: Secret) -> dict[str, tuple[str, ...]]:
    """Choose the words of in-vocabulary canary rows, by text column; in one process it is done once."""
    return {
        item.name: in_vocabulary_words(column.mechanism, secret, policy.dataset, policy.release, item.name)
        for item, column in zip(policy.columns, policy.column_policies(), strict=True)
    }


_LAST_DAY = date.max.toordinal()
_MICROSECONDS = 2**62 // 1_000
"""Largest timestamp: nanoseconds can still hold it."""


def ids_from(seeds: Sequence[bytes], dtype: pl.DataType) -> pl.Series:
    """Make one id of type `dtype` from each seed of 32 bytes; equal seeds give equal ids."""
    with seam(f"making canary ids of type {kind_of(dtype)}"):
        if isinstance(dtype, pl.Enum):
            raise InputError(
                "an Enum cannot hold canary ids, because its values are fixed", "cast the id column to String"
            )
        id_type(pl.Series([], dtype=dtype).to_arrow().type)
        if isinstance(dtype, pl.Datetime):
            instants = pl.Series([int.from_bytes(seed, "little") % _MICROSECONDS for seed in seeds], dtype=pl.Int64)
            per_unit = {"ms": instants // 1_000, "us": instants, "ns": instants * 1_000}
            return per_unit[dtype.time_unit].cast(dtype)
        return pl.Series([_id_value(seed, dtype) for seed in seeds], dtype=dtype)


def _id_value(seed: bytes, dtype: pl.DataType) -> Any:
    number = int.from_bytes(seed, "little")
    if isinstance(dtype, (pl.String, pl.Categorical)):
        return str(uuid.UUID(bytes=seed[:16], version=4))
    if isinstance(dtype, pl.Binary):
        return seed[:16]
    if isinstance(dtype, pl.Date):
        return date.fromordinal(1 + number % _LAST_DAY)
    if isinstance(dtype, pl.Decimal):
        return Decimal(f"{number % 10**dtype.precision}e-{dtype.scale}")
    if isinstance(dtype, pl.Struct):
        seeds = {field: hashlib.sha256(seed + field.name.encode()).digest() for field in dtype.fields}
        return {field.name: ids_from([own], field.dtype).item() for field, own in seeds.items()}  # type: ignore[arg-type]
    low, high = _range(dtype)
    return low + number % (high - low + 1)


@cache
def _range(dtype: pl.DataType) -> tuple[int, int]:
    return pl.select(low=dtype.min(), high=dtype.max()).row(0)  # type: ignore[attr-defined]


TOKENS = 8
TOKEN_LETTERS = 20
VOCABULARY_WORDS = 64
"""Per column: distinct pseudo-words, the letters of each, and distinct vocabulary words."""


def pseudo_words(secret: Secret, dataset: str, release: str, column: str) -> tuple[str, ...]:
    seeds = (secret.derive("canary", canon(["token", dataset, release, column, place])) for place in range(TOKENS))
    numbers = (int.from_bytes(seed, "little") for seed in seeds)
    return tuple("".join(ascii_lowercase[number // 26**at % 26] for at in range(TOKEN_LETTERS)) for number in numbers)


def policy_tokens(policy: Policy, secret: Secret) -> dict[str, tuple[str, ...]]:
    return {item.name: pseudo_words(secret, policy.dataset, policy.release, item.name) for item in policy.columns}


@lru_cache(maxsize=64)
def in_vocabulary_words(
    mechanism: Mechanism, secret: Secret, dataset: str, release: str, column: str
) -> tuple[str, ...]:
    """Choose words of the mechanism's vocabulary that it can change, or public texts of its corpus."""
    replacing, choice = by_word(mechanism), by_text(mechanism)
    inputs = () if replacing is None else replacing.input_words()
    if choice is not None:
        inputs = choice.opened.texts
    everything = "\n".join(chain(inputs, mechanism.output_words() or ()))
    if any(token in everything for token in pseudo_words(secret, dataset, release, column)):
        raise PolicyError(f"column {column!r}: a canary word is one of the mechanism's", "release under another name")
    if choice is not None and choice.most_positions > 1:
        return ()
    tries, choices = VOCABULARY_WORDS, list(inputs)
    if replacing is not None:
        tries, choices = 4 * tries, sorted(word for word in inputs if word.isalpha() and word == word.lower())
    chosen: dict[str, None] = {}
    for place in range(tries if choices else 0):
        seed = secret.derive("canary", canon(["native", dataset, release, column, place]))
        word = choices[int.from_bytes(seed, "little") % len(choices)]
        with suppress(PolicyError):  # a word whose survival has no bound is not chosen
            if word not in chosen and (replacing is None or replacing.survival(word) < 1):
                chosen[word] = None
        if len(chosen) == VOCABULARY_WORDS:
            break
    return tuple(chosen)


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
            if isinstance(anything, pl.DataFrame):
                found = self._in_frame(anything)
            elif isinstance(anything, Path):
                found = self._in_path(anything)
            else:
                content = anything.encode("utf-8", "surrogatepass") if isinstance(anything, str) else anything
                found = iter([self._patterns.occurrences(content, 0)])
            for counts in found:
                for form, count in zip(FORMS, counts, strict=True):
                    hits[form] += count
        return hits

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
                size = file.seek(-8, 2)
                footer = min(size, int.from_bytes(file.read(4), "little"))
                file.seek(size - footer)
                yield self._patterns.occurrences(file.read(footer), 0)
            else:
                tail = b""
                with gzip.open(file) if head[:2] == b"\x1f\x8b" else nullcontext(file) as stream:
                    while chunk := stream.read(_CHUNK):
                        window = tail + chunk
                        yield self._patterns.occurrences(window, len(tail))  # those that end after the searched part
                        tail = window[-(self._longest - 1) :]
                return
        with pq.ParquetFile(path) as table:
            for batch in table.iter_batches(batch_size=_ROWS):
                frame = pl.from_arrow(batch)
                if isinstance(frame, pl.DataFrame):
                    yield from self._in_frame(frame)

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
                for shift in range(3):  # the letters that only `written` decides, at each of the three alignments
                    encoded = base64.b64encode(bytes(shift) + written)
                    yield encoded[-(-shift * 8 // 6) : (shift + len(written)) * 8 // 6]
            elif form == "hex":
                yield written.hex().encode()
            else:
                yield "".join(f"%{byte:02x}" for byte in written).encode()


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


SETS, SET_ROWS = 10, 500
"""A run has a set of canary rows for every such number of rows, up to a maximum number of sets."""

Present = Callable[[pl.Series], pl.Series]
"""Takes candidate ids, of the type of the source, and returns those that the source uses."""


def canary_sets(first: int, rows: int, least: int) -> range:
    """Number the sets of canary rows of a run, only by its rows; `least` are the shards that short texts would fill.

    >>> canary_sets(0, 60, 1), canary_sets(0, 2_000, 1), canary_sets(3, 10_000_000, 100)
    (range(0, 1), range(0, 4), range(3, 103))
    """
    return range(first, first + max(min(SETS, -(-rows // SET_ROWS)), least)) if rows else range(first, first)


def by_shard(plans: Sequence[CanaryPlan], shards: range) -> dict[int, list[CanaryPlan]]:
    sets: dict[int, list[CanaryPlan]] = {number: [] for number in shards}
    for at, plan in enumerate(plans):
        sets[shards[at * len(shards) // len(plans)]].append(plan)
    return sets


def plan_canaries(  # noqa: PLR0917
    policy: Policy, dtype: pl.DataType, present: Present, secret: Secret, sets: range, partition: str | None
) -> list[CanaryPlan]:
    """Plan all canary rows with one look at the ids of the source; look again if a candidate is in use."""
    in_use: dict[str, bool] = {}
    while True:
        queries: list[pl.Series] = []

        def taken(candidates: pl.Series, queries: list[pl.Series] = queries) -> pl.Series:
            names = _names(candidates)
            unknown = pl.Series([name not in in_use for name in names], dtype=pl.Boolean)
            if unknown.any():
                queries.append(candidates.filter(unknown))
            return pl.Series([in_use.get(name, False) for name in names], dtype=pl.Boolean)

        plans = [plan(policy, secret, shard, dtype, taken, partition=partition) for shard in sets]
        if not queries:
            return plans
        candidates = pl.concat([item.rename(policy.id) for item in queries])
        used = set(_names(present(candidates)))
        in_use.update({name: name in used for name in _names(candidates)})
        if not used:
            return plans


def prepare(policy: Policy, secret: Secret) -> None:
    """Find the words of canary rows, so that planning them later need not; an error shows itself then."""
    with suppress(DPTextError):
        words_of(policy, secret)


def plans_as_dicts(plans: Sequence[CanaryPlan]) -> list[dict[str, Any]]:
    """Return plans as JSON holds them: their shards and ids, because the words follow from the secret again."""
    return [{"shard": plan.shard, "ids": _names(plan.ids())} for plan in plans]


def plans_of(
    written: Sequence[Mapping[str, Any]], policy: Policy, partition: str | None, dtype: pl.DataType
) -> tuple[CanaryPlan, ...]:
    """Plan canary rows again from the output of `plans_as_dicts`: every other candidate counts as in use."""
    secret, plans = policy.column_policies()[0].secret, []
    for item in written:

        def taken(candidates: pl.Series, ids: frozenset[str] = frozenset(item["ids"])) -> pl.Series:
            return pl.Series([name not in ids for name in _names(candidates)], dtype=pl.Boolean)

        plans.append(plan(policy, secret, item["shard"], dtype, taken, partition=partition))
    return tuple(plans)


def _names(ids: pl.Series) -> list[str]:
    names: list[str] = canonical_ids(ids.to_arrow()).to_pylist()
    return names
