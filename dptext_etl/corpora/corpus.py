"""Hold a corpus (public texts, integer vectors, and an encoder), and encode texts by words or by a model.

`WordEncoder` is the reference for the kernel. Every step of it is exact or correctly rounded: all machines
get the same integers (docs/spec/surrogate.md#words-encoder). A model (extra `semantic`) computes in floats: vectors may
differ by machine, so a mechanism over such a corpus is not reproducible, and the first commit is the release
(docs/spec/surrogate.md#exactness). The theorem holds whatever the model computes.

A corpus is a folder with `corpus.safetensors`, which the kernel maps, and `card.json`, which is for people and lists
the files that were read. The file:

* `texts`: U8, distinct texts, one per line, in Unicode form NFC with single spaces;
* `vectors`: I8, shape (m, k), entries from -127 to 127;
* `words`: U8, one word per line in the form of lookups; `word_vectors`: I16, shape (v, k). Both are empty where the
  encoder is not a sum of word vectors;
* with token vectors `tokenizer`: U8, JSON; `token_vectors`: I16, shape (t, k), in the place of words and theirs;
* metadata: `format` and `description`, plain data as canonical JSON: name, license, provenance, `encoder` (`kind` and
  `name`), `hits` (hit rates by epsilon), build options.

Specification: docs/spec/surrogate.md#encoder-and-corpus.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from safetensors import safe_open

from dptext_etl import _kernel, extensions
from dptext_etl.artifacts import MADE_FROM, Artifact, Lineage, canon, save_tensors, store
from dptext_etl.device import Computing, computing
from dptext_etl.errors import ArtifactError, InputError, PolicyError, seam, without_panics
from dptext_etl.extensions import pip_install
from dptext_etl.storage import Objects

Int8s = npt.NDArray[np.int8]
Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

KIND = "sentence-transformers"
MOST_CHARACTERS = 2**16  # of a text that a tokenizer or a model reads; tokenizers may panic for millions of blanks
MOST_DIMENSIONS = 1040  # inner products of int8 vectors of that many dimensions stay below 2^24
MOST_WORDS = 65_535  # that many int16 vectors add up in int32
UNKNOWN = 2**32 - 1


def quantised(sums: Integers) -> Int8s:
    """Scale every row to length 127 and round it to integers; a row of zeros stays."""
    sums = np.asarray(sums, np.int64)
    squares: npt.NDArray[np.float64]
    if np.abs(sums).max(initial=0) < 2**26:  # the squares of that many dimensions add up in int64
        squares = np.einsum("ij,ij->i", sums, sums).astype(np.float64)
    else:
        squares = np.array([float(sum(number * number for number in row)) for row in sums.tolist()])
    with np.errstate(invalid="ignore"):
        scaled = (127.0 * sums) / np.sqrt(squares)[:, None]
    vectors: Int8s = np.rint(np.where(squares[:, None] > 0, scaled, 0.0)).astype(np.int8)
    return vectors


class Encoder(Protocol):
    """The function of an encoder that mechanisms use."""

    def encode(self, texts: Sequence[str], *, n_max: int = 0) -> Int8s:
        """Return vectors of length 127 or less, shape (n, k); zeros for a text that says nothing."""


def encoders() -> Any:
    """Return the module for models of sentence-transformers, which comes with `dptext-etl-models`."""
    return extensions.module("encoders", "sentence_transformers")


@dataclass(frozen=True, eq=False)
class WordEncoder:
    """Sum the vectors of a text's words; the weights of words are folded into their vectors."""

    words: Sequence[str]  # unique words in the form of lookups (lower case, plain apostrophe), shape (v,)
    vectors: npt.NDArray[np.int16]  # their vectors, int16, shape (v, k), k from 1 to `MOST_DIMENSIONS`

    def __post_init__(self) -> None:
        shape = self.vectors.shape
        if self.vectors.dtype != np.int16 or len(shape) != 2 or shape[0] != len(self.words) or not len(self.words):
            message = f"{len(self.words)} words have as many int16 vectors, got {self.vectors.dtype} of shape {shape}"
            raise ArtifactError(message, "give one row per word")
        if not 1 <= shape[1] <= MOST_DIMENSIONS:
            raise ArtifactError(
                f"vectors have from 1 to {MOST_DIMENSIONS} dimensions, got {shape[1]}",
                "use vectors with fewer dimensions",
            )

    @cached_property
    def _vocabulary(self) -> _kernel.Vocabulary:
        return _kernel.Vocabulary(list(self.words))

    def numbers(self, texts: Sequence[str], n_max: int = MOST_WORDS) -> list[npt.NDArray[np.uint32]]:
        """Return the numbers of a text's words as the kernel finds them, 2^32 - 1 for an unknown word."""
        policy = {"case": "lower", "punctuation": "drop", "numbers": "uniform", "oov": "uniform", "null": "pass"}
        rows = pa.array(texts, pa.large_string())
        words, offsets = self._vocabulary.encode(rows, json.dumps({**policy, "n_max": n_max}))
        joined: npt.NDArray[np.uint32] = pa.array(words).to_numpy(zero_copy_only=False)
        return np.split(joined, pa.array(offsets).to_numpy(zero_copy_only=False)[1:-1].astype(np.int64))

    def sums(self, texts: Sequence[str], *, parts: int = 1, n_max: int = MOST_WORDS) -> Integers:
        """Return the sums of word vectors of every part of every text, shape (n * parts, k)."""
        sums = np.zeros((len(texts) * parts, self.vectors.shape[1]), np.int64)
        for row, numbers in enumerate(self.numbers(texts, n_max) if len(texts) else ()):
            for part in range(parts):
                part_numbers = numbers[part * len(numbers) // parts : (part + 1) * len(numbers) // parts]
                in_vocabulary = part_numbers[part_numbers != UNKNOWN]
                sums[row * parts + part] = self.vectors[in_vocabulary].sum(axis=0, dtype=np.int64)
        return sums

    def encode(self, texts: Sequence[str], *, parts: int = 1, n_max: int = MOST_WORDS) -> Int8s:
        """Return the vector of every part of every text, int8, shape (n * parts, k); zeros where no word is known."""
        return quantised(self.sums(texts, parts=parts, n_max=n_max))


@dataclass(frozen=True, eq=False)
class TokenEncoder(WordEncoder):
    """Sum the vectors of a text's tokens, as a static sentence embedding does; `words` are the tokens."""

    tokenizer: bytes = b""  # JSON of the library `tokenizers`

    @classmethod
    def of(cls, tokenizer: bytes, vectors: npt.NDArray[np.int16]) -> Self:
        read = tokenizer_of(tokenizer)
        return cls([read.id_to_token(number) or "" for number in range(len(vectors))], vectors, tokenizer)

    @cached_property
    def _tokenizer(self) -> Any:
        return tokenizer_of(self.tokenizer)

    def numbers(self, texts: Sequence[str], n_max: int = MOST_WORDS) -> list[npt.NDArray[np.uint32]]:
        """Return the numbers of the first tokens of every text; none for a text on which the tokenizer fails."""
        rows = []
        for text in texts:
            ids: list[int] = []
            with suppress(Exception), without_panics():  # a failure depends only on the text, and shows nothing of it
                ids = self._tokenizer.encode(text[:MOST_CHARACTERS], add_special_tokens=False).ids[:n_max]
            rows.append(np.array([token for token in ids if token < len(self.vectors)], np.uint32))
        return rows


def tokenizer_of(content: bytes) -> Any:
    """Return the tokenizer of the library `tokenizers` that a JSON file describes; it neither pads nor cuts texts."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise PolicyError("token vectors need the library tokenizers", pip_install("static")) from None
    with seam("reading a tokenizer", ArtifactError, "name the JSON file of a tokenizer"):
        tokenizer = Tokenizer.from_str(content.decode())
        tokenizer.no_padding()
        tokenizer.no_truncation()
    return tokenizer


def products(queries: Int8s, vectors: Int8s) -> npt.NDArray[np.float32]:
    """Return exact inner products of int8 vectors, which float32 holds below 2^24, shape (queries, vectors)."""
    scores: npt.NDArray[np.float32] = queries.astype(np.float32) @ vectors.astype(np.float32).T
    return scores


def nearest(scores: npt.NDArray[Any], d: int) -> Integers:
    """Return the d indices of largest score of each row, the smaller index first of equals, shape (rows, d)."""
    order: Integers = np.argsort(-scores, axis=1, kind="stable")[:, :d].astype(np.int64)
    return order


LARGEST = 32_000  # size of the largest coordinate of a word vector, of 32,767 that int16 holds


def to_integers(table: Reals) -> npt.NDArray[np.int16]:
    """Scale a table of word vectors so that its largest coordinate is `LARGEST`, and round it."""
    largest = float(np.abs(table).max(initial=0.0))
    integers: npt.NDArray[np.int16] = np.rint(table * (LARGEST / (largest or 1.0))).astype(np.int16)
    return integers


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
        """Open a corpus by its folder, its file, their URL, or its name.

        Args:
            reference: The folder, file, URL, or name.
            sha256: The expected hash of the file, 64 hex digits; None accepts any.

        Raises:
            ArtifactError: There is no such corpus, or its hash differs.
        """
        path = _file(reference)
        artifact = Artifact.open(path, sha256)
        with seam(f"reading the corpus {path.name}", ArtifactError, _HINT), safe_open(path, "np") as file:
            metadata = file.metadata() or {}
        if metadata.get("format") != FORMAT:
            raise ArtifactError(f"{path.name} is not a corpus ({FORMAT})", _HINT)
        with seam(f"reading the corpus {path.name}", ArtifactError, _HINT):
            facts: dict[str, Any] = json.loads(metadata["description"])
        terms, provenance = str(facts.get("licence", "not stated")), str(facts.get("provenance", "not stated"))
        return cls(replace(artifact, license=terms, provenance=provenance, description=facts), facts)

    @classmethod
    def save(
        cls,
        folder: Path,
        texts: Sequence[str],
        description: Mapping[str, Any],
        *,
        encoder: WordEncoder | None = None,
        vectors: Int8s | None = None,
        lineage: Lineage | None = None,
    ) -> Self:
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / CONTENT, texts, description, encoder=encoder, vectors=vectors)
        corpus = cls.open(folder)
        card = {**description, "format": FORMAT, "sha256": corpus.sha256, "texts": len(corpus)}
        card[MADE_FROM] = lineage or {}
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
        """Return "words", "static", "task" or "sentence-transformers"."""
        return str(self.description.get("encoder", {}).get("kind", "words"))

    @property
    def has_tokens(self) -> bool:
        """Return True if the encoder sums vectors of tokens, which the library `tokenizers` finds."""
        return bool(self.description.get("encoder", {}).get("tokens", False))

    @property
    def in_floats(self) -> bool:
        """Return True if a model encodes texts in floats, which differ by machine."""
        return self.encoder_kind == KIND

    @property
    def in_kernel(self) -> bool:
        """Return True if the kernel encodes texts."""
        return not self.has_tokens and not self.in_floats

    @cached_property
    def texts(self) -> tuple[str, ...]:
        return _lines(self._tensor("texts"))

    @cached_property
    def vectors(self) -> Int8s:
        """Return the vectors of the texts, shape (m, k), read-only."""
        vectors: Int8s = self._tensor("vectors")
        vectors.flags.writeable = False
        return vectors

    @property
    def computing(self) -> Computing | None:
        """Return device and number type of a model here, or None without a model."""
        return replace(computing(), dtype=self.description["encoder"].get("dtype")) if self.in_floats else None

    @property
    def encoder(self) -> Encoder:
        if self.in_floats:
            facts = self.description["encoder"]
            with seam(f"reading the corpus {self.path.name}", ArtifactError, "build it again: `dptext corpus build`"):
                return encoders().loaded(facts["name"], facts["dtype"], facts["files"])  # type: ignore[no-any-return]
        return self.word_encoder

    @cached_property
    def word_encoder(self) -> WordEncoder:
        """Return the sums of word or token vectors; a corpus that a model encoded has none."""
        if self.has_tokens:
            return TokenEncoder.of(self._tensor("tokenizer").tobytes(), self._tensor("token_vectors"))
        words = _lines(self._tensor("words"))
        if not words:
            raise ArtifactError("the corpus has no vectors of words: a model encoded it", "load that model")
        return WordEncoder(words, self._tensor("word_vectors"))

    @property
    def hits(self) -> dict[float, float]:
        """Return the hit rate that was calibrated for each epsilon of one draw; empty without a calibration."""
        return {float(epsilon): float(hit) for epsilon, hit in self.description.get("hits", {}).items()}

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
    """Write the file of a corpus; arguments and errors as in `Corpus.save`."""
    if len(texts) < 2 or len(set(texts)) != len(texts):
        raise ArtifactError(
            f"a corpus holds two distinct texts or more, got {len(set(texts))} among {len(texts)}", "add public texts"
        )
    for number, text in enumerate(texts):
        if not text or " ".join(text.split()) != text or unicodedata.normalize("NFC", text) != text:
            raise ArtifactError(
                f"text {number} of the corpus is empty, has other blanks than single spaces, or is not in form NFC",
                'normalize it: " ".join(unicodedata.normalize("NFC", text).split())',
            )
    if vectors is None:
        if encoder is None:
            raise ArtifactError("a corpus has an encoder, or vectors that were made elsewhere", "give one of them")
        vectors = quantised(encoder.sums(texts))
    if vectors.dtype != np.int8 or vectors.ndim != 2 or len(vectors) != len(texts):
        actual = f"{vectors.dtype} of shape {vectors.shape}"
        raise ArtifactError(
            f"{len(texts)} texts have as many int8 vectors, got {actual}",
            "build the corpus again with `dptext corpus build`",
        )
    if not 1 <= vectors.shape[1] <= MOST_DIMENSIONS or int(vectors.min()) < -127:
        raise ArtifactError(
            f"vectors have from 1 to {MOST_DIMENSIONS} dimensions and entries from -127 to 127",
            "build the corpus again with `dptext corpus build`",
        )
    missing = {"licence", "provenance"} - {name for name, value in description.items() if value}
    if missing:
        raise ArtifactError(f"a corpus states its {' and '.join(sorted(missing))}", "say where its texts come from")
    none = np.zeros((0, vectors.shape[1]), np.int16)
    tokenizer: bytes = getattr(encoder, "tokenizer", b"")
    tensors: dict[str, npt.NDArray[Any]] = {
        "texts": _blob(texts),
        "vectors": vectors,
        "words": _blob(() if encoder is None or tokenizer else encoder.words),
        "word_vectors": none if encoder is None or tokenizer else encoder.vectors,
    }
    if encoder is not None and tokenizer:
        tensors |= {"tokenizer": np.frombuffer(tokenizer, np.uint8), "token_vectors": encoder.vectors}
    save_tensors(path, tensors, {"format": FORMAT, "description": canon(dict(description)).decode()})


def _file(reference: str | Path) -> Path:
    if is_remote(str(reference)):
        return fetched(str(reference))
    path = Path(reference)
    if path.is_dir():
        return path / CONTENT
    if path.is_file():
        return path
    name = str(reference).replace("-", "_")
    if "_" in str(reference) or not extensions.exists("corpora", name):
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
