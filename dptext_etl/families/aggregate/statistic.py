"""Describe the one statistic of a column that is released, and what it costs (docs/spec/synthetic.md#release)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from dptext_etl.accounting import Approximate, ZeroConcentrated, require_delta, spend, zcdp_epsilon
from dptext_etl.artifacts import canon
from dptext_etl.corpora import Corpus
from dptext_etl.delta_policy import LARGEST_DELTA
from dptext_etl.errors import PolicyError
from dptext_etl.families.aggregate.projection import Projection, projection
from dptext_etl.guarantee import Guarantee, Spend
from dptext_etl.mechanism import DEFAULT_N_MAX

LARGEST_VARIANCE = 2**48
"""Largest variance that the kernel draws (docs/spec/stream.md#discrete-gaussian)."""


def variance_of(sensitivity: int, epsilon: float, delta: float) -> int:
    """Return the least whole variance at which sums of this L2 sensitivity are (epsilon, delta)-DP by their zCDP."""
    require_delta(delta)
    if not 0 < epsilon < math.inf:
        raise PolicyError(f"epsilon is {epsilon}; allowed: a number above 0", "1 for the whole table is a good start")

    def enough(variance: int) -> bool:
        return zcdp_epsilon(rounded_up(rho_of(sensitivity, variance)), delta) <= epsilon

    if not enough(LARGEST_VARIANCE):
        raise PolicyError(f"epsilon is {epsilon}: the noise would not fit into its range", "raise epsilon")
    low, high = 0, LARGEST_VARIANCE
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def rho_of(sensitivity: int, variance: int) -> Fraction:
    """Return rho of zCDP, exactly: sensitivity^2 / (2 variance), in any dimension."""
    return Fraction(sensitivity**2, 2 * variance)


def rounded_up(amount: Fraction) -> float:
    """Return the least float that is not below a fraction."""
    found = float(amount)
    return found if Fraction(found) >= amount else math.nextafter(found, math.inf)


def _charge(guarantee: Guarantee, rho: Fraction, per_subject: int, delta: float) -> Spend:
    """Return what each counted record is charged; a person with `per_subject` records pays that many times as much.

    A person may change `per_subject` records, whose sensitivities add up: k^2 rho. So a record is charged k rho, and of
    the pair (epsilon(k^2 rho, delta), delta) one k-th of epsilon, with the whole delta.
    """
    person = rounded_up(per_subject**2 * rho)
    approx = Fraction(zcdp_epsilon(person, delta)) / per_subject
    return spend(guarantee, Approximate(ZeroConcentrated(per_subject * rho), approx, delta), 1)


VERSION = 1
"""Version of the output: it is raised whenever equal inputs and keys would give another statistic or table."""
OTHER = "other"
"""Block of null and unlisted labels; it is one of the labels if they name it."""
MOST_LABELS = 1_000
MANY_LABELS = 16
"""From so many labels on, the usual width is larger."""
WIDTH, WIDTH_MANY = 64, 96


@dataclass(frozen=True, eq=False)
class Statistic:
    """Everything public about one statistic; `describe` makes it.

    Attributes:
        corpus: Public texts, their vectors, and the encoder.
        projection: Coordinates, center and clip.
        labels: The public list of labels; empty for a column without labels.
        per_subject: k, the most records of one person that count.
        epsilon: Epsilon of the whole table for one record, at `delta`.
        delta: Delta of that pair.
        variance: Variance of the noise of every integer, in its own units.
        n_max: Words of a text that are read.
    """

    corpus: Corpus
    projection: Projection
    labels: tuple[str, ...]
    per_subject: int
    epsilon: float
    delta: float
    variance: int
    n_max: int = DEFAULT_N_MAX

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """Return the names of the blocks: the labels, then "other" unless they name it; one block without labels."""
        return self.labels if OTHER in self.labels else (*self.labels, OTHER)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape of the sums: blocks, and d coordinates with the count last."""
        return len(self.blocks), self.projection.width + 1

    @property
    def count_step(self) -> int:
        """Return A = C / 4, what a record adds to the count of its label."""
        return self.projection.clip // 4

    @property
    def sensitivity(self) -> int:
        """Return 2 C, the L2 distance that a replaced record can move the sums (docs/spec/synthetic.md#sensitivity)."""
        return 2 * self.projection.clip

    @property
    def rho(self) -> Fraction:
        """Return rho of zCDP of one record, exactly."""
        return rho_of(self.sensitivity, self.variance)

    @property
    def sigma(self) -> float:
        """Return the standard deviation of the noise, in clips."""
        return math.sqrt(self.variance) / self.projection.clip

    def charge(self, guarantee: Guarantee) -> Spend:
        """Return what every counted record is charged; the claim says class, neighbors and assumptions."""
        return _charge(guarantee, self.rho, self.per_subject, self.delta)

    def configuration(self) -> dict[str, Any]:
        """Return what the sums and their noise depend on (docs/spec/stream.md#configuration)."""
        return {
            "mechanism": "synthetic",
            "mechanism_version": VERSION,
            "corpus": self.corpus.sha256,
            "projection": self.projection.sha256,
            "labels": list(self.labels),
            "per_subject": self.per_subject,
            "epsilon": repr(self.epsilon),
            "delta": repr(self.delta),
            "variance": self.variance,
            "n_max": self.n_max,
        }

    def cfg(self) -> str:
        """Return the configuration hash, which enters the release key."""
        return hashlib.sha256(b"dptext/cfg/v1\0" + canon(self.configuration())).hexdigest()


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
    """Return the statistic of a column, from public facts alone.

    Args:
        corpus: A corpus whose encoder is `words` or `task`, or its name.
        epsilon: Epsilon of the whole table for one record, at `delta`.
        delta: Above 0, at most 1e-6.
        labels: The public list of labels, in any order; empty without labels.
        per_subject: Records of one person that count, at most.
        width: Coordinates; by default 64, or 96 from 16 labels on.
        n_max: Words of a text that are read; the rest is cut.

    Raises:
        PolicyError: A parameter is out of range, or the encoder is a model.
    """
    opened = Corpus.open(corpus) if isinstance(corpus, str) else corpus
    if opened.encoder_kind not in {"words", "task"}:
        hint = "build the corpus with the encoder `words` or `task`"
        raise PolicyError("synthetic tables need a corpus whose encoder sums vectors of words", hint)
    if len(labels) > MOST_LABELS or len(set(labels)) < len(labels) or not all(labels):
        msg = f"labels are up to {MOST_LABELS:,} distinct names that are not empty; got {len(labels):,}"
        raise PolicyError(msg, "list each public label once; other labels count as one more, `other`")
    for name, value in {"per_subject": per_subject, "width": 1 if width is None else width, "n_max": n_max}.items():
        if value < 1:
            raise PolicyError(f"{name} is {value}; allowed: 1 or more")
    if not 0 < delta <= LARGEST_DELTA:
        raise PolicyError(f"delta is {delta}; allowed: above 0, at most {LARGEST_DELTA}", "take 0.01 / n_rec or less")
    found = projection(opened.vectors, width or (WIDTH_MANY if len(labels) >= MANY_LABELS else WIDTH))
    variance = variance_of(2 * found.clip, epsilon, delta)
    return Statistic(opened, found, tuple(labels), per_subject, epsilon, delta, variance, n_max)
