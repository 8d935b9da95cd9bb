"""Label texts by the linear discriminant of a noisy statistic: its means by label, and one covariance.

Everything is post-processing of a published statistic and of public facts (docs/spec/synthetic.md#classifier).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from safetensors import numpy as tensors

from dptext_etl.artifacts import canon
from dptext_etl.corpora import Corpus
from dptext_etl.corpora.corpus import Int8s, names
from dptext_etl.errors import ArtifactError, InputError, bare, seam
from dptext_etl.families.aggregate.contributions import Noisy, encode
from dptext_etl.families.aggregate.statistic import MANY_LABELS, Projection, Statistic
from dptext_etl.parallel import single_threaded_products

Floats = npt.NDArray[np.float64]
FORMAT = "dptext-classifier/1"
LEAST_SHARE = 0.2  # least share of a label, as a multiple of an even share
SMALL = 0.1  # variance of all records, at least
FEW, MANY = (0.02, 1.0), (1.0, 4.0)
"""Share of the variance of records that their labels' means have, and multiple of the mean eigenvalue that is added to
the covariance: with few labels, and from 16 on."""
NAME_VARIANCE = 0.8  # of a label's mean around the unit vector of its name, in mean eigenvalues
_STEPS = 2.0**16  # steps of the largest number, so that machines whose floats differ in the last bits write equal files


@dataclass(frozen=True, eq=False, repr=False)
class Classifier:
    """A linear discriminant over the vectors of texts: score = slopes . (u - mean) + offsets, with u in clips.

    Attributes:
        labels: The labels, shape (labels,).
        projection: Coordinates of vectors, and their clip.
        mean: Mean of all records, shape (d,).
        slopes: Direction of every label, shape (labels, d).
        offsets: Amount that is added to the score of every label, shape (labels,).
        corpus: SHA-256 of the corpus whose encoder makes the vectors, 64 hex digits.
        name: Name of that corpus.
        n_max: Words of a text that are read.
    """

    labels: tuple[str, ...]
    projection: Projection
    mean: Floats
    slopes: Floats
    offsets: Floats
    corpus: str
    name: str
    n_max: int

    def __repr__(self) -> str:
        return f"Classifier({len(self.labels)} labels, corpus {self.name}, {self.corpus[:12]})"

    @bare
    def encode(self, texts: Sequence[str] | pa.Array, corpus: Corpus | str | None = None) -> Int8s:
        """Return the vectors of texts, int8, shape (n, k). Raw texts go in only inside the boundary.

        Args:
            texts: The texts; null counts as empty.
            corpus: The corpus of the classifier, or its folder; by default the installed one of that name.

        Raises:
            ArtifactError: The corpus is not here, or is another one.
        """
        if corpus is None and self.name not in names():
            msg = f"texts are encoded by the corpus {self.name!r}, which is not installed"
            raise ArtifactError(msg, f"pass its folder; the SHA-256 of its file is {self.corpus}")
        opened = corpus if isinstance(corpus, Corpus) else Corpus.open(corpus or self.name)
        if opened.sha256 != self.corpus:
            msg = "the corpus is not the one of the classifier, so its vectors mean something else"
            raise ArtifactError(msg, f"pass the corpus whose SHA-256 is {self.corpus}")
        column = pa.array(texts, pa.large_string()) if not isinstance(texts, pa.Array) else texts
        return encode(opened, column.fill_null(""), self.n_max)

    def scores(self, vectors: Int8s) -> Floats:
        """Return the score of every label for encoded texts, shape (n, labels); the largest one is the label.

        Args:
            vectors: Vectors of the encoder, int8, shape (n, k).
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.projection.directions.shape[1] or vectors.dtype != np.int8:
            msg = f"vectors are int8 of shape (n, {self.projection.directions.shape[1]}), got another array"
            raise InputError(msg, "`encode` makes them from texts")
        return self.scores_at(self.projection.contributions(vectors) / self.projection.clip)

    def scores_at(self, points: Floats) -> Floats:
        """Return the score of every label for contributions in clips, shape (n, labels)."""
        scores: Floats = (points - self.mean) @ self.slopes.T + self.offsets
        return scores

    def predict(self, vectors: Int8s) -> list[str]:
        """Return the label of every encoded text, shape (n,).

        Args:
            vectors: Vectors of the encoder, int8, shape (n, k).
        """
        return [self.labels[number] for number in self.scores(vectors).argmax(axis=1)]

    def predict_proba(self, vectors: Int8s) -> Floats:
        """Return how likely each label is if all occur equally often, shape (n, labels); rows add up to 1.

        Args:
            vectors: Vectors of the encoder, int8, shape (n, k).
        """
        scores = self.scores(vectors)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares: Floats = odds / odds.sum(axis=1, keepdims=True)
        return shares

    @bare
    def label(self, texts: pa.Array, corpus: Corpus | str | None = None) -> pa.Array:
        """Return the label of every text of an Arrow column, strings; null where the text is null.

        Args:
            texts: Strings of any type.
            corpus: As in `encode`.

        Raises:
            ArtifactError: The corpus is not here, or is another one.
            InputError: The column holds no strings.
        """
        with seam("reading a column of texts", InputError, "cast it to string first"):
            column = texts.cast(pa.large_string())
        labels = pa.array(self.predict(self.encode(column, corpus)), pa.string())
        return pc.if_else(column.is_valid(), labels, pa.scalar(None, pa.string()))

    def content(self) -> bytes:
        """Return the bytes of the classifier's file, which `read` reads."""
        arrays: dict[str, npt.NDArray[Any]] = {
            "directions": self.projection.directions,
            "center": self.projection.center,
            "mean": self.mean,
            "slopes": self.slopes,
            "offsets": self.offsets,
        }
        facts = {name: getattr(self, name) for name in ("corpus", "name", "n_max")} | {
            "format": FORMAT,
            "labels": list(self.labels),
            "clip": self.projection.clip,
            "longest": self.projection.longest,
        }
        # in one entry, because the library writes several in any order
        return bytes(tensors.save(arrays, {"facts": canon(facts).decode()}))

    @classmethod
    def read(cls, file: str | Path | bytes) -> Self:
        """Return the classifier of a file, or of the bytes of one.

        Args:
            file: Path of the file, or its bytes.

        Raises:
            ArtifactError: It is not a classifier.
        """
        hint = "a classifier is the file that `dptext run` publishes with a synthetic table with labels"
        with seam("reading a classifier", ArtifactError, hint):
            content = file if isinstance(file, bytes) else Path(file).read_bytes()
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
            facts: dict[str, Any] = json.loads(header["facts"])
            arrays = tensors.load(content)
            projection = Projection(arrays["directions"], arrays["center"], facts["clip"], facts["longest"])
            known = {**arrays, **facts, "labels": tuple(facts["labels"]), "projection": projection}
            classifier = cls(**{item.name: known[item.name] for item in fields(cls)})
        if facts["format"] != FORMAT:
            raise ArtifactError(f"the file is not a classifier ({FORMAT})", hint)
        return classifier

    @property
    def sha256(self) -> str:
        """Return the hash of the file, 64 hex digits."""
        return hashlib.sha256(self.content()).hexdigest()


