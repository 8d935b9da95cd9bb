"""Build the lists of neighboring words that 1-Diffractor draws from: public inputs in one file with one hash."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import load_file

from dptext_etl.artifacts import Artifact, canon, save_tensors, store
from dptext_etl.embeddings.vectors import (
    DEFAULT_VECTORS,
    Integers,
    Metric,
    WordVectors,
    stored_words,
    word_list,
    written,
)
from dptext_etl.errors import ArtifactError, seam

Order = npt.NDArray[np.uint32]
Guesses = npt.NDArray[np.float32]

NEAR = 48  # words of a short list
_FEW = 4  # a list with fewer unused words is made again together with the list of a near word
BLOCK = 512  # largest number of short lists that are made at once
_REPORT_SECONDS = 5
_COMPACT = 0.7  # used words leave the matrix when the share of unused ones falls below this
_GROUP = 16  # estimates per group; the best of each group serves to find a limit
_UNIT = 2.0**-24  # rounding of float32

log = logging.getLogger("dptext_etl.embeddings")


def nearest_walk(vectors: WordVectors, start: int = 0, metric: Metric = "euclidean") -> Order:
    """Order a vocabulary: begin with the start, then always append the nearest word that is not in the list yet.

    Distances are compared as exact integers, and of equal ones the earlier word wins, so the list is the same on every
    machine. The time grows with the square of the vocabulary's size, the memory only with its size.
    """
    total = len(vectors)
    words = UnusedWords(vectors, metric)
    order = np.empty(total, dtype=np.uint32)
    began = reported = time.monotonic()
    current = start
    for place in range(total):
        order[place] = current
        words.use(current)
        if (now := time.monotonic()) - reported >= _REPORT_SECONDS:
            reported = now
            log.info("list of neighbors: %d of %d words after %.0f s", place, total, now - began)
        if place + 1 < total:
            current = words.after(current)
    return order


class UnusedWords:
    """Hold the words that a list does not hold yet, and short lists of near words for most of them."""

    def __init__(self, vectors: WordVectors, metric: Metric) -> None:
        self._vectors, self._metric = vectors, metric
        self.left = len(vectors)  # number of unused words
        self._used = np.zeros(len(vectors) + 1, dtype=bool)
        self._used[-1] = True  # padding of short lists counts as used
        self._near = np.full((len(vectors), NEAR), len(vectors), dtype=np.int32)
        terms = (vectors.vectors.shape[1] + 8) * _UNIT
        self._error = terms / (1 - terms)
        lengths = np.sqrt(np.maximum(vectors.norms, 1))
        self._longest = float(lengths.max(initial=1))
        # an estimate is product * factor + offset: |y|^2 - 2xy, or -xy / |y|; the offset of a used word is infinite
        euclidean = metric == "euclidean"
        self._factors: Guesses = (np.full(len(vectors), -2) if euclidean else -1 / lengths).astype(np.float32)
        self._offsets: Guesses = (vectors.norms if euclidean else np.zeros(len(vectors))).astype(np.float32)
        self._ids, self._matrix = np.arange(len(vectors)), vectors.vectors.astype(np.float32)

    def use(self, words: int | Integers) -> None:
        self._used[words] = True
        self._offsets[np.searchsorted(self._ids, words)] = np.inf
        self.left -= np.size(words)

    def after(self, word: int) -> int:
        """Return the nearest unused word: the first one of the short list, since no nearer word is missing in it."""
        unused = ~self._used[self._near[word]]
        first = int(unused.argmax())
        if unused[first]:
            return int(self._near[word, first])
        self.compact()
        (guess,) = self.guesses(np.array([word]))
        around = self.nearest(word, min(BLOCK, self.left), guess)
        block = around[(~self._used[self._near[around]]).sum(axis=1) <= _FEW]
        count = min(NEAR + 1, self.left)  # one more, since an unused word is its own neighbor
        for near, guess in zip(block.tolist(), self.guesses(block), strict=True):
            neighbors = self.nearest(near, count, guess)
            neighbors = neighbors[neighbors != near][:NEAR]
            self._near[near] = len(self._near)
            self._near[near, : len(neighbors)] = neighbors
        return int(around[0])

    def compact(self) -> None:
        """Drop used words from the matrix if they are many."""
        if self.left < _COMPACT * len(self._ids):
            unused = ~self._used[self._ids]
            self._ids, self._matrix = self._ids[unused], self._matrix[unused]
            self._factors, self._offsets = self._factors[unused], self._offsets[unused]

    def guesses(self, words: Integers) -> Guesses:
        """Return the estimates that `nearest` needs, for several words at once, shape (words, held words)."""
        product: Guesses = self._vectors.vectors[words].astype(np.float32) @ self._matrix.T
        return product

    def nearest(self, word: int, k: int, guess: Guesses) -> Integers:
        """Return the k nearest unused words of a word, nearest first; of equally near words, the earlier one first."""
        length = float(np.sqrt(self._vectors.norms[word]))
        reach = self._longest * (2 * length + self._longest) if self._metric == "euclidean" else length
        slack = 2 * self._error * reach
        guess *= self._factors
        guess += self._offsets
        limit, width = math.inf, len(guess) // _GROUP
        if width >= 4 * k:  # the k-th best of groups is hardly larger than the k-th of all, and found much faster
            best = guess[: width * _GROUP].reshape(_GROUP, width).min(axis=0)
            limit = float(np.partition(best, k - 1)[k - 1])
        if not math.isfinite(limit):
            limit = float(np.partition(guess, k - 1)[k - 1])
        near = self._ids[guess <= np.nextafter(np.float32(limit + slack), np.float32(np.inf))]
        (keys,) = self._vectors.rank_keys([word], near, self._metric)
        nearest: Integers = near[np.argsort(keys, kind="stable")[:k]]
        return nearest


FORMAT = "dptext-neighbour-lists/1"
Vocabulary = Literal["common", "own"]
_HINT = "such files are written by NeighborLists.build(…).save(path)"


@dataclass(frozen=True, eq=False)
class NeighborLists:
    """Hold words and lists of them; every word is in at least one list."""

    words: tuple[str, ...]  # unique, in public order: words of the first embedding, then further ones of the next
    lists: tuple[Order, ...]  # the word ids of each list, which holds an id at most once
    artifact: Artifact  # the file; its hash is the identity, its provenance names the embeddings

    @property
    def even(self) -> bool:
        """Return True if every list holds every word; the guarantee of a mixture of lists needs this."""
        return all(len(order) == len(self.words) for order in self.lists)

    @cached_property
    def content(self) -> str:
        """Return the SHA-256 of words and lists; paths and names of the embeddings do not change it."""
        parts = ["\n".join(self.words).encode(), *(order.astype("<u4").tobytes() for order in self.lists)]
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()

    def __repr__(self) -> str:
        return f"NeighborLists({len(self.lists)} lists, {len(self.words)} words, {self.artifact.sha256[:12]})"

    @classmethod
    def build(
        cls,
        sources: Sequence[str | Path] = (DEFAULT_VECTORS,),
        *,
        metric: Metric = "euclidean",
        walks: int = 1,
        limit: int | None = None,
        vocabulary: Vocabulary = "common",
    ) -> Self:
        """Make `walks` lists of each embedding by greedy nearest neighbors, once per machine."""
        embeddings = [WordVectors.load(source) for source in sources]
        hashes = [vectors.artifact.sha256 for vectors in embeddings]
        if not embeddings or len(set(hashes)) < len(hashes) or walks < 1:
            raise ArtifactError(
                f"{len(embeddings)} embeddings, {len(set(hashes))} of them different, and {walks} lists of each",
                "name every embedding once; several lists of one embedding are asked for with walks",
            )
        description = {
            "format": FORMAT,
            "vectors": hashes,
            "metric": metric,
            "walks": walks,
            "limit": limit,
            "vocabulary": vocabulary,
        }
        facts = {
            "provenance": "; ".join(dict.fromkeys(vectors.artifact.provenance for vectors in embeddings)),
            "licence": "; ".join(dict.fromkeys(vectors.artifact.license for vectors in embeddings)),
        }
        artifact = store(
            description,
            lambda path: _save(path, embeddings, walks, limit, {**description, **facts}),
            suffix=".safetensors",
        )
        return cls.open(artifact.path)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        artifact = Artifact.open(path)
        words, lists, facts = _read(artifact.path, artifact.sha256)
        provenance = str(facts.get("provenance", artifact.provenance))
        terms = str(facts.get("licence", artifact.license))
        return cls(words, lists, replace(artifact, provenance=provenance, license=terms, description=facts))

    def save(self, path: str | Path) -> Path:
        """Copy the file to `path`, where `open` can read it."""
        with seam(f"writing the lists to {Path(path).name}", ArtifactError, "check the folder and its permissions"):
            return Path(shutil.copyfile(self.artifact.path, path))


def _save(path: Path, embeddings: list[WordVectors], walks: int, limit: int | None, facts: dict[str, Any]) -> None:
    if facts["vocabulary"] == "common":
        everywhere = set.intersection(*(set(vectors.words) for vectors in embeddings))
        words = tuple(word for word in embeddings[0].words if word in everywhere)[:limit]
        taken = [vectors.take(words) for vectors in embeddings]
    else:
        taken = [vectors.take(vectors.words[:limit]) for vectors in embeddings]
        words = tuple(dict.fromkeys(word for vectors in taken for word in vectors.words))
    fewest = min(map(len, taken))
    if fewest < max(2, walks):
        raise ArtifactError(
            f"the embeddings leave {fewest} words for a list that needs {max(2, walks)}",
            "name embeddings that share words, in one language; lower walks or raise limit",
        )
    index = {word: row for row, word in enumerate(words)}
    lists = []
    for number, vectors in enumerate(taken, 1):
        ids = np.array([index[word] for word in vectors.words], dtype=np.uint32)
        for walk in range(walks):
            log.info("embedding %d of %d, list %d of %d: %d words", number, len(taken), walk + 1, walks, len(vectors))
            lists.append(ids[nearest_walk(vectors, walk * len(vectors) // walks, facts["metric"])])
    tensors: dict[str, npt.NDArray[Any]] = {
        "words": stored_words(words),
        "lists": np.concatenate(lists),
        "offsets": np.concatenate([[0], np.cumsum([len(order) for order in lists])]).astype(np.uint64),
    }
    save_tensors(path, tensors, {"format": FORMAT, "description": canon(facts).decode()})


@lru_cache(maxsize=4)
def _read(path: Path, sha256: str) -> tuple[tuple[str, ...], tuple[Order, ...], dict[str, Any]]:  # noqa: ARG001
    """Read a file once per content; the caller computes the hash before every call. The arrays are read-only."""
    with seam(f"reading the lists {path.name}", ArtifactError, _HINT):
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
        sound = metadata.get("format") == FORMAT
        tensors = load_file(path) if sound else {}
        facts: dict[str, Any] = json.loads(metadata["description"]) if sound else {}
        words = tuple(word_list(tensors["words"])) if sound else ()
        ends = tensors["offsets"].astype(np.int64) if sound else np.zeros(1, np.int64)
        lists = tuple(tensors["lists"].astype(np.uint32)[a:b] for a, b in pairwise(ends.tolist()))
    if not sound or not _cover(words, lists) or any(written(word) != word for word in words):
        raise ArtifactError(
            f"{path.name} holds no lists of words ({FORMAT}), or lists that repeat or miss words", _HINT
        )
    for order in lists:
        order.flags.writeable = False
    return words, lists, facts


def _cover(words: tuple[str, ...], lists: tuple[Order, ...]) -> bool:
    """Say whether the lists hold only known words, each at most once per list, and together all of them."""
    if not lists or len(set(words)) != len(words):
        return False
    seen = np.zeros(len(words), dtype=bool)
    for order in lists:
        if len(order) < 2 or int(order.max()) >= len(words) or len(np.unique(order)) != len(order):
            return False
        seen[order] = True
    return bool(seen.all())
