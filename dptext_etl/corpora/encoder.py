"""Encode texts as integer vectors: by the vectors of their words, or by a model of sentence-transformers.

The first is the reference of what the kernel computes. Every step of it is exact or correctly rounded: all machines get
the same integers (docs/spec/surrogate.md#words-encoder). A model (extra `semantic`) computes in floats: vectors may
differ by machine, so a mechanism over such a corpus is not reproducible, and the first commit is the release
(docs/spec/surrogate.md#exactness). The theorem holds whatever the model computes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.errors import ArtifactError, PolicyError, seam
from dptext_etl.extras import install

Int8s = npt.NDArray[np.int8]
Integers = npt.NDArray[np.int64]

MOST_DIMENSIONS = 1040
"""Inner products of int8 vectors of so many dimensions stay below 2^24."""
MOST_WORDS = 65_535
"""So many int16 vectors add up in int32."""
_SMALL = 2**26
"""The squares of so many dimensions of numbers below it add up in int64."""
_UNKNOWN = 2**32 - 1


def quantised(sums: Integers) -> Int8s:
    """Scale every row to length 127 and round it to integers; a row of zeros stays."""
    sums = np.asarray(sums, np.int64)
    squares: npt.NDArray[np.float64]
    if np.abs(sums).max(initial=0) < _SMALL:
        squares = np.einsum("ij,ij->i", sums, sums).astype(np.float64)
    else:
        squares = np.array([float(sum(number * number for number in row)) for row in sums.tolist()])
    with np.errstate(invalid="ignore"):
        scaled = (127.0 * sums) / np.sqrt(squares)[:, None]
    vectors: Int8s = np.rint(np.where(squares[:, None] > 0, scaled, 0.0)).astype(np.int8)
    return vectors


@dataclass(frozen=True, eq=False)
class WordEncoder:
    """Sum the vectors of a text's words; the weights of words are folded into their vectors.

    Attributes:
        words: Unique words in the form of lookups (lower case, plain apostrophe), shape (v,).
        vectors: Their vectors, int16, shape (v, k), k from 1 to `MOST_DIMENSIONS`.
    """

    words: Sequence[str]
    vectors: npt.NDArray[np.int16]

    def __post_init__(self) -> None:
        shape = self.vectors.shape
        if self.vectors.dtype != np.int16 or len(shape) != 2 or shape[0] != len(self.words) or not len(self.words):
            message = f"{len(self.words)} words have as many int16 vectors, got {self.vectors.dtype} of shape {shape}"
            raise ArtifactError(message, "give one row per word")
        if not 1 <= shape[1] <= MOST_DIMENSIONS:
            raise ArtifactError(f"vectors have from 1 to {MOST_DIMENSIONS} dimensions, got {shape[1]}")

    @cached_property
    def _vocabulary(self) -> _kernel.Vocabulary:
        return _kernel.Vocabulary(list(self.words))

    def numbers(self, texts: Sequence[str], n_max: int = MOST_WORDS) -> list[npt.NDArray[np.uint32]]:
        """Return the numbers of a text's words as the kernel finds them, 2^32 - 1 for an unknown word."""
        policy = {"case": "lower", "punctuation": "drop", "numbers": "uniform", "oov": "uniform", "null": "pass"}
        rows = pa.array(texts, pa.large_string())
        words, offsets = self._vocabulary.encode(rows, json.dumps({**policy, "n_max": n_max}))
        found: npt.NDArray[np.uint32] = pa.array(words).to_numpy(zero_copy_only=False)
        return np.split(found, pa.array(offsets).to_numpy(zero_copy_only=False)[1:-1].astype(np.int64))

    def sums(self, texts: Sequence[str], *, parts: int = 1, n_max: int = MOST_WORDS) -> Integers:
        """Return the sums of word vectors of every part of every text, shape (n * parts, k)."""
        sums = np.zeros((len(texts) * parts, self.vectors.shape[1]), np.int64)
        for row, numbers in enumerate(self.numbers(texts, n_max) if len(texts) else ()):
            for part in range(parts):
                own = numbers[part * len(numbers) // parts : (part + 1) * len(numbers) // parts]
                known = own[own != _UNKNOWN]
                sums[row * parts + part] = self.vectors[known].sum(axis=0, dtype=np.int64)
        return sums

    def encode(self, texts: Sequence[str], *, parts: int = 1, n_max: int = MOST_WORDS) -> Int8s:
        """Return the vector of every part of every text, int8, shape (n * parts, k); zeros where no word is known."""
        return quantised(self.sums(texts, parts=parts, n_max=n_max))


def products(queries: Int8s, vectors: Int8s) -> npt.NDArray[np.float32]:
    """Return exact inner products of int8 vectors, which float32 holds below 2^24, shape (queries, vectors)."""
    scores: npt.NDArray[np.float32] = queries.astype(np.float32) @ vectors.astype(np.float32).T
    return scores


def nearest(scores: npt.NDArray[Any], d: int) -> Integers:
    """Return the d indices of largest score of each row, the smaller index first of equals, shape (rows, d)."""
    order: Integers = np.argsort(-scores, axis=1, kind="stable")[:, :d].astype(np.int64)
    return order


EXTRA = "semantic"


class SentenceModel:
    """A model that gives a vector to each text."""

    def __init__(self, name: str, batch: int = 1) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            missing = True
        else:
            missing = False
        if missing:
            raise PolicyError("the encoder sentence-transformers needs a library that is not here", install(EXTRA))
        with seam("loading a model of sentence-transformers", ArtifactError, "name its folder, or its name on the hub"):
            self._model: Any = SentenceTransformer(name)
        self._batch = batch

    def encode(self, texts: Sequence[str]) -> Int8s:
        """Return int8 vectors of length 127 or less, shape (n, k); zeros for an empty text and for no finite vector."""
        with seam("encoding texts", ArtifactError):
            found = self._model.encode(list(texts), batch_size=self._batch, show_progress_bar=False)
            floats = np.asarray(found, dtype=np.float64)
        if floats.ndim != 2 or not 1 <= floats.shape[1] <= MOST_DIMENSIONS:
            raise ArtifactError(f"the model's vectors have shape {floats.shape}; allowed: up to {MOST_DIMENSIONS} wide")
        lengths = np.linalg.norm(floats, axis=1, keepdims=True)
        usable = np.isfinite(lengths) & (lengths > 0) & np.array([[bool(text.strip())] for text in texts])
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = 127.0 * floats / lengths
        vectors: Int8s = np.rint(np.where(usable, scaled, 0.0)).astype(np.int8)
        return vectors