@bare
def linear_discriminant(noisy: Noisy, names: Mapping[str, str] | None = None) -> Classifier:
    """Return the classifier of a statistic: a linear discriminant with a private covariance.

    Args:
        noisy: The released statistic, with labels.
        names: Public words that describe a label, by label.

    Raises:
        InputError: The statistic has no labels, or names belong to labels that it does not list.
    """
    statistic = noisy.statistic
    if not statistic.labels:
        raise InputError("the statistic has no labels, so it has no classifier", "list labels in [synthetic]")
    count, sigma, width = len(statistic.labels), statistic.sigma, statistic.projection.width
    n, counts = max(1.0, noisy.total), floored(noisy.counts[:count])[:, None]
    mean = noisy.vectors.sum(axis=0) / n
    of_noise = len(statistic.blocks) * width * (sigma / n) ** 2  # expected square of the noise in the mean
    mean *= max(0.0, 1.0 - of_noise / max(float(mean @ mean), of_noise))
    named = name_vectors(statistic, {} if names is None else names)
    share, added = MANY if count >= MANY_LABELS else FEW
    with single_threaded_products():  # floats round by the number of threads
        spread, axes = np.linalg.eigh(noisy.moment / n - np.outer(mean, mean))
        typical = min(max(float(spread.sum()), SMALL), 1.0) / width  # the norm of a contribution is at most 1
        deviations = spread - typical
        noise = (width**2 + width) * (sigma / n) ** 2 + (width * typical) ** 2 / n  # expected square of deviations
        deviations *= max(0.0, 1.0 - noise / max(float(deviations @ deviations), noise))
        spread = np.maximum(typical + deviations, 0.0) + added * typical
        centered = (named - named.mean(axis=0) if count > 2 else named) @ axes
        known = named.any(axis=1, keepdims=True) / (NAME_VARIANCE * typical)
        precision = (counts / sigma) ** 2 + known + spread.sum() / (share * width * typical * spread)
        means = (
            (counts / sigma) ** 2 * ((noisy.vectors[:count] / counts - mean) @ axes) + known * centered
        ) / precision
        slopes = means / spread
    return Classifier(
        labels=statistic.labels,
        projection=statistic.projection,
        mean=_rounded(mean),
        slopes=_rounded(slopes @ axes.T),
        offsets=_rounded(-0.5 * (slopes * means).sum(axis=1)),
        corpus=statistic.corpus.sha256,
        name=str(statistic.corpus.description.get("name", "")),
        n_max=statistic.n_max,
    )


def _rounded(numbers: Floats) -> Floats:
    step = float(np.abs(numbers).max(initial=0.0)) / _STEPS
    exponent = 2.0 ** math.floor(math.log2(step)) if step else 1.0
    rounded: Floats = np.rint(numbers / exponent) * exponent
    return rounded


def floored(counts: Floats) -> Floats:
    """Raise counts to a fifth of an even share, and to one record."""
    return np.maximum(counts, max(1.0, LEAST_SHARE * float(counts.sum()) / len(counts)))


def words_of(label: str) -> str:
    """Write a label as words.

    >>> words_of("card_arrival"), words_of("BookRestaurant")
    ('card arrival', 'book restaurant')
    """
    return " ".join(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", label).replace("_", " ").replace("-", " ").lower().split())


def name_vectors(statistic: Statistic, names: Mapping[str, str]) -> Floats:
    """Return unit vectors of the labels' names, zeros where a name says nothing, shape (labels, d)."""
    unlisted = set(names) - set(statistic.labels)
    if unlisted:
        raise InputError(f"{len(unlisted)} names are of labels that the statistic does not list", "name listed labels")
    words = [names.get(label, words_of(label)) for label in statistic.labels]
    vectors = encode(statistic.corpus, pa.array(words, pa.large_string()), statistic.n_max)
    points = statistic.projection.contributions(vectors) / statistic.projection.clip
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    units: Floats = points / np.where(lengths > 0, lengths, 1.0)
    return units
