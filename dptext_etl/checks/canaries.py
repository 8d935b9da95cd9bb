"""Plant canary rows: synthetic records that carry raw text everywhere real text flows, so that a leak shows itself.

They belong to no subject. They stand in the frame that a run reads, never in the user's file
(docs/spec/privacy.md#canary-rows). There are two kinds:

* Out-of-vocabulary rows hold pseudo-words outside every output set. One of them anywhere behind the mechanism is raw
  text.
* In-vocabulary rows hold words of the vocabulary, or one public text where whole texts are drawn from a corpus. How
  many of them survive has an exact distribution under the mechanism. They come as paired canaries: two records of a
  shard have different ids and equal texts. How often their releases agree has an exact distribution, too.

A canary row is a function of the secret and its id. So a resumed, repeated or incremental run plants the same rows, and
the ledger sees replays.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from dptext_etl.artifacts import canon
from dptext_etl.data_types import kind_of
from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.families.by_word import WordByWord, by_word
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.keys import canonical_ids, id_type

if TYPE_CHECKING:
    from dptext_etl._kernel import Secret
    from dptext_etl.mechanism import Mechanism
    from dptext_etl.policy import Policy


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
    planner = _Planner(policy, secret)
    pairs = range(PAIRS) if any(planner.in_vocabulary.values()) else ()
    wanted: dict[int | None, int] = {**dict.fromkeys(pairs, 2), None: OUT_OF_VOCABULARY_ROWS}
    rows: dict[str, CanaryRow] = {}
    for batch in range(_BATCHES):
        ids = ids_from(planner.seeds(partition, shard, batch), id_dtype)
        free = ~(ids.is_in(taken.implode()) if isinstance(taken, pl.Series) else taken(ids))
        for value, canonical, is_free in zip(ids, canonical_ids(ids.to_arrow()).to_pylist(), free, strict=True):
            pair = planner.pair(canonical)
            if is_free and wanted.get(pair) and canonical not in rows:
                wanted[pair] -= 1
                rows[canonical] = planner.row(value, canonical, pair)
        if not any(wanted.values()):
            return CanaryPlan(shard, _in_order(rows.values(), list(wanted)), planner.tokens, id_dtype)
    msg = f"no free record ids of type {kind_of(id_dtype)} are left for canary rows"
    raise InputError(msg, "cast the id column to a wider type")


def plant(frame: pl.DataFrame, planned: CanaryPlan, policy: Policy) -> pl.DataFrame:
    """Add the canary rows to a shard in memory: half of them in front, the others behind."""
    names = [item.name for item in policy.columns]
    missing = [name for name in (policy.id, *names) if name not in frame.columns]
    if missing:
        raise InputError(f"columns are missing: {', '.join(missing)}", "the policy names them")
    if CANARY in frame.columns:
        raise InputError(f"the column {CANARY} is ours", "rename it in the source")
    half = len(planned.rows) // 2
    with seam("adding canary rows"):
        front, behind = (_rows(rows, planned, policy, frame) for rows in (planned.rows[:half], planned.rows[half:]))
        return pl.concat([_marked(front, canary=True), _marked(frame, canary=False), _marked(behind, canary=True)])


def words_of(policy: Policy, secret: Secret) -> dict[str, tuple[str, ...]]:
    """Choose the words of in-vocabulary canary rows, by text column; in one process it is done once."""
    columns = zip(policy.columns, policy.column_policies(), strict=True)
    return {
        item.name: in_vocabulary_words(column.mechanism, secret, policy.dataset, policy.release, item.name)
        for item, column in columns
    }


def _in_order(rows: Iterable[CanaryRow], pairs: list[int | None]) -> tuple[CanaryRow, ...]:
    """Put one row of every text in front, so that a generator that starts anew in a shard meets them in one order."""
    by_pair = {pair: [row for row in rows if row.pair == pair] for pair in pairs}
    return tuple(by_pair[pair][half] for half in range(2) for pair in pairs)


class _Planner:
    """Makes canary rows from ids; the labels of its seeds ("kind", "words", "twin") are part of the stream."""

    def __init__(self, policy: Policy, secret: Secret) -> None:
        self._policy = policy
        self._secret = secret
        self.pseudo = policy_tokens(policy, secret)
        self.tokens = frozenset(token for tokens in self.pseudo.values() for token in tokens)
        self.in_vocabulary = words_of(policy, secret)
        self._whole = {item.name for item in policy.columns if isinstance(item.mechanism, ChoiceMechanism)}

    def draw(self, *what: Any) -> bytes:
        return self._secret.derive("canary", canon([what[0], self._policy.dataset, self._policy.release, *what[1:]]))

    def seeds(self, partition: str | None, shard: int, batch: int) -> list[bytes]:
        return [self.draw("id", partition, shard, batch * _BATCH + place) for place in range(_BATCH)]

    def pair(self, canonical: str) -> int | None:
        """Return the number of the text that a row of this id always holds; None for an out-of-vocabulary row."""
        drawn = int.from_bytes(self.draw("kind", canonical)[:8], "little")
        drawn %= OUT_OF_VOCABULARY_ROWS + IN_VOCABULARY_ROWS
        return None if drawn < OUT_OF_VOCABULARY_ROWS else (drawn - OUT_OF_VOCABULARY_ROWS) % PAIRS

    def row(self, value: Any, canonical: str, pair: int | None) -> CanaryRow:
        words = {}
        for column, pseudo in self.pseudo.items():
            choices = pseudo if pair is None else self.in_vocabulary[column] or pseudo
            seed = self.draw("words", column, canonical) if pair is None else self.draw("twin", column, pair)
            number = int.from_bytes(seed, "little")
            places = range(1 if pair is not None and column in self._whole and self.in_vocabulary[column] else WORDS)
            words[column] = tuple(choices[number // len(choices) ** place % len(choices)] for place in places)
        texts = {column: " ".join(chosen) for column, chosen in words.items()}
        if pair is None:
            texts = {column: f"{text.capitalize()}." for column, text in texts.items()}
        return CanaryRow(value, "out_of_vocabulary" if pair is None else "in_vocabulary", texts, words, pair)


def _rows(rows: tuple[CanaryRow, ...], planned: CanaryPlan, policy: Policy, frame: pl.DataFrame) -> pl.DataFrame:
    """Make rows that hold ids and texts alone."""
    cells = {policy.id: pl.Series([row.id for row in rows], dtype=planned.id_dtype)}
    cells |= {item.name: pl.Series([row.texts[item.name] for row in rows], dtype=pl.String) for item in policy.columns}
    return pl.DataFrame(
        [
            cells[name].cast(dtype).alias(name) if name in cells else pl.Series(name, [None] * len(rows), dtype=dtype)
            for name, dtype in frame.schema.items()
        ]
    )


def _marked(rows: pl.DataFrame, *, canary: bool) -> pl.DataFrame:
    return pl.DataFrame(
        [*rows.get_columns(), pl.Series(CANARY, [canary], dtype=pl.Boolean).new_from_index(0, rows.height)]
    )


_LAST_DAY = date.max.toordinal()
_MICROSECONDS = 2**62 // 1_000
"""Largest timestamp: nanoseconds can still hold it."""


def ids_from(seeds: Sequence[bytes], dtype: pl.DataType) -> pl.Series:
    """Make one id of type `dtype` from each seed of 32 bytes; equal seeds give equal ids."""
    with seam(f"making canary ids of type {kind_of(dtype)}"):
        if isinstance(dtype, pl.Enum):
            raise InputError(
                "an Enum takes no canary ids, because its values are fixed", "cast the id column to String"
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
    low, high = pl.select(low=dtype.min(), high=dtype.max()).row(0)  # type: ignore[attr-defined]
    return low + number % (high - low + 1)


TOKENS = 8
TOKEN_LETTERS = 20
VOCABULARY_WORDS = 64
"""Per column: distinct pseudo-words, the letters of each, and distinct vocabulary words."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def pseudo_words(secret: Secret, dataset: str, release: str, column: str) -> tuple[str, ...]:
    seeds = (secret.derive("canary", canon(["token", dataset, release, column, place])) for place in range(TOKENS))
    return tuple(map(_word, seeds))


