"""Describe the noisy statistic of a column (sums and counts per label, one second moment), and its mechanism.

The directions are principal directions of a public corpus, found by subspace iteration. Every step is a product of
integers below 2^53, whose sum is exact in any order, or one operation that IEEE 754 rounds, so every machine finds the
same ones. Specification: docs/spec/synthetic.md#release, docs/spec/synthetic.md#projection.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import ConfigDict, Field, InstanceOf

from dptext_etl.accounting import Approximate, ZeroConcentrated, require_delta, smallest_epsilon, spend
from dptext_etl.arrays import to_arrow
from dptext_etl.artifacts import Artifact
from dptext_etl.corpora import Corpus
from dptext_etl.corpora.corpus import KIND, Int8s, Integers, encoders
from dptext_etl.corpora.static import version
from dptext_etl.device import Computing
from dptext_etl.errors import PolicyError
from dptext_etl.families.choice import probe_encoder
from dptext_etl.guarantee import LARGEST_DELTA, LARGEST_SUM, Guarantee, Spend, exact
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import DEFAULT_N_MAX, Mechanism
from dptext_etl.parameters import PositiveInt, configuration_hash

LENGTH = 128  # length of a direction, before its entries are rounded
LONGEST = 4.0  # length of a balanced direction, at most, as a multiple of that
QUANTIZED = 127  # length of encoded vectors, before their entries are rounded
MOST_WIDTH = 512  # largest width of a projection
_ROUNDS = 40
_FINE = 2.0**15  # length of a direction while it is searched
_ROOM = 2**64


@dataclass(frozen=True, eq=False)
class Projection:
    """Coordinates of vectors, v = directions . vector - center, and the clip of their norm."""

    directions: npt.NDArray[np.int16]  # int16, shape (d, k)
    center: Integers  # projected mean of the corpus, int64, shape (d,)
    clip: int  # C, a multiple of 4: the median norm of the corpus texts' coordinates
    longest: int  # squared length of an encoded vector, at most; a longer one counts as a failed encoding

    @property
    def width(self) -> int:
        return len(self.directions)

    @cached_property
    def sha256(self) -> str:
        """Return the hash of all numbers, which enters the configuration (docs/spec/synthetic.md#projection)."""
        numbers = [self.directions.shape[1], self.width, self.clip, self.longest, *self.center]
        parts = np.array(numbers, "<i8").tobytes() + self.directions.astype("<i2").tobytes()
        return hashlib.sha256(b"dptext/projection/v1\0" + parts).hexdigest()

    def coordinates(self, vectors: Int8s) -> Integers:
        """Return the coordinates of vectors before the clip, int64, shape (n, d)."""
        return _products(vectors, self.directions) - self.center

    def contributions(self, vectors: Int8s) -> Integers:
        """Return u of every vector, int64, shape (n, d): its norm is at most `clip`; zeros for a failed encoding.

        |u_i| = isqrt(v_i^2 C^2 // |v|^2) where |v| > C, so the squares add up to C^2 at most.
        """
        lengths = np.einsum("ij,ij->i", vectors, vectors, dtype=np.int64)
        coordinates = self.coordinates(vectors)
        coordinates[(lengths == 0) | (lengths > self.longest)] = 0
        squares = np.einsum("ij,ij->i", coordinates, coordinates)
        outside = squares > self.clip**2
        large = coordinates[outside]
        products = (large * large).astype(np.uint64) * np.uint64(self.clip**2)  # `projection` bounds them below 2^64
        shares = (products // squares[outside, None].astype(np.uint64)).astype(np.int64)
        coordinates[outside] = np.sign(large) * whole_roots(shares)
        return coordinates


def whole_roots(squares: Integers) -> Integers:
    roots = np.sqrt(squares.astype(np.float64)).astype(np.int64)
    roots -= roots * roots > squares
    roots += (roots + 1) * (roots + 1) <= squares
    return roots


def _products(vectors: Int8s, directions: npt.NDArray[np.int16]) -> Integers:
    """Return exact products: float32 holds every partial sum, which `projection` bounds below 2^24."""
    return (vectors.astype(np.float32) @ directions.T.astype(np.float32)).astype(np.int64)


def projection(vectors: Int8s, width: int, *, balanced: bool = False) -> Projection:
    """Return the principal directions of a corpus; balanced ones are longer where its texts differ less."""
    width = min(width, vectors.shape[1], MOST_WIDTH)
    m, k = vectors.shape
    rows = vectors.astype(np.float64)
    sums = rows.sum(axis=0)
    spread = (rows.T @ rows) - np.rint(sums[:, None] * sums / m)  # below 2^46, so exact sums of whole numbers
    spread = np.rint(spread * (2.0**20 / max(1.0, float(np.abs(spread).max()))))
    start = np.argsort(-np.diagonal(spread), kind="stable")[:width]
    axes = np.zeros((width, k))
    axes[np.arange(width), start] = _FINE
    for _ in range(_ROUNDS):
        axes = _orthogonal(axes @ spread)

    count = len(vectors)
    total = vectors.sum(axis=0, dtype=np.int64)
    lengths_of_rows = np.ones(width)
    for _ in range(1 + balanced):
        directions = np.rint(axes * (LENGTH / _FINE) * lengths_of_rows[:, None]).astype(np.int16)
        whole = directions.astype(np.int64)
        center = (2 * (whole @ total) + count) // (2 * count)
        projected = _products(vectors, directions) - center
        spreads = np.maximum(1, np.einsum("ij,ij->j", projected, projected))
        lengths_of_rows = np.minimum(LONGEST, np.sqrt(np.sqrt(spreads.max() / spreads)))

    lengths = np.einsum("ij,ij->i", vectors, vectors, dtype=np.int64)
    longest = max(int(lengths.max(initial=0)), (QUANTIZED + math.isqrt(vectors.shape[1]) // 2 + 1) ** 2)
    stretch = int(np.abs(whole @ whole.T).sum(axis=1).max())  # of squared lengths, at most
    reach = math.isqrt(stretch * longest) + math.isqrt(int((center**2).sum())) + 2
    if stretch * longest >= 2**48:
        raise PolicyError("the vectors of the corpus are too long for exact sums", "scale them to length 127")
    norms = np.sort(np.einsum("ij,ij->i", projected, projected))
    clip = math.isqrt(int(norms[len(norms) // 2])) // 4 * 4
    if not clip or (reach * clip) ** 2 >= _ROOM:
        raise PolicyError("the vectors of the corpus do not differ, or are too long", "build the corpus again")
    return Projection(directions, center, clip, longest)


def _orthogonal(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Make rows nearly orthogonal, one after the other, in whole numbers of length 2^15."""
    out = np.zeros_like(rows)
    for number, row in enumerate(rows):
        left = _scaled(row)
        for _ in range(2):
            shares = np.rint((out[:number] @ left) / _FINE)
            left = _scaled(left * _FINE - shares @ out[:number])
        out[number] = left
    return out


def _scaled(row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Scale a row to length 2^15 and round it; a row of zeros stays."""
    largest = float(np.abs(row).max())
    if not largest:
        return row
    whole = np.rint(row * (_FINE / largest))
    length = float(whole @ whole)
    scaled: npt.NDArray[np.float64] = np.rint(whole * (_FINE / np.sqrt(length)))
    return scaled


LEAST_VARIANCE = 16  # smallest variance that the conversion to epsilon covers (docs/spec/synthetic.md#conversion)
_ABOVE = 1 + 1e-12  # above the rounding of the conversion
_FAR = 1e-27  # chance of noise so large that the conversion does not cover it, at most
LARGEST_VARIANCE = 2**48  # largest variance that the kernel draws (docs/spec/stream.md#discrete-gaussian)
GRIDS = (1024, 512, 256, 128, 64)
"""Integer lengths of the clip in a statistic, in the order of preference (docs/spec/synthetic.md#grid)."""
_ROOM_OF_MOMENTS = 2**61  # above n G^2, a bound on the entries of the second moment


def epsilon_of(grid: int, variance: int, delta: float, records: int = 1) -> float:
    """Return the epsilon at `delta` of a number of records of a person, by the analytic conversion of Gaussian noise.

    Discrete noise has nearly the law of rounded Gaussian noise (docs/spec/synthetic.md#conversion).
    """
    deviations = 2 * records * grid / math.sqrt(variance) * _ABOVE
    rounded = smallest_epsilon(deviations, delta - _FAR, 45 * records / variance)
    return (rounded + (200 * records + deviations**2) / variance) * _ABOVE


def variance_of(grid: int, epsilon: float, delta: float, records: int = 1) -> int:
    """Return the least whole variance at which that number of records of a person is (epsilon, delta)-DP."""
    require_delta(delta)
    if not 0 < epsilon < math.inf:
        raise PolicyError(f"epsilon is {epsilon}; allowed: a number above 0", "1 for the whole table is a good start")
    if epsilon_of(grid, LARGEST_VARIANCE, delta, records) > epsilon:
        raise PolicyError(f"epsilon is {epsilon}: the noise would not fit into its range", "raise epsilon")
    low, high = LEAST_VARIANCE - 1, LARGEST_VARIANCE
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if epsilon_of(grid, middle, delta, records) <= epsilon else (middle, high)
    return high


def grid_of(epsilon: float, delta: float, records: int = 1) -> tuple[int, int]:
    """Return the length of the clip in integers, and the variance of a sum (docs/spec/synthetic.md#grid)."""
    for grid in GRIDS:
        variance = variance_of(grid, epsilon, delta, records)
        if 2 * grid**2 * variance <= LARGEST_VARIANCE:
            return grid, variance
    raise PolicyError(f"epsilon is {epsilon}: the noise would not fit into its range", "raise epsilon")


def rho_of(sensitivity: int, variance: int) -> Fraction:
    """Return rho of zCDP, exactly: sensitivity^2 / (2 variance), in any dimension."""
    return Fraction(sensitivity**2, 2 * variance)


VERSION = 5  # version of the output: it is raised whenever equal inputs and keys would give another statistic or table
OTHER = "other"  # block of null and unlisted labels; it is one of the labels if they name it
MOST_LABELS = 1_000
MANY_LABELS = 16  # from that many labels on, the usual width is larger
WIDTH, WIDTH_MANY = 96, 192


@dataclass(frozen=True, eq=False)
class Statistic:
    """Everything public about one statistic; `describe` makes it."""

    corpus: Corpus  # public texts, their vectors, and the encoder
    projection: Projection  # coordinates, center and clip
    labels: tuple[str, ...]  # the public list of labels; empty for a column without labels
    per_subject: int  # k, the most records of one person that count
    epsilon: float  # epsilon of the whole table for one record, at `delta`
    delta: float  # delta of that pair
    grid: int  # G, the length of the clip in the integers of the statistic
    variance: int  # variance of the noise of sums and counts; the second moment has grid^2 times as much, or twice that
    n_max: int = DEFAULT_N_MAX  # words of a text that are read

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """Return the names of the blocks: the labels, then "other" unless they name it; one block without labels."""
        return self.labels if OTHER in self.labels else (*self.labels, OTHER)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape of the sums: blocks, and d coordinates with the count last."""
        return len(self.blocks), self.projection.width + 1

    @property
    def moments(self) -> int:
        """Return the number of entries of the second moment: d (d + 1) / 2, or 0 without labels."""
        width = self.projection.width
        return width * (width + 1) // 2 if self.labels else 0

    @property
    def count_step(self) -> int:
        """Return 11 G / 16, the amount that a record adds to the count of its label."""
        return 11 * self.grid // 16

    @property
    def sensitivity(self) -> int:
        """Return 2 G, the sensitivity in units of sums (docs/spec/synthetic.md#sensitivity)."""
        return 2 * self.grid

    def contributions(self, vectors: Int8s) -> Integers:
        """Return x of every vector, int64, shape (n, d): its norm is at most `grid`; zeros for a failed encoding."""
        clipped = self.projection.contributions(vectors)
        scaled: Integers = np.sign(clipped) * (np.abs(clipped) * self.grid // self.projection.clip)
        return scaled

    @property
    def rho(self) -> Fraction:
        return rho_of(self.sensitivity, self.variance)

    @property
    def sigma(self) -> float:
        """Return the standard deviation of the noise of a sum, in clips."""
        return math.sqrt(self.variance) / self.grid

    def charge(self, guarantee: Guarantee) -> Spend:
        """Return what every counted record is charged; the claim says class, neighbors and assumptions."""
        approx = Fraction(epsilon_of(self.grid, self.variance, self.delta, self.per_subject)) / self.per_subject
        return spend(guarantee, Approximate(ZeroConcentrated(self.per_subject * self.rho), approx, self.delta), 1)

    def configuration(self) -> dict[str, Any]:
        """Return the settings that the sums and their noise depend on (docs/spec/stream.md#configuration)."""
        libraries = {"tokenizers": version()} if self.corpus.has_tokens else {}
        if self.corpus.in_floats:
            facts = self.corpus.description["encoder"]
            libraries = {KIND: encoders().version(), "files": facts["files"], "dtype": facts["dtype"]}
        return {
            **libraries,
            "mechanism": "synthetic",
            "mechanism_version": VERSION,
            "corpus": self.corpus.sha256,
            "projection": self.projection.sha256,
            "labels": list(self.labels),
            "per_subject": self.per_subject,
            "epsilon": repr(self.epsilon),
            "delta": repr(self.delta),
            "grid": self.grid,
            "variance": self.variance,
            "n_max": self.n_max,
        }

    def cfg(self) -> str:
        """Return the configuration hash, which enters the release key."""
        return configuration_hash(self.configuration())


def describe(
    corpus: Corpus | str,
    *,
    epsilon: float,
    delta: float,
    labels: Sequence[str] = (),
    per_subject: int = 1,
    width: int | None = None,
    n_max: int = DEFAULT_N_MAX,
) -> Statistic:
    """Return the statistic of a column, from public facts only."""
    opened = Corpus.open(corpus) if isinstance(corpus, str) else corpus
    if len(labels) > MOST_LABELS or len(set(labels)) < len(labels) or not all(labels):
        msg = f"labels are up to {MOST_LABELS:,} distinct names that are not empty; got {len(labels):,}"
        raise PolicyError(msg, "list each public label once; other labels count as one more, `other`")
    for name, value in {"per_subject": per_subject, "width": 1 if width is None else width, "n_max": n_max}.items():
        if value < 1:
            raise PolicyError(f"{name} is {value}; allowed: 1 or more", "pass a positive whole number")
    if not 0 < delta <= LARGEST_DELTA:
        raise PolicyError(f"delta is {delta}; allowed: above 0, at most {LARGEST_DELTA}", "use 0.01 / n_rec or less")
    _require_room(delta, GRIDS[-1])
    usual = WIDTH_MANY if len(labels) >= MANY_LABELS else WIDTH
    axes = projection(opened.vectors, width or usual, balanced=opened.in_floats)
    grid, variance = grid_of(epsilon, delta)
    _require_room(delta, grid)
    return Statistic(opened, axes, tuple(labels), per_subject, epsilon, delta, grid, variance, n_max)


def _require_room(delta: float, grid: int) -> None:
    if int(LARGEST_SUM / exact(delta)) * grid**2 >= _ROOM_OF_MOMENTS:
        msg = f"delta is {delta}: sums over the records for which it may be stated would not fit into 64 bits"
        raise PolicyError(msg, "use 0.01 over a public bound on the number of records")


class Aggregate(Mechanism):
    """The statistic of a whole column, with the settings that the ledger pins and the charge of each record.

    Attributes:
        label: The name of the mechanism in policies, manifests, and the ledger.
        statistic: The summed values, and the size of the noise.
        claim: Class, neighbors, and assumptions.
        n_rec: The number of records for which delta is stated.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    reproducible: ClassVar[bool] = True

    label: str
    statistic: InstanceOf[Statistic] = Field(repr=False)
    claim: InstanceOf[Guarantee] = Field(repr=False)
    n_rec: PositiveInt

    @property
    def name(self) -> str:
        return self.label

    @property
    def opened(self) -> Corpus:
        """Return the corpus, as mechanisms that draw its texts do."""
        return self.statistic.corpus

    @property
    def guarantee(self) -> Guarantee:
        return self.claim

    @property
    def computing(self) -> Computing | None:
        return self.opened.computing

    def probe(self) -> None:
        if self.opened.in_floats:
            probe_encoder(self.opened.encoder)

    @property
    def most_positions(self) -> int:
        return 1

    def configuration(self) -> dict[str, Any]:
        return {**self.statistic.configuration(), "n_rec": self.n_rec}

    def cfg(self) -> str:
        return self.statistic.cfg()

    def artifacts(self) -> dict[str, Artifact]:
        return {"corpus": self.opened.artifact}

    def spend(self, positions: int) -> Spend:  # noqa: ARG002
        """Return the charge of a record: the same for all (docs/spec/synthetic.md#cost)."""
        return self.statistic.charge(self.claim)

    def positions(self, texts: pa.Array) -> pa.Array:
        """Return zeros, uint32: no record has its own draw."""
        return to_arrow(np.zeros(len(texts), np.uint32))

    def release(self, texts: pa.Array, keys: RecordKeys) -> NoReturn:  # noqa: ARG002
        """Refuse to release texts.

        Raises:
            PolicyError: Always.
        """
        raise PolicyError("a statistic of a whole column releases no text of a record", "publish a synthetic table")

    @classmethod
    def example(cls) -> NoReturn:
        """Refuse: `describe` makes a statistic from a corpus.

        Raises:
            PolicyError: Always.
        """
        raise PolicyError("a statistic has no example", "describe one over the corpus `example`")
