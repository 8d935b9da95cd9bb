"""Lists of words in which neighbours stand beside each other: public inputs of 1-Diffractor, one file, one hash.

Paper: Meisenbacher et al. 2024, "1-Diffractor: Efficient and Utility-Preserving Text Obfuscation Leveraging
Word-Level Metric Differential Privacy" (section 3). The paper has five lists, one of each of five embeddings; so has
whoever names five files of vectors. One embedding gives several lists too: walks from other public words pass through
the same neighbourhoods in another order (our addition; the lists are public, so every theorem holds for them alike).
"""

from __future__ import annotations

import hashlib
import json
import shutil
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
from dptext_etl.embeddings.grid import written
from dptext_etl.embeddings.nearest_walk import Order, log, nearest_walk
from dptext_etl.embeddings.vectors import DEFAULT_VECTORS, Metric, WordVectors
from dptext_etl.errors import ArtifactError, seam

FORMAT = "dptext-neighbour-lists/1"
Vocabulary = Literal["common", "own"]
_HINT = "such files are written by NeighbourLists.build(…).save(path)"


@dataclass(frozen=True, eq=False)
class NeighbourLists:
    """Words and lists of them.

    Attributes:
        words: Unique, in public order: that of the first embedding, then what the next ones add.
        lists: One array of word ids per list, each id at most once; every word is in at least one list.
        artifact: The file: its hash is the identity, its provenance names the embeddings.
    """

    words: tuple[str, ...]
    lists: tuple[Order, ...]
    artifact: Artifact

    @property
    def even(self) -> bool:
        """Whether every list holds every word, which is what the guarantee of a mixture of lists rests on."""
        return all(len(order) == len(self.words) for order in self.lists)

    @cached_property
    def content(self) -> str:
        """SHA-256 of words and lists alone: the same wherever the embeddings lie and whatever they are called."""
        parts = ["\n".join(self.words).encode(), *(order.astype("<u4").tobytes() for order in self.lists)]
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()

    def __repr__(self) -> str:
        return f"NeighbourLists({len(self.lists)} lists, {len(self.words)} words, {self.artifact.sha256[:12]})"

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
        """Make lists of embeddings, once per machine: `walks` of each, by greedy nearest neighbours.

        Args:
            sources: Names or paths of word vectors, each once.
            metric: "euclidean" (the paper) or "cosine".
            walks: Lists of each embedding; walk k begins at word k * n // walks of its public order.
            limit: Take the first words only.
            vocabulary: "common": the words that all embeddings have, in every list. "own": every list has the words
                of its own embedding (the published code; no guarantee).

        Raises:
            ArtifactError: An embedding that cannot be read or is named twice, fewer than two words, more walks than
                words.
        """
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
            name: "; ".join(dict.fromkeys(getattr(vectors.artifact, name) for vectors in embeddings))
            for name in ("provenance", "licence")
        }
        artifact = store(
            description,
            lambda path: _save(path, embeddings, walks, limit, {**description, **facts}),
            suffix=".safetensors",
        )
        return cls.open(artifact.path)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Read lists from a file.

        Raises:
            ArtifactError: Missing, another format, or lists that repeat or miss words.
        """
        artifact = Artifact.open(path)
        words, lists, facts = _read(artifact.path, artifact.sha256)
        provenance = str(facts.get("provenance", artifact.provenance))
        licence = str(facts.get("licence", artifact.licence))
        return cls(words, lists, replace(artifact, provenance=provenance, licence=licence, description=facts))

    def save(self, path: str | Path) -> Path:
        """Copy the file to a place of one's own, from where `open` reads it."""
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
        "words": np.frombuffer("\n".join(words).encode(), dtype=np.uint8),
        "lists": np.concatenate(lists),
        "offsets": np.concatenate([[0], np.cumsum([len(order) for order in lists])]).astype(np.uint64),
    }
    save_tensors(path, tensors, {"format": FORMAT, "description": canon(facts).decode()})


@lru_cache(maxsize=4)
def _read(path: Path, sha256: str) -> tuple[tuple[str, ...], tuple[Order, ...], dict[str, Any]]:  # noqa: ARG001
    """Read a file once per content: the hash, taken before every call, is its identity; the arrays are read-only."""
    with seam(f"reading the lists {path.name}", ArtifactError, _HINT):
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
        sound = metadata.get("format") == FORMAT
        tensors = load_file(path) if sound else {}
        facts: dict[str, Any] = json.loads(metadata["description"]) if sound else {}
        words = tuple(tensors["words"].tobytes().decode().split("\n")) if sound else ()
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
    """Whether the lists hold known words, each at most once per list and all of them somewhere."""
    if not lists or len(set(words)) != len(words):
        return False
    seen = np.zeros(len(words), dtype=bool)
    for order in lists:
        if len(order) < 2 or int(order.max()) >= len(words) or len(np.unique(order)) != len(order):
            return False
        seen[order] = True
    return bool(seen.all())
