"""Add up what records contribute, in exact integers: partial sums of any partitions add, in any order.

Sums, digests and keys are private: they stay inside the boundary. Specification: docs/spec/synthetic.md#contribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_numpy
from dptext_etl.corpora.encoder import Int8s, Integers
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.families.aggregate.statistic import OTHER, Statistic

_ROWS = 8192
_DIGEST = 32
_MODULUS = 2 ** (8 * _DIGEST)


@dataclass(frozen=True, eq=False, repr=False)
class Partial:
    """Sums over some records, and the digest of these records; `a + b` is that of both.

    Attributes:
        sums: int64, shape `Statistic.shape`. It holds as long as n * C is below 2^62.
        digest: Keyed digest of all rows, 32 bytes: who counts, with which text and label.
    """

    sums: Integers
    digest: bytes

    @classmethod
    def zero(cls, statistic: Statistic) -> Self:
        """Return the sums over no records."""
        return cls(np.zeros(statistic.shape, np.int64), bytes(_DIGEST))

    def __add__(self, other: Partial) -> Partial:
        if self.sums.shape != other.sums.shape:
            raise InputError("partial sums of different statistics do not add up")
        return Partial(self.sums + other.sums, added(self.digest, other.digest))

    def packed(self) -> bytes:
        """Return the digest and the sums as bytes, to travel between processes inside the boundary."""
        return self.digest + self.sums.astype("<i8").tobytes()

    @classmethod
    def unpacked(cls, statistic: Statistic, data: bytes) -> Self:
        """Return what `packed` wrote."""
        sums = np.frombuffer(data[_DIGEST:], "<i8").astype(np.int64)
        return cls(sums.reshape(statistic.shape), data[:_DIGEST])


def added(*digests: bytes) -> bytes:
    """Add digests of disjoint records modulo 2^256, in any order: the digest of all of these records, 32 bytes."""
    total = sum(int.from_bytes(one, "little") for one in digests)
    return int.to_bytes(total % _MODULUS, _DIGEST, "little")


@bare
def partial_sum(
    statistic: Statistic, release_key: _kernel.ReleaseKey, ids: pa.Array, texts: pa.Array, labels: pa.Array | None
) -> Partial:
    """Return the sums over the records that count.

    Args:
        statistic: From `describe`.
        release_key: Key of the release under `statistic.cfg()`.
        ids: Record ids, one per record, each once in the whole table.
        texts: Strings; a null adds nothing to the sums.
        labels: Strings; null or unlisted ones count as "other". None for a statistic without labels.

    Raises:
        InputError: Columns of another type or length, null ids, or labels where the statistic has none.
    """
    if (labels is None) != (not statistic.labels):
        raise InputError("labels are given exactly if the statistic lists labels", "list the labels in the policy")
    given = pa.nulls(len(texts), pa.string()) if labels is None else labels
    if len(given) != len(texts):
        raise InputError(f"texts and labels have one row each; got {len(texts)} of one and {len(given)} of the other")
    if pa.types.is_dictionary(given.type):
        given = given.cast(given.type.value_type)
    digest = _kernel.table_digest(release_key, ids, texts, given)
    sums = np.zeros(statistic.shape, np.int64)
    blocks = _blocks(statistic, given)
    for at in range(0, len(texts), _ROWS):
        some = texts.slice(at, _ROWS)
        there = to_numpy(some.is_valid())
        add(statistic, sums, encoded(statistic, some.filter(pa.array(there))), blocks[at : at + _ROWS][there])
    return Partial(sums, digest)


def add(statistic: Statistic, sums: Integers, vectors: Int8s, blocks: npt.NDArray[np.int64]) -> None:
    """Add records, by their vectors and blocks, to sums in place."""
    contributions = statistic.projection.contributions(vectors)
    counts = np.bincount(blocks, minlength=len(sums))
    order = np.argsort(blocks, kind="stable")
    ends = np.cumsum(counts)
    running = np.zeros((len(blocks) + 1, contributions.shape[1]), np.int64)
    np.cumsum(contributions[order], axis=0, out=running[1:])
    sums[:, :-1] += running[ends] - running[ends - counts]
    sums[:, -1] += counts * statistic.count_step


@bare
def counted(
    statistic: Statistic, release_key: _kernel.ReleaseKey, ids: pa.Array, subjects: pa.Array
) -> npt.NDArray[np.bool_]:
    """Return which records of a whole table count: of each person the first `per_subject` in a keyed order of ids.

    The order depends on ids alone, never on texts or labels. Where a table is partitioned, order by
    `_kernel.order_keys` within each person across all partitions.
    """
    import polars as pl  # policies import this module, and expressions without tables must start without Polars

    keys = pl.Series("key", pa.array(_kernel.order_keys(release_key, ids)).cast(pa.binary()))
    with seam("reading subjects"):
        rows = pl.DataFrame({"subject": pl.Series(subjects), "key": keys}).with_row_index("row")
    if rows["subject"].null_count():
        raise InputError("a subject id is null", "every record needs a subject")
    ranked = rows.sort("subject", "key").with_columns(rank=pl.int_range(pl.len()).over("subject"))
    return ranked.sort("row").select(pl.col("rank") < statistic.per_subject).to_series().to_numpy()


def _blocks(statistic: Statistic, labels: pa.Array) -> npt.NDArray[np.int64]:
    """Return the number of each record's block."""
    if not statistic.labels:
        return np.zeros(len(labels), np.int64)
    import polars as pl

    column = pl.Series("label", labels)
    if column.dtype not in (pl.String, pl.Categorical, pl.Null) and not isinstance(column.dtype, pl.Enum):
        raise InputError(f"a label column holds strings; got {column.dtype}", "cast the column to string first")
    numbers = {name: number for number, name in enumerate(statistic.blocks)}
    other = numbers[OTHER]
    with seam("reading labels"):
        found = column.cast(pl.String).replace_strict(numbers, default=other, return_dtype=pl.Int64)
        blocks: npt.NDArray[np.int64] = found.fill_null(other).to_numpy()
    return blocks


def encoded(statistic: Statistic, texts: pa.Array) -> Int8s:
    """Return the vectors of texts, int8, shape (n, k); zeros where no word is known."""
    corpus = _corpus(str(statistic.corpus.path), statistic.corpus.sha256)
    vectors: Int8s = to_numpy(pa.array(corpus.encode(texts, 1, statistic.n_max)))
    return vectors.reshape(len(texts), -1) if len(texts) else np.zeros((0, statistic.corpus.vectors.shape[1]), np.int8)


@lru_cache(maxsize=4)
def _corpus(path: str, sha256: str) -> _kernel.Corpus:
    return _kernel.Corpus.open(path, sha256)
