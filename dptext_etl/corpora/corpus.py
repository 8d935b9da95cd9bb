"""Hold a corpus: public texts, their integer vectors, and the encoder of other texts, in one file named by its hash.

A corpus is a folder with `corpus.safetensors`, which the kernel maps, and `card.json`, which is for people and lists
the files that were read. The file:

* `texts`: U8, distinct texts, one per line, in Unicode form NFC with single spaces;
* `vectors`: I8, shape (m, k), entries from -127 to 127;
* `words`: U8, one word per line in the form of lookups; `word_vectors`: I16, shape (v, k). Both are empty where the
  encoder is no sum of word vectors;
* metadata: `format` and `description`, plain data as canonical JSON: name, license, provenance, `encoder` (`kind` and
  `name`), `hits` (hit rates by epsilon), build options.

Specification: docs/spec/surrogate.md#encoder-and-corpus.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from dptext_etl import extensions
from dptext_etl.artifacts import Artifact, canon, save_tensors, store
from dptext_etl.corpora.encoder import MOST_DIMENSIONS, Int8s, WordEncoder, quantised
from dptext_etl.errors import ArtifactError, InputError, seam
from dptext_etl.storage import Objects

FORMAT = "dptext-corpus/1"
CONTENT = "corpus.safetensors"
CARD = "card.json"
_HINT = "a corpus is a folder that `dptext corpus build` writes, its file corpus.safetensors, their URL, or a name"


@dataclass(frozen=True, eq=False)
class Corpus:
    """A public corpus on this machine; the hash of its file is its identity.

    Attributes:
        artifact: The file, its hash, license and provenance.
        description: Facts, plain data.
    """

    artifact: Artifact
    description: Mapping[str, Any]

    @classmethod
    def open(cls, reference: str | Path, sha256: str | None = None) -> Self:
        """Open a corpus by its folder, its file, their URL or its name."""
        path = _file(reference)
        artifact = Artifact.open(path, sha256)
        with seam(f"reading the corpus {path.name}", ArtifactError, _HINT), safe_open(path, "np") as file:
            metadata = file.metadata() or {}
        if metadata.get("format") != FORMAT:
            raise ArtifactError(f"{path.name} is not a corpus ({FORMAT})", _HINT)
        with seam(f"reading the corpus {path.name}", ArtifactError, _HINT):
            facts: dict[str, Any] = json.loads(metadata["description"])
        licence, provenance = str(facts.get("licence", "not stated")), str(facts.get("provenance", "not stated"))
        return cls(replace(artifact, licence=licence, provenance=provenance, description=facts), facts)

    @classmethod
    def save(
        cls,
        folder: Path,
        texts: Sequence[str],
        description: Mapping[str, Any],
        *,
        encoder: WordEncoder | None = None,
        vectors: Int8s | None = None,
        files: Mapping[str, int] | None = None,
    ) -> Self:
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / CONTENT, texts, description, encoder=encoder, vectors=vectors)
        corpus = cls.open(folder)
        card = {**description, "format": FORMAT, "sha256": corpus.sha256, "texts": len(corpus)}
        card["files"] = dict(sorted((files or {}).items()))
        (folder / CARD).write_text(json.dumps(card, indent=2, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")
        return corpus

    @property
    def sha256(self) -> str:
        return self.artifact.sha256

    @property
    def path(self) -> Path:
        return self.artifact.path

    @property
    def encoder_kind(self) -> str:
        """Return "words", "task" or "sentence-transformers"."""
        return str(self.description.get("encoder", {}).get("kind", "words"))

    @cached_property
    def texts(self) -> tuple[str, ...]:
        return _lines(self._tensor("texts"))

    @cached_property
    def vectors(self) -> Int8s:
        """Return the vectors of the texts, shape (m, k), read-only."""
        vectors: Int8s = self._tensor("vectors")
        vectors.flags.writeable = False
        return vectors

    @cached_property
    def encoder(self) -> WordEncoder:
        words = _lines(self._tensor("words"))
        if not words:
            raise ArtifactError("the corpus has no vectors of words: a model encoded it", "load that model")
        return WordEncoder(words, self._tensor("word_vectors"))

    @property
    def hits(self) -> dict[float, float]:
        """Return the hit rate that was calibrated for each epsilon of one draw; empty without a calibration."""
        return {float(epsilon): float(hit) for epsilon, hit in self.description.get("hits", {}).items()}

    @property
    def files(self) -> dict[str, int]:
        """Return the size in bytes of each file that the corpus was made from, by SHA-256, as its card says."""
        card = self.path.parent / CARD
        if self.path.name != CONTENT or not card.is_file():
            return {}
        with seam(f"reading {card.name} of the corpus", ArtifactError, _HINT):
            said: dict[str, int] = json.loads(card.read_text("utf-8")).get("files", {})
        return said

    def __len__(self) -> int:
        with safe_open(self.path, "np") as file:
            return int(file.get_slice("vectors").get_shape()[0])

    def __repr__(self) -> str:
        return f"Corpus({self.description.get('name', self.path.parent.name)}, {len(self):,} texts, {self.sha256[:12]})"

    def _tensor(self, name: str) -> npt.NDArray[Any]:
        with seam(f"reading the corpus {self.path.name}", ArtifactError, _HINT), safe_open(self.path, "np") as file:
            tensor: npt.NDArray[Any] = file.get_tensor(name)
        return tensor


def write(
    path: Path,
    texts: Sequence[str],
    description: Mapping[str, Any],
    *,
    encoder: WordEncoder | None = None,
    vectors: Int8s | None = None,
) -> None:
    """Write the file of a corpus; arguments and errors are those of `Corpus.save`."""
    _check_texts(texts)
    if vectors is None:
        if encoder is None:
            raise ArtifactError("a corpus has an encoder, or vectors that were made elsewhere", "give one of them")
        vectors = quantised(encoder.sums(texts))
    if vectors.dtype != np.int8 or vectors.ndim != 2 or len(vectors) != len(texts):
        actual = f"{vectors.dtype} of shape {vectors.shape}"
        raise ArtifactError(f"{len(texts)} texts have as many int8 vectors, got {actual}")
    if not 1 <= vectors.shape[1] <= MOST_DIMENSIONS or int(vectors.min()) < -127:
        raise ArtifactError(f"vectors have from 1 to {MOST_DIMENSIONS} dimensions and entries from -127 to 127")
    missing = {"licence", "provenance"} - {name for name, value in description.items() if value}
    if missing:
        raise ArtifactError(f"a corpus states its {' and '.join(sorted(missing))}", "say where its texts come from")
    none = np.zeros((0, vectors.shape[1]), np.int16)
    tensors: dict[str, npt.NDArray[Any]] = {
        "texts": _blob(texts),
        "vectors": vectors,
        "words": _blob(() if encoder is None else encoder.words),
        "word_vectors": none if encoder is None else encoder.vectors,
    }
    save_tensors(path, tensors, {"format": FORMAT, "description": canon(dict(description)).decode()})


def _check_texts(texts: Sequence[str]) -> None:
    if len(texts) < 2 or len(set(texts)) != len(texts):
        raise ArtifactError(f"a corpus holds two distinct texts or more, got {len(set(texts))} among {len(texts)}")
    for number, text in enumerate(texts):
        if not text or " ".join(text.split()) != text or unicodedata.normalize("NFC", text) != text:
            raise ArtifactError(
                f"text {number} of the corpus is empty, has other blanks than single spaces, or is not in form NFC",
                'normalize it: " ".join(unicodedata.normalize("NFC", text).split())',
            )


def _file(reference: str | Path) -> Path:
    if is_remote(str(reference)):
        return fetched(str(reference))
    path = Path(reference)
    if path.is_dir():
        return path / CONTENT
    if path.is_file():
        return path
    name = str(reference).replace("-", "_")
    if "_" in str(reference) or not extensions.known("corpora", name):
        raise ArtifactError(f"there is no corpus {str(reference)!r}", _HINT)
    module = extensions.module("corpora", name)  # written once per machine
    return store(module.description(), module.build, suffix=".safetensors").path


def _blob(lines: Sequence[str]) -> npt.NDArray[np.uint8]:
    return np.frombuffer("\n".join(lines).encode(), dtype=np.uint8)


def _lines(blob: npt.NDArray[np.uint8]) -> tuple[str, ...]:
    return tuple(blob.tobytes().decode().split("\n")) if len(blob) else ()


def names() -> tuple[str, ...]:
    """Return the names of all corpora that are installed, sorted.

    >>> "example" in names()
    True
    """
    return tuple(sorted(name.replace("_", "-") for name in extensions.names("corpora")))


def is_remote(reference: str) -> bool:
    """Return True if a reference names an object, not a path or a name.

    >>> is_remote("s3://bucket/turns"), is_remote("corpora/turns"), is_remote("everyday-30k")
    (True, False, False)
    """
    return "://" in reference


def fetched(url: str, options: Mapping[str, str] | None = None) -> Path:
    """Return the file of a corpus on this machine; it is downloaded where the cache has no such state of the object."""
    where, _, name = url.rstrip("/").rpartition("/")
    if PurePosixPath(name).suffix != ".safetensors":
        where, name = url.rstrip("/"), CONTENT

    def download(out: Path) -> None:
        if not storage.download(name, out):
            raise InputError(f"{name} was deleted while it was read", "name a corpus that stays where it is")

    try:
        storage = Objects.open(where, options or {})
        tag = storage.etag(name)
        if tag is not None:
            key = {"format": "object 1", "url": f"{where}/{name}", "tag": tag}
            return store(key, download, suffix=".safetensors").path
    except InputError as refused:
        raise ArtifactError(refused.message, refused.hint) from None
    raise ArtifactError(f"there is no corpus at {where}/{name}", "copy a corpus' folder there, or name another one")
