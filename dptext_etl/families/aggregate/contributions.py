"""Add up contributions of records, add noise, and read published tables (docs/spec/synthetic.md#contribution).

Sums, digests, and keys are private: they stay inside the boundary. Noisy sums, and all that follows from them, may be
published.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import NormalDist
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.corpora import Corpus
from dptext_etl.corpora.corpus import Int8s, Integers
from dptext_etl.data_types import kind_of
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.families.aggregate.statistic import OTHER, Statistic, describe
from dptext_etl.parallel import single_threaded_products

_ROWS = 8192
_DIGEST = 32
_MODULUS = 2 ** (8 * _DIGEST)


@dataclass(frozen=True, eq=False, repr=False)
class Partial:
    """Sums over some records, and the digest of these records; `a + b` covers both."""

    sums: Integers  # int64, shape `Statistic.shape`
    moments: Integers  # second moment of all records, int64, shape (`Statistic.moments`,), in the order of `upper`
    digest: bytes  # keyed digest of all rows, 32 bytes: who counts, with which text and label

    @classmethod
    def zero(cls, statistic: Statistic) -> Self:
        return cls(np.zeros(statistic.shape, np.int64), np.zeros(statistic.moments, np.int64), bytes(_DIGEST))

    def __add__(self, other: Partial) -> Partial:
        if (self.sums.shape, self.moments.shape) != (other.sums.shape, other.moments.shape):
            raise InputError("partial sums of different statistics do not add up", "add up the sums of one policy only")
        return Partial(self.sums + other.sums, self.moments + other.moments, added(self.digest, other.digest))

    def packed(self) -> bytes:
        """Return the digest and all sums as bytes, to travel between processes inside the boundary."""
        return self.digest + joined(self.sums, self.moments).astype("<i8").tobytes()

    @classmethod
    def unpacked(cls, statistic: Statistic, data: bytes) -> Self:
        return cls(*divided(statistic, np.frombuffer(data[_DIGEST:], "<i8")), data[:_DIGEST])


def joined(sums: Integers, moments: Integers) -> Integers:
    """Return S, block after block, and then T: the order of noise, of hashes, and of bytes."""
    return np.concatenate([sums.ravel(), moments])


def divided(statistic: Statistic, numbers: Integers) -> tuple[Integers, Integers]:
    """Return S and T of the numbers of `joined`."""
    sums, moments = np.split(numbers.astype(np.int64), [math.prod(statistic.shape)])
    return sums.reshape(statistic.shape), moments


def upper(width: int) -> tuple[Integers, Integers]:
    """Return rows and columns of the entries of T in their order: the diagonal, then those above it, row by row."""
    above = np.triu_indices(width, 1)
    return tuple(np.concatenate([np.arange(width), places]) for places in above)  # type: ignore[return-value]


def added(*digests: bytes) -> bytes:
    """Add digests of disjoint records modulo 2^256, in any order: the digest of all of these records, 32 bytes."""
    total = sum(int.from_bytes(digest, "little") for digest in digests)
    return int.to_bytes(total % _MODULUS, _DIGEST, "little")


@bare
def partial_sum(  # noqa: PLR0917
    statistic: Statistic,
    release_key: _kernel.ReleaseKey,
    ids: pa.Array,
    texts: pa.Array,
    labels: pa.Array | None,
    vectors: Int8s | None = None,
) -> Partial:
    """Return the sums over the records that count; `vectors`, shape (n, k), spares encoding them."""
    if (labels is None) != (not statistic.labels):
        raise InputError("labels are given exactly if the statistic lists labels", "list the labels in the policy")
    label_column = pa.nulls(len(texts), pa.string()) if labels is None else labels
    if len(label_column) != len(texts):
        raise InputError(
            f"texts and labels have one row each; got {len(texts)} of one and {len(label_column)} of the other",
            "pass one label per text",
        )
    if pa.types.is_dictionary(label_column.type):
        label_column = label_column.cast(label_column.type.value_type)
    if pa.types.is_string_view(texts.type):  # Arrow fills no nulls of views
        texts = texts.cast(pa.large_string())
    total = replace(Partial.zero(statistic), digest=_kernel.table_digest(release_key, ids, texts, label_column))
    blocks = _blocks(statistic, label_column)
    with single_threaded_products():  # the products of a batch are small, and shards are summed in parallel
        for at in range(0, len(texts), _ROWS):
            batch = texts.slice(at, _ROWS)
            there = to_numpy(batch.is_valid())
            rows = encoded(statistic, batch.fill_null("")) if vectors is None else vectors[at : at + _ROWS]
            add(statistic, total, statistic.contributions(rows[there]), blocks[at : at + _ROWS][there])
    return total


def add(statistic: Statistic, total: Partial, contributions: Integers, blocks: npt.NDArray[np.int64]) -> None:
    """Add up to 2^33 records, by their contributions and blocks, to sums in place."""
    if len(total.moments):
        points = contributions.astype(np.float64)  # at most 2^20 per product, so their sums below 2^53 are exact
        total.moments[:] += (points.T @ points).astype(np.int64)[upper(statistic.projection.width)]
    sums, counts = total.sums, np.bincount(blocks, minlength=len(total.sums))
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

    The order depends only on ids, never on texts or labels. Where a table is partitioned, order by
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
    if not statistic.labels:
        return np.zeros(len(labels), np.int64)
    import polars as pl

    column = pl.Series("label", labels)
    if column.dtype not in (pl.String, pl.Categorical, pl.Null) and not isinstance(column.dtype, pl.Enum):
        raise InputError(
            f"a label column holds strings; got {kind_of(column.dtype)}", "cast the column to string first"
        )
    numbers = {name: number for number, name in enumerate(statistic.blocks)}
    other = numbers[OTHER]
    with seam("reading labels"):
        label_numbers = column.cast(pl.String).replace_strict(numbers, default=other, return_dtype=pl.Int64)
        blocks: npt.NDArray[np.int64] = label_numbers.fill_null(other).to_numpy()
    return blocks


def encoded(statistic: Statistic, texts: pa.Array) -> Int8s:
    """Return the vectors of texts, int8, shape (n, k); zeros where no word is known."""
    return encode(statistic.corpus, texts, statistic.n_max)


def encode(corpus: Corpus, texts: pa.Array, n_max: int) -> Int8s:
    """Return the vectors of texts under the encoder of a corpus, of up to `n_max` words of each."""
    if not len(texts):
        return np.zeros((0, corpus.vectors.shape[1]), np.int8)
    if not corpus.in_kernel:
        return corpus.encoder.encode(texts.to_pylist(), n_max=n_max)
    vectors: Int8s = to_numpy(pa.array(_corpus(str(corpus.path), corpus.sha256).encode(texts, 1, n_max)))
    return vectors.reshape(len(texts), -1)


@lru_cache(maxsize=4)
def _corpus(path: str, sha256: str) -> _kernel.Corpus:
    return _kernel.Corpus.open(path, sha256)


STATISTIC = 9  # purpose of the noise (docs/spec/stream.md#purposes)


@dataclass(frozen=True)
class Topic:
    """The noisy count of a label, with an interval that holds the true count in `confidence` of all draws."""

    label: str
    count: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Noisy:
    """The statistic as it is published."""

    statistic: Statistic  # the statistic of the sums
    sums: Integers  # noisy sums, int64, shape `statistic.shape`
    moments: Integers  # noisy second moment, int64, shape (`statistic.moments`,), in the order of `upper`

    def __post_init__(self) -> None:
        shapes = [self.statistic.shape, (self.statistic.moments,)]
        arrays = self.sums, self.moments
        if [array.shape for array in arrays] != shapes or any(array.dtype != np.int64 for array in arrays):
            msg = f"noisy sums and moments are int64 of shapes {shapes[0]} and {shapes[1]}, got other arrays"
            raise InputError(msg, "pass the sums of this statistic")

    @cached_property
    def counts(self) -> npt.NDArray[np.float64]:
        """Return the noisy number of counted records of every block, 0 or more, shape (blocks,)."""
        counts: npt.NDArray[np.float64] = np.maximum(0.0, self.sums[:, -1] / self.statistic.count_step)
        return counts

    @property
    def total(self) -> float:
        """Return the noisy number of all counted records, without bias: it may be below 0."""
        return float(self.sums[:, -1].sum()) / self.statistic.count_step

    @cached_property
    def vectors(self) -> npt.NDArray[np.float64]:
        """Return the noisy sums of coordinates of every block, in clips, shape (blocks, d)."""
        vectors: npt.NDArray[np.float64] = self.sums[:, :-1] / self.statistic.grid
        return vectors

    @cached_property
    def moment(self) -> npt.NDArray[np.float64]:
        """Return the noisy second moment of all records, in squared clips, shape (d, d); labels are required."""
        rows, columns = upper(self.statistic.projection.width)
        moment = np.zeros((self.statistic.projection.width,) * 2)
        moment[rows, columns] = moment[columns, rows] = self.moments / self.statistic.grid**2
        return moment

    @property
    def digest(self) -> bytes:
        """Return the hash of configuration and noisy sums; a table draws from it (docs/spec/synthetic.md#table)."""
        parts = bytes.fromhex(self.statistic.cfg()) + packed(self)
        return hashlib.sha256(b"dptext/statistic/v1\0" + parts).digest()

    def topics(self, confidence: float = 0.95) -> list[Topic]:
        """Return the noisy counts of all blocks with intervals, in the order of the blocks."""
        reach = NormalDist().inv_cdf((1 + confidence) / 2) * self.statistic.variance**0.5 / self.statistic.count_step
        middle = (self.sums[:, -1] / self.statistic.count_step).tolist()
        return [
            Topic(name, max(0.0, count), max(0.0, count - reach), max(0.0, count + reach))
            for name, count in zip(self.statistic.blocks, middle, strict=True)
        ]


@bare
def noisy(statistic: Statistic, release_key: _kernel.ReleaseKey, partial: Partial) -> Noisy:
    """Return the sums of all records with discrete Gaussian noise on every integer.

    The noise key follows from the release key, the digest of all rows, and the sums themselves: equal input gives equal
    bytes, and any other input independent noise. Call it after the charge of every counted record is reserved.
    """
    numbers, variance = joined(partial.sums, partial.moments), statistic.variance
    key = _kernel.noise_key(release_key, partial.digest, to_arrow(numbers))
    diagonal, squared = min(statistic.projection.width, len(partial.moments)), variance * statistic.grid**2
    parts = (partial.sums.size, variance), (diagonal, 2 * squared), (len(partial.moments) - diagonal, squared)
    noise: list[int] = []
    for count, size in parts:
        noise += _kernel.discrete_gaussians(key, STATISTIC, len(noise), count, size, 1)
    return Noisy(statistic, *divided(statistic, numbers + np.array(noise, np.int64)))


_HINT = "give the manifest of a synthetic table, as `dptext run` published it: FOLDER.manifest.json"


def packed(noisy: Noisy) -> bytes:
    """Return noisy sums as bytes: int64, little-endian, in the order of `joined`."""
    return joined(noisy.sums, noisy.moments).astype("<i8").tobytes()


def unpacked(statistic: Statistic, data: bytes) -> Noisy:
    return Noisy(statistic, *divided(statistic, np.frombuffer(data, "<i8")))


def published_facts(noisy: Noisy) -> dict[str, Any]:
    """Return the public facts from which `read_statistic` makes a statistic again, as JSON holds them."""
    statistic, sums = noisy.statistic, packed(noisy)
    return {
        "labels": list(statistic.labels),
        "per_subject": statistic.per_subject,
        "epsilon": statistic.epsilon,
        "delta": statistic.delta,
        "width": statistic.projection.width,
        "n_max": statistic.n_max,
        "grid": statistic.grid,
        "variance": statistic.variance,
        "sensitivity": statistic.sensitivity,
        "corpus_sha256": statistic.corpus.sha256,
        "sha256": hashlib.sha256(sums).hexdigest(),
        "sums": base64.b64encode(sums).decode(),
    }


@bare
def read_statistic(manifest: str | Path | Mapping[str, Any], corpus: Corpus | str) -> Noisy:
    """Return the statistic of a published synthetic table."""
    with seam("reading the statistic of a manifest", InputError, _HINT):
        facts = manifest if isinstance(manifest, Mapping) else json.loads(Path(manifest).read_text(encoding="ascii"))
        (column,) = facts["columns"]
        published, cfg = column["statistic"], column["cfg"]
        sums = base64.b64decode(published["sums"], validate=True)
    if hashlib.sha256(sums).hexdigest() != published["sha256"]:
        raise InputError("the sums of the manifest do not match its hash: it was changed", "`dptext check` says more")
    opened = Corpus.open(corpus) if isinstance(corpus, str) else corpus
    if opened.sha256 != published["corpus_sha256"]:
        raise InputError("the table was drawn from another corpus", f"its SHA-256 is {published['corpus_sha256']}")
    names = ("epsilon", "delta", "labels", "per_subject", "width", "n_max")
    # the configuration covers grid and variance, and another machine may compute a variance that is off by one
    noise = {name: published[name] for name in ("grid", "variance")}
    statistic = replace(describe(opened, **{name: published[name] for name in names}), **noise)
    if statistic.cfg() != cfg:
        raise InputError("the statistic has another configuration here", "was it made by another version?")
    return unpacked(statistic, sums)
