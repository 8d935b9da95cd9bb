"""CusText replaces every word by a draw from a small public set of words that contains it.

Paper: Chen et al. 2023, "A Customized Text Sanitization Mechanism with Differential Privacy" (sections 3 and 4).
Where the paper is wrong, and what holds here (docs/spec/privacy.md#custext):

* Its epsilon-DP for documents holds only between texts whose words lie in the same output sets: the set of every word
  is disclosed ("cluster"). CusText+ releases stopwords, which is a disclosure and not free.
* A remainder of one word would be released unchanged, so strict mode merges the remainder into the set before it.
* The order of the words is public (the order of the vectors); it never comes from frequencies in the private data.
* Unknown words and numbers are drawn uniformly from the vocabulary instead of being kept or shifted.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator
from safetensors.numpy import load_file

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.artifacts import save_tensors, store
from dptext_etl.embeddings import Metric, WordVectors, stopwords
from dptext_etl.errors import PolicyError
from dptext_etl.families.stored_distributions import TableMechanism, TableParts
from dptext_etl.families.words import Division, Indices, Scored, ScoredDraw
from dptext_etl.guarantee import Disclosure
from dptext_etl.sampling import Slots, integer_weights

Sets = list[npt.NDArray[np.int64]]

PAPER_N_MAX = 128
_SETS = "dptext-sets/1"
_CELLS = 2**15  # scores turned into weights at once
SCORED = 2**16  # scores that are drawn from at once, where a budget is divided
ONE_LEVEL = 4_096  # largest set that is drawn from in one level


class CusText(TableMechanism):
    """CusText and CusText+ (Chen et al. 2023).

    Attributes:
        epsilon: Epsilon per word.
        variant: "plain" draws every word; "plus" keeps stopwords unchanged (disclosure "stopwords").
        k: Number of words in an output set, at least 2.
        norm: Range that scales the scores: of the whole set ("cluster", the paper), or of the input's row ("row", the
            published code; faithful only).
        metric: "euclidean" or "cosine".
        vectors: Public word vectors: "english-20k", "english-20k-synonyms" (better for sentiment at small epsilon), or
            a path.
        stopwords: Public list for "plus": "english" or a path.

    Example:
        >>> mechanism = CusText.example()
        >>> words, probabilities = mechanism.transition("good")
        >>> "good" in words, sum(probabilities) == 1
        (True, True)
    """

    artifact_fields: ClassVar[frozenset[str]] = frozenset({"vectors", "stopwords"})
    cannot_divide: ClassVar[None] = None

    variant: Literal["plain", "plus"] = "plain"
    k: Annotated[int, Field(ge=2, le=65_536)] = 20
    norm: Literal["cluster", "row"] = "cluster"
    metric: Metric = "euclidean"
    vectors: str = "english-20k"
    stopwords: str = "english"

    @model_validator(mode="before")
    @classmethod
    def _paper_length(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("mode") == "faithful":
            return {"n_max": PAPER_N_MAX, **values}
        return values

    @model_validator(mode="after")
    def _strict_norm(self) -> Self:
        if self.mode == "strict" and self.norm == "row":
            raise ValueError('norm "row" is the published code, not the paper; use norm "cluster" or mode "faithful"')
        return self

    @property
    def word_disclosures(self) -> frozenset[Disclosure]:
        """Return the disclosures of words: the output set of every word and, for "plus", stopwords."""
        return frozenset({Disclosure.CLUSTER} | ({Disclosure.STOPWORDS} if self.variant == "plus" else set()))

    def table_description(self) -> dict[str, Any]:
        return {
            "mechanism": "custext",
            "version": self.version,
            "epsilon": repr(self.unit_epsilon),
            "k": self.k,
            "norm": self.norm,
            "metric": self.metric,
            "remainder": "merged" if self.mode == "strict" else "last set",
            "vectors": self._words.artifact.sha256,
            "kept": stopwords(self.stopwords).artifact.sha256 if self.variant == "plus" else None,
        }

    @cached_property
    def _words(self) -> WordVectors:
        return WordVectors.load(self.vectors, limit=self.limit)

    def parts(self) -> TableParts:
        vectors, sets = self._vectors_and_sets()
        weights: list[npt.NDArray[np.uint64]] = [np.empty((0, 0), np.uint64)] * len(sets)
        by_size: dict[int, list[int]] = {}  # sets of one size are computed together
        for at, members in enumerate(sets):
            by_size.setdefault(len(members), []).append(at)
        for size, places in by_size.items():
            step = max(1, _CELLS // size**2)
            for chunk in (places[start : start + step] for start in range(0, len(places), step)):
                scores = self._scores(vectors, np.stack([sets[at] for at in chunk]))
                for at, rows in zip(chunk, integer_weights(scores, self.unit_epsilon), strict=True):
                    weights[at] = rows
        kept = stopwords(self.stopwords).words if self.variant == "plus" else ()
        return TableParts.partition(vectors.words, sets, weights, kept=kept)

    def _vectors_and_sets(self) -> tuple[WordVectors, Sets]:
        """Return the vocabulary and its partition, the remainder treated as the mode says."""
        vectors = self._words
        if self.k > len(vectors.words):
            raise PolicyError(f"k is {self.k}, but the vocabulary has {len(vectors.words)} words", "lower k")
        sets = stored_sets(vectors, self.k, self.metric)
        if len(sets) > 1 and len(sets[-1]) < self.k:
            if self.mode == "strict":
                remainder = sets.pop()
                sets[-1] = np.concatenate([sets[-1], remainder])
            elif len(sets[-1]) == 1:  # a set of one would release its word; faithful mode counts this word as unknown
                *kept, (dropped,) = sets
                vectors = vectors.take(vectors.words[:dropped] + vectors.words[dropped + 1 :])
                sets = [np.where(members > dropped, members - 1, members) for members in kept]
        return vectors, sets

    def _scores(self, vectors: WordVectors, sets: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the scores of all pairs within sets of one size, from 0 to 1, shape (sets, members, members)."""
        closeness = vectors.closeness_within(sets, self.metric)
        axes = (1, 2) if self.norm == "cluster" else 2
        low, high = closeness.min(axis=axes, keepdims=True), closeness.max(axis=axes, keepdims=True)
        scores: npt.NDArray[np.float64] = (closeness - low) / np.where(high > low, high - low, 1.0)
        return scores

    @cached_property
    def division(self) -> Division:
        """Return how words with given epsilons are drawn: by the scores of their sets, from 0 to 1."""
        names, kept = tuple(self._mapped.input_words()), frozenset(self._mapped.kept_words())
        draw = ScoredDraw(self._scored, 0.0, 1.0, np.arange(len(names)), self._mapped.max_set)
        return Division(_kernel.Vocabulary(names, sorted(kept)), names, draw, draw.largest_set, kept)

    @cached_property
    def _placed(self) -> tuple[WordVectors, Sets, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the vectors, the sets, and for every word its set and its place in it."""
        vectors, sets = self._vectors_and_sets()
        sizes = np.array([len(members) for members in sets])
        if sizes.min() <= ONE_LEVEL < sizes.max():
            problem = f"sets of {sizes.min()} and of {sizes.max()} words share no width of a draw"
            raise PolicyError(problem, "use another k, or no allocation")
        order = np.concatenate(sets)
        of_word, place = np.empty((2, len(order)), np.int64)
        of_word[order] = np.repeat(np.arange(len(sets)), sizes)
        place[order] = np.concatenate([np.arange(size) for size in sizes])
        return vectors, sets, of_word, place

    def _scored(self, words: Indices, slots: Slots, offset: int) -> Iterator[Scored]:  # noqa: ARG002
        """Score the members of each word's set; sets of one size together."""
        vectors, sets, of_word, place = self._placed
        set_numbers = of_word[words]
        sizes = np.array([len(sets[number]) for number in set_numbers], np.int64)
        for size in np.unique(sizes):
            group = np.flatnonzero(sizes == size)
            step = max(1, SCORED // int(size))
            for at in (group[first : first + step] for first in range(0, len(group), step)):
                distinct, row = np.unique(set_numbers[at], return_inverse=True)
                members = np.stack([sets[number] for number in distinct])
                scores = self._scores(vectors, members)[row, place[words[at]]]
                yield Scored(at, scores, members[row])

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=2.0)


def stored_sets(vectors: WordVectors, k: int, metric: Metric) -> Sets:
    """Return the partition, which is stored once per vocabulary, k and metric, for all epsilons."""
    description = {"format": _SETS, "vectors": vectors.artifact.sha256, "k": k, "metric": metric}

    def build(path: Path) -> None:
        members = np.concatenate(partition(vectors, k, metric)).astype(np.uint32)
        save_tensors(path, {"members": members}, {"format": _SETS})

    members = load_file(store(description, build, suffix=".safetensors").path)["members"].astype(np.int64)
    return _cut(members, k)


def partition(vectors: WordVectors, k: int, metric: Metric) -> Sets:
    """Cut the vocabulary into sets of k words: the next unused word in public order and its k-1 nearest unused words.

    Distances are exact integers (`embeddings`), and of equal ones the earlier word wins, so the partition is the same
    on every machine.
    """
    grid = np.ascontiguousarray(vectors.vectors, dtype=np.int16)
    sets = _kernel.output_sets(to_arrow(grid.reshape(-1)), grid.shape[1], k, metric == "cosine")
    return _cut(to_numpy(pa.array(sets)).astype(np.int64), k)


def _cut(members: npt.NDArray[np.int64], k: int) -> Sets:
    return [members[start : start + k] for start in range(0, len(members), k)]
