"""Hold word vectors with integer coordinates, so that every machine finds the same neighbors.

Sums of products of small integers are exact in floating point, in any order of addition: in float32 below 2**24, in
float64 below 2**53. Distances are therefore exact integers, and equal distances are equal numbers. Of equally near
words the earlier one wins, and a table made from these vectors has the same bytes everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel, extensions
from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.artifacts import Artifact, sha256_file, store
from dptext_etl.embeddings.grid import FORMAT, Grid, convert, kind_of, read_grid
from dptext_etl.errors import ArtifactError

Metric = Literal["euclidean", "cosine"]
Rows = npt.NDArray[np.integer[Any]] | Sequence[int] | slice
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]

DEFAULT_VECTORS, SYNONYMS = "english-20k", "english-20k-synonyms"
SHIPPED = (DEFAULT_VECTORS, SYNONYMS)
"""Names of the vectors that ship: learned from text alone, and the same moved by synonyms and antonyms."""
DATA = Path(__file__).parent.parent / "data"
_ROWS = 256  # vectors whose lengths are computed at once


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Hold words in public order and their vectors; `vectors * scale` are the real coordinates.

    Attributes:
        words: n unique words in lower case without blanks; the most frequent first, if the source has that order.
        vectors: The grid, int8 or int16, shape (n, d), read-only.
        scale: Length of one grid step; distances here never use it.
        artifact: The grid's file. Its hash is the identity, its provenance names the source.
    """

    words: tuple[str, ...]
    vectors: Grid
    scale: float
    artifact: Artifact

    @classmethod
    def load(cls, source: str | Path = DEFAULT_VECTORS, *, limit: int | None = None) -> Self:
        """Read vectors that ship or a file; a file is quantised once and then kept in the artifact cache.

        Formats: GloVe and counter-fitted text ("word x1 … xd" per line), word2vec text (the same below a line "n d"),
        word2vec binary (`.bin`), `.npz` with `words` and `vectors`, and `.safetensors` as written here. See
        `embeddings.grid` for the rules on words and for quantization.
        """
        if limit is not None and limit < 1:
            raise ArtifactError(f"limit is {limit}; allowed: 1 and more", "leave limit out to take all words")
        path = _file(source)
        sha256 = sha256_file(path)
        kind = kind_of(path)
        if kind == "grid" and (limit is None or limit >= len(_grid(path, sha256)[0])):
            artifact = Artifact.open(path, sha256)
        else:
            artifact = store(
                {"format": FORMAT, "source": sha256, "kind": kind, "limit": limit},
                lambda out: convert(path, kind, limit, out),
                suffix=".safetensors",
                provenance=f"public, as declared by the user who named it: {path.name}, SHA-256 {sha256}",
                licence="that of the source",
            )
        words, vectors, facts = _grid(artifact.path, artifact.sha256)
        artifact = replace(
            artifact,
            provenance=str(facts.get("provenance", artifact.provenance)),
            licence=str(facts.get("licence", artifact.licence)),
            description={**artifact.description, **facts},
        )
        return cls(words, vectors, float(facts["scale"]), artifact)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        n, d = self.vectors.shape
        return f"WordVectors({n} words, {d} dimensions, {self.vectors.dtype}, {self.artifact.sha256[:12]})"

    @cached_property
    def index(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    def take(self, words: Iterable[str]) -> Self:
        """Return the vectors of some of the words in the given order; `artifact` stays that of the whole."""
        chosen = tuple(words)
        rows = [self.index[word] for word in chosen]
        vectors = self.vectors[rows]
        vectors.flags.writeable = False
        taken = replace(self, words=chosen, vectors=vectors)
        for name in {"norms", "floats"} & self.__dict__.keys():  # take over the cached properties
            taken.__dict__[name] = self.__dict__[name][rows]
        return taken

    def with_origin(self, word: str) -> Self:
        """Return these words and one more at the origin, as the last one; `artifact` stays the same."""
        vectors = np.concatenate([self.vectors, np.zeros((1, self.vectors.shape[1]), self.vectors.dtype)])
        vectors.flags.writeable = False
        return replace(self, words=(*self.words, word), vectors=vectors)

    @cached_property
    def norms(self) -> Integers:
        """Return the squared length of every vector in squared grid steps, shape (n,)."""
        norms = np.empty(len(self), dtype=np.int64)
        for start in range(0, len(self), _ROWS):
            rows = self.vectors[start : start + _ROWS].astype(np.float64)  # sums of squares stay below 2**53: exact
            norms[start : start + _ROWS] = np.einsum("ij,ij->i", rows, rows)
        return norms

    @cached_property
    def floats(self) -> Floats:
        return self.vectors.astype(self._width)

    @property
    def _width(self) -> type[np.floating[Any]]:
        # |x|^2 + |y|^2 - 2xy and every partial sum of xy stay below four times the longest squared length
        return np.float32 if 4 * int(self.norms.max(initial=0)) < 2**24 else np.float64

    def _dots(self, rows: Rows, columns: Rows) -> Floats:
        product: Floats = self.floats[rows] @ self.floats[columns].T
        return product

    def _squared(self, rows: Rows, columns: Rows) -> Floats:
        squared = self._dots(rows, columns)
        squared *= -2
        squared += self.norms[rows].astype(squared.dtype)[:, None]
        squared += self.norms[columns].astype(squared.dtype)
        return squared

    def products(self, rows: Rows, others: WordVectors) -> Floats:
        """Return exact dot products of some words with all words of `others`, shape (rows, others), contiguous rows."""
        product: Floats = self.floats[rows] @ others.floats.T
        return product

    def squared_distances(self, rows: Rows, columns: Rows) -> Integers:
        """Return exact squared Euclidean distances in squared grid steps, shape (rows, columns)."""
        return self._squared(rows, columns).astype(np.int64)

    def closeness_within(self, sets: Integers, metric: Metric = "euclidean") -> npt.NDArray[np.float64]:
        """Return minus the distance, or the cosine, of all pairs in each set, with the same bits on every machine."""
        vectors, norms = self.vectors[sets].astype(np.int16, copy=False), self.norms[sets].astype(np.float64)
        members = sets.shape[1]
        products = _kernel.products_within(to_arrow(vectors.reshape(-1)), vectors.shape[2], members)
        dots: npt.NDArray[np.float64] = to_numpy(pa.array(products)).reshape(len(sets), members, members)
        if metric == "euclidean":
            return -np.sqrt(norms[:, :, None] + norms[:, None, :] - 2 * dots)
        lengths = np.sqrt(norms[:, :, None] * norms[:, None, :])
        return dots / np.where(lengths > 0, lengths, 1.0)

    def rank_keys(self, rows: Rows, columns: Rows, metric: Metric = "euclidean") -> Iterator[Floats]:
        """Yield numbers that order the columns of each row by nearness, the same on every machine; smaller is nearer.

        Euclidean keys are the exact squared distances. Cosine keys are `-dot * |dot| / norm`: equal vectors have equal
        keys, and vectors of different lengths whose cosines agree to 15 digits may come in either order.
        """
        if metric == "euclidean":
            yield from self._squared(rows, columns)
            return
        norms = np.maximum(self.norms[columns], 1).astype(np.float64)
        sizes = np.empty_like(norms)
        for dots in self._dots(rows, columns):
            keys = dots.astype(np.float64)
            np.negative(np.abs(keys, out=sizes), out=sizes)
            keys *= sizes
            keys /= norms
            yield keys


def _file(source: str | Path) -> Path:
    """Return the file of vectors; a name that is no file may be one of dptext-etl-models, if that is installed."""
    if source in SHIPPED:
        return DATA / f"{source}.safetensors"
    if not Path(source).exists() and str(source) in extensions.installed("vectors"):
        return Path(extensions.loaded("vectors", str(source))(str(source))) / "model.safetensors"
    return Path(source)


@lru_cache(maxsize=4)
def _grid(path: Path, sha256: str) -> tuple[tuple[str, ...], Grid, dict[str, Any]]:  # noqa: ARG001
    """Read a grid once per content; the caller computes the hash before every call. The arrays are read-only."""
    return read_grid(path)