def policy_tokens(policy: Policy, secret: Secret) -> dict[str, tuple[str, ...]]:
    return {item.name: pseudo_words(secret, policy.dataset, policy.release, item.name) for item in policy.columns}


@lru_cache(maxsize=64)
def in_vocabulary_words(
    mechanism: Mechanism, secret: Secret, dataset: str, release: str, column: str
) -> tuple[str, ...]:
    """Choose words of the mechanism's vocabulary that it can change, or public texts of its corpus."""
    replacing = by_word(mechanism)
    inputs = () if replacing is None else replacing.input_words()
    if isinstance(mechanism, ChoiceMechanism):
        inputs = mechanism.opened.texts
    long = [word for word in chain(inputs, mechanism.output_words() or ()) if len(word) >= TOKEN_LETTERS]
    tokens = pseudo_words(secret, dataset, release, column)
    if any(token in word for word in long for token in tokens):
        raise PolicyError(f"column {column!r}: a canary word is one of the mechanism's", "release under another name")
    if isinstance(mechanism, ChoiceMechanism) and mechanism.most_positions > 1:
        return ()
    tries, choices = VOCABULARY_WORDS, list(inputs)
    if replacing is not None:
        tries, choices = 4 * tries, sorted(word for word in inputs if word.isalpha() and word == word.lower())
    chosen: dict[str, None] = {}
    for place in range(tries if choices else 0):
        seed = secret.derive("canary", canon(["native", dataset, release, column, place]))
        word = choices[int.from_bytes(seed, "little") % len(choices)]
        if word not in chosen and (replacing is None or _can_change(replacing, word)):
            chosen[word] = None
        if len(chosen) == VOCABULARY_WORDS:
            break
    return tuple(chosen)


def _can_change(mechanism: WordByWord, word: str) -> bool:
    try:
        return mechanism.survival(word) < 1
    except PolicyError:
        return False


def _word(seed: bytes) -> str:
    number = int.from_bytes(seed, "little")
    return "".join(_LETTERS[number // len(_LETTERS) ** place % len(_LETTERS)] for place in range(TOKEN_LETTERS))
