"""Replace words according to the positions of their vectors among those of a public vocabulary."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.artifacts import Artifact, canon, store
from dptext_etl.embeddings import WordVectors
from dptext_etl.embeddings.search import largest_squared_distance
from dptext_etl.errors import PolicyError
from dptext_etl.families.division import Indices, parts, release_divided
from dptext_etl.families.words import WordMechanism
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PAD, Released
from dptext_etl.scoring import Slots

AT_ONCE = 2**23  # draws that are processed at once, 40 bytes each


@dataclass(frozen=True)
class Draws(Slots):
    """The draws of a batch: one per word that is not kept in clear."""

    words: Indices  # id of each word in the vocabulary, `UNKNOWN` outside it, shape (n,)

    def take(self, some: npt.NDArray[Any] | slice) -> Self:
        return replace(super().take(some), words=self.words[some])

    def by_word(self) -> npt.NDArray[np.int64]:
        """Return the indices of the draws ordered by word, unknown ones last, in linear time."""
        return to_numpy(pa.array(_kernel.by_word(to_arrow(self.words))))


class VectorMechanism(WordMechanism):
    """A mechanism over public word vectors.

    Attributes:
        vectors: Public word vectors, "english-20k" or a path; their words are the vocabulary.
    """

    artifact_fields: ClassVar[frozenset[str]] = frozenset({"vectors"})
    _pads: ClassVar[bool] = True

    vectors: str = "english-20k"

    @classmethod
    def aligned(cls, epsilon: float, **parameters: Any) -> Self:
        """Return the mechanism whose draw costs at most `epsilon` between any two words: epsilon / diameter.

        Paper 004 compares mechanisms at such an epsilon; nothing else here divides by the diameter.
        """
        probe = cls(**{"epsilon": epsilon, **parameters})
        shared = epsilon / probe.diameter
        while shared * probe.diameter > epsilon:
            shared = float(np.nextafter(shared, 0.0))
        return cls(**{**parameters, "epsilon": shared})

    @cached_property
    def words(self) -> WordVectors:
        """Return the vocabulary and its vectors; if the length is hidden, `PAD` is the last word, at the origin."""
        loaded = WordVectors.load(self.vectors, limit=self.limit)
        return shared_vocabulary(self.vectors, self.limit, loaded.artifact.sha256, padded=self.hides_length)

    @cached_property
    def _vocabulary(self) -> _kernel.Vocabulary:
        return _kernel.Vocabulary(self.words.words)

    @cached_property
    def span(self) -> Artifact:
        """Return the largest squared distance of two words in grid steps; it is computed once per machine."""
        words = self.words
        description = {"format": "dptext-span/1", "vectors": words.artifact.sha256, "padded": self.hides_length}
        return stored_fact(description, lambda: largest_squared_distance(words))

    @cached_property
    def diameter(self) -> float:
        """Return the largest distance of two words, `PAD` included, in the vectors' units; at least one grid step."""
        return float(np.sqrt(np.float64(max(read_fact(self.span), 1)))) * self.words.scale

    def artifacts(self) -> dict[str, Artifact]:
        return {"vectors": self.words.artifact, **super().artifacts()}

    def input_words(self) -> tuple[str, ...]:
        """Return the vocabulary in public order; every other word counts as unknown."""
        return tuple(word for word in self.words.words if word != PAD)

    def output_words(self) -> frozenset[str] | None:
        """Return the vocabulary; None in faithful mode, which keeps more than words."""
        return None if self.mode == "faithful" else frozenset(self.input_words())

    def positions(self, texts: pa.Array) -> pa.Array:
        """Count draws: words after the input policy, or `n_max` if the length is hidden."""
        return pa.array(self._vocabulary.positions(texts, self._input_policy_json))

    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        if self.allocation is not None:
            return release_divided(self, self.allocation, texts, keys.of(texts))
        record_keys, policy = keys.of(texts), self._input_policy_json
        words, offsets = (pa.array(side).to_numpy() for side in self._vocabulary.encode(texts, policy, record_keys))
        chosen = np.empty(len(words), np.uint32)
        for first, last in parts(offsets, AT_ONCE):
            if offsets[first] == offsets[last]:
                continue
            chosen[offsets[first] : offsets[last]] = self.choose(number_draws(words, offsets, record_keys, first, last))
        out = pa.array(self._vocabulary.assemble(texts, pa.array(offsets), pa.array(chosen), policy))
        return Released(out.field("text"), out.field("positions"))

    @abstractmethod
    def choose(self, draws: Draws) -> Indices:
        """Draw an output for every word, and return its id in the vocabulary, shape (n,)."""

    def _number_of(self, word: str) -> int:
        """Return the id of one word, read as in a text; `UNKNOWN` outside the vocabulary."""
        if word == PAD and self.hides_length:
            return len(self.words) - 1
        policy = {name: value for name, value in self.input_policy().items() if name != "length"}
        numbers = pa.array(self._vocabulary.encode(pa.array([word], pa.large_string()), json.dumps(policy))[0])
        if len(numbers) != 1 or _kernel.split(word) != [(word, True)]:
            raise PolicyError("a distribution is that of one word that is drawn", "give a word of the vocabulary")
        return int(numbers[0].as_py())


def stored_fact(description: dict[str, Any], found: Callable[[], Any]) -> Artifact:
    """Store a fact about public inputs as plain data; it is computed once per machine, under its description."""
    return store(description, lambda path: _write(path, found()), suffix=".json")


def read_fact(artifact: Artifact) -> Any:
    return json.loads(artifact.path.read_bytes())["found"]


def _write(path: Path, found: Any) -> None:
    path.write_bytes(canon({"found": found}))


def number_draws(words: Indices, offsets: npt.NDArray[np.uint64], keys: pa.Array, first: int, last: int) -> Draws:
    """Number the draws of some rows: running sums of what changes where a row begins, as there are far fewer rows."""
    starts = (offsets[first : last + 1] - offsets[first]).astype(np.int64)
    counts = np.diff(starts)
    rows = np.flatnonzero(counts)
    begins = starts[rows]
    records = np.zeros(starts[-1], np.uint32)
    records[begins] = np.diff(rows, prepend=-first)
    positions = np.ones(starts[-1], np.int64)
    positions[begins] = 1 - counts[rows[np.arange(len(rows)) - 1]]
    positions[begins[:1]] = 0
    np.cumsum(records, dtype=np.uint32, out=records)
    np.cumsum(positions, out=positions)
    return Draws(keys, records, positions.view(np.uint64), words[offsets[first] : offsets[last]])


@lru_cache(maxsize=4)
def shared_vocabulary(source: str, limit: int | None, sha256: str, *, padded: bool) -> WordVectors:  # noqa: ARG001
    """Return a vocabulary by its hash; all mechanisms of a process share it and everything computed from it."""
    vectors = WordVectors.load(source, limit=limit)
    return vectors.with_origin(PAD) if padded else vectors
