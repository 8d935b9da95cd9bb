"""Hold word vectors with integer coordinates, and read them from files in the published formats.

Sums of products of small integers are exact in floating point, in any order of addition: in float32 below 2**24, in
float64 below 2**53. Distances are therefore exact integers, and equal distances are equal numbers. Of equally near
words the earlier one wins, and a table made from these vectors has the same bytes everywhere.

Rules for all formats:

* Words are lower-cased, and U+2019 becomes an apostrophe, as in lookups. Of equal words, the first one stays.
* Empty entries and entries with white space can never be a word of a text: they are excluded. Both are counted.
* Numbers are read as float32 and must be finite; then they are rounded to the grid.

Quantization to int16 uses one scale for the whole file: the smallest power of two at which the largest coordinate fits.
A coordinate moves by at most half a step, which is at most 2**-15 of the largest coordinate.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from safetensors import safe_open
from safetensors.numpy import load_file

from dptext_etl import _kernel, extensions
from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.artifacts import Artifact, canon, save_tensors, sha256_file, store
from dptext_etl.errors import ArtifactError, seam

Metric = Literal["euclidean", "cosine"]
Rows = npt.NDArray[np.integer[Any]] | Sequence[int] | slice
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]

DEFAULT_VECTORS, SYNONYMS = "english-20k", "english-20k-synonyms"
SHIPPED = (DEFAULT_VECTORS, SYNONYMS)
"""Names of the vectors that ship: learned only from text, and the same moved by synonyms and antonyms."""
DATA = Path(__file__).parent.parent / "data"
_ROWS = 256  # vectors whose lengths are computed at once


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Hold words in public order and their vectors; `vectors * scale` are the real coordinates."""

    words: tuple[str, ...]  # n unique ones in lower case without blanks; the most frequent first, if the source has so
    vectors: Grid  # int8 or int16, shape (n, d), read-only
    scale: float  # length of one grid step; distances here never use it
    artifact: Artifact  # the grid's file; its hash is the identity, its provenance names the source

    @classmethod
    def load(cls, source: str | Path = DEFAULT_VECTORS, *, limit: int | None = None) -> Self:
        """Read vectors that ship or a file; a file is quantized once and then kept in the artifact cache.

        Formats: GloVe and counter-fitted text ("word x1 … xd" per line), word2vec text (the same below a line "n d"),
        word2vec binary (`.bin`), `.npz` with `words` and `vectors`, and `.safetensors` as written here. A source is a
        path, or a name such as "english-20k", also of vectors that an installed package brings. With a limit, only
        that many first words are used.
        """
        if limit is not None and limit < 1:
            raise ArtifactError(f"limit is {limit}; allowed: 1 and more", "leave limit out to use all words")
        path = Path(source)
        if source in SHIPPED:
            path = DATA / f"{source}.safetensors"
        elif not path.exists() and str(source) in extensions.installed("vectors"):
            path = Path(extensions.loaded("vectors", str(source))(str(source))) / "model.safetensors"
        sha256 = sha256_file(path)
        kind = kind_of(path)
        if kind == "grid" and (limit is None or limit >= len(read_grid(path, sha256)[0])):
            artifact = Artifact.open(path, sha256)
        else:
            artifact = store(
                {"format": FORMAT, "source": sha256, "kind": kind, "limit": limit},
                lambda out: convert(path, kind, limit, out),
                suffix=".safetensors",
                provenance=f"public, as declared by the user who named it: {path.name}, SHA-256 {sha256}",
                license="that of the source",
            )
        words, vectors, facts = read_grid(artifact.path, artifact.sha256)
        artifact = replace(
            artifact,
            provenance=str(facts.get("provenance", artifact.provenance)),
            license=str(facts.get("licence", artifact.license)),
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
        """Return the vectors of some of the words in the given order; `artifact` does not change."""
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
        # |x|^2 + |y|^2 - 2xy and every partial sum of xy stay below four times the longest squared length
        return self.vectors.astype(np.float32 if 4 * int(self.norms.max(initial=0)) < 2**24 else np.float64)

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


FORMAT = "dptext-vectors/1"
Grid = npt.NDArray[np.int8] | npt.NDArray[np.int16]
Reals = npt.NDArray[np.float32]
_HINT = "such files are written by dptext_etl; other formats are distinguished by their suffix"


def written(word: str) -> str | None:
    r"""Return a word in the form of vocabularies, or None if it is empty or has white space, so that it is not a word.

    >>> written("Don\u2019t"), written("New York"), written("")
    ("don't", None, None)
    """
    word = word.replace("\u2019", "'").lower()
    return None if not word or any(letter.isspace() for letter in word) else word


def quantise(vectors: Reals) -> tuple[npt.NDArray[np.int16], float]:
    """Round vectors to int16 at one power-of-two scale."""
    peak = float(np.abs(vectors).max(initial=0))
    if peak == 0:
        raise ArtifactError("all coordinates of the word vectors are zero", "use other vectors")
    exponent = 15 - int(np.frexp(peak)[1])
    if np.rint(np.ldexp(peak, exponent)) > np.iinfo(np.int16).max:
        exponent -= 1
    grid = np.empty(vectors.shape, dtype=np.int16)
    for row, vector in enumerate(vectors.astype(np.float32)):
        grid[row] = np.rint(np.ldexp(vector.astype(np.float64), exponent))
    return grid, float(np.ldexp(1.0, -exponent))


def word_list(stored: npt.NDArray[Any]) -> list[str]:
    """Return the words in an array of a stored table."""
    return bytes(stored).decode().split("\n")


def stored_words(words: Iterable[str]) -> npt.NDArray[np.uint8]:
    """Return the array of a stored table that holds words."""
    return np.frombuffer("\n".join(words).encode(), dtype=np.uint8)


def write_grid(path: Path, words: tuple[str, ...], vectors: Grid, facts: dict[str, Any]) -> None:
    """Write words and an integer grid as safetensors: tensors "words" (UTF-8, one per line) and "vectors"."""
    save_tensors(
        path,
        {"words": stored_words(words), "vectors": vectors},
        {"format": FORMAT, "description": canon(facts).decode()},
    )


@lru_cache(maxsize=4)
def read_grid(path: Path, sha256: str) -> tuple[tuple[str, ...], Grid, dict[str, Any]]:  # noqa: ARG001
    """Read a grid once per content; the caller computes the hash before every call. The arrays are read-only."""
    with seam(f"reading the word vectors {path.name}", ArtifactError, _HINT):
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
        facts: dict[str, Any] = json.loads(metadata["description"]) if metadata.get("format") == FORMAT else {}
        tensors = load_file(path)
        words = tuple(word_list(tensors["words"]))
        vectors: Grid = tensors["vectors"]
        scale = float(facts["scale"])
    if not any(words):
        raise ArtifactError(f"{path.name} holds no word vectors", _FORMS)
    sound = vectors.ndim == 2 and vectors.dtype in (np.int8, np.int16) and len(vectors) == len(words) and scale > 0
    text = "\n".join(words)  # all at once: as many words pass as when `written` reads each
    plain = text == text.lower() and "\u2019" not in text and tuple(text.split()) == words
    if not sound or len(set(words)) != len(words) or not plain:
        raise ArtifactError(f"{path.name} is not a grid of word vectors ({FORMAT})", _HINT)
    vectors.flags.writeable = False
    return words, vectors, facts


Kind = Literal["text", "binary", "npz", "grid"]
Entry = tuple[str, Reals]

_KINDS: dict[str, Kind] = {".bin": "binary", ".npz": "npz", ".safetensors": "grid"}
_PREFIX = "en_"  # prefix of words in counter-fitted and attract-repel vectors
_FORMS = 'allowed: "word x1 … xd" per line, with or without a first line "n d"; .bin; .npz; .safetensors'
_HEADER_MAX = 100


def kind_of(path: Path) -> Kind:
    """Return the format of a file from its suffix; an unknown suffix means text."""
    return _KINDS.get(path.suffix.lower(), "text")


def convert(path: Path, kind: Kind, limit: int | None, out: Path) -> None:
    """Read any file of vectors, quantise it, and write it as a grid."""
    if kind == "grid":
        words, vectors, facts = read_grid(path, sha256_file(path))
        write_grid(out, words[:limit], vectors[:limit], facts)
        return
    entries = {"text": _text, "binary": _binary, "npz": _npz}[kind](path)
    kept: dict[str, Reals] = {}
    skipped = repeated = 0
    prefix: bool | None = None
    for raw, numbers in entries:
        prefix = raw.startswith(_PREFIX) if prefix is None else prefix
        word = written(raw.removeprefix(_PREFIX) if prefix else raw)
        if word is None:
            skipped += 1
        elif word in kept:
            repeated += 1
        else:
            kept[word] = numbers
            if len(kept) == limit:
                break
    if not kept:
        raise ArtifactError(f"{path.name} holds no word vectors", _FORMS)
    grid, scale = quantise(np.stack(list(kept.values())))
    write_grid(out, tuple(kept), grid, {"scale": repr(scale), "left_out": skipped, "repeated": repeated})


def _text(path: Path) -> Iterator[Entry]:
    width = 0
    promised: int | None = None
    rows = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            fields = line.split()
            if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                promised, width = int(fields[0]), int(fields[1])
                continue
            if not fields:
                continue
            width = width or len(fields) - 1
            problem = None
            try:
                entry = _parse(fields, width)
            except UnicodeDecodeError:
                problem = "the word is not UTF-8"
            except ValueError as exc:
                problem = str(exc)
            if problem is not None:
                raise ArtifactError(f"{path.name}, line {number}: {problem}", _FORMS)
            yield entry
            rows += 1
    if promised is not None and rows != promised:
        raise ArtifactError(f"{path.name} promises {promised} words in line 1 and holds {rows}", "is the file whole?")


def _parse(fields: list[bytes], width: int) -> Entry:
    blanks = len(fields) - 1 - width
    if width < 1 or blanks < 0 or (blanks > 0 and _is_number(fields[blanks])):
        raise ValueError(f"expected a word and {max(width, 1)} numbers, got {len(fields)} fields")
    try:
        numbers = [float(field) for field in fields[blanks + 1 :]]
    except ValueError:
        raise ValueError(f"expected {width} numbers after the word, got something else") from None
    return b" ".join(fields[: blanks + 1]).decode(), _finite(np.array(numbers))


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _finite(numbers: npt.NDArray[Any]) -> Reals:
    with np.errstate(over="ignore"):
        reals = numbers.astype(np.float32)
    if not np.isfinite(reals).all():
        raise ValueError("a number is not finite in float32")
    return reals


def _binary(path: Path) -> Iterator[Entry]:
    with path.open("rb") as file:
        header = file.readline(_HEADER_MAX).split()
        if len(header) != 2 or not all(field.isdigit() for field in header) or header[1] == b"0":
            raise ArtifactError(f'{path.name}: a word2vec binary begins with a line "n d"', _FORMS)
        count, width = map(int, header)
        for number in range(1, count + 1):
            with seam(f"{path.name}: reading word {number} of {count}", ArtifactError, "is the file whole?"):
                letters = bytearray()
                while (letter := file.read(1)) != b" ":
                    if not letter:
                        raise ValueError("the file ends inside a word")
                    letters += letter
                word = letters.lstrip(b"\n").decode()
                numbers = _finite(np.frombuffer(file.read(4 * width), dtype="<f4", count=width))
            yield word, numbers


def _npz(path: Path) -> Iterator[Entry]:
    hint = "allowed: arrays `words` (n strings) and `vectors` (n x d finite numbers), no pickles"
    with (
        seam(f"reading the word vectors {path.name}", ArtifactError, hint),
        np.load(path, allow_pickle=False) as arrays,
    ):
        words, vectors = arrays["words"], arrays["vectors"]
    if words.ndim != 1 or words.dtype.kind != "U" or vectors.ndim != 2 or vectors.dtype.kind not in "fiu":
        raise ArtifactError(f"{path.name} holds arrays of other types or dimensions", hint)
    if len(words) != len(vectors) or not vectors.shape[1]:
        raise ArtifactError(f"{path.name} holds {len(words)} words and vectors of shape {vectors.shape}", hint)
    for row, (word, vector) in enumerate(zip(words.tolist(), vectors, strict=True)):
        with seam(f"{path.name}: reading row {row}", ArtifactError, hint):
            numbers = _finite(vector)
        yield word, numbers


_ENGLISH = Path(__file__).parent.parent / "data" / "stopwords_en.txt"


@dataclass(frozen=True)
class WordList:
    """Hold the words of a file in their order."""

    words: tuple[str, ...]  # unique words in lower case without blanks
    artifact: Artifact  # the file and its hash


def stopwords(source: str | Path = "english") -> WordList:
    """Read a list of stopwords: "english" is our own, a path any UTF-8 file with one word per line (such as NLTK's)."""
    is_shipped = source == "english"
    path = _ENGLISH if is_shipped else Path(source)
    stated = {"provenance": "written for dptext_etl", "license": "Apache-2.0"} if is_shipped else {}
    artifact = Artifact.open(path, **stated)
    words: dict[str, None] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        entry = line.strip()
        if not entry or entry.startswith(b"#"):
            continue
        try:
            word = written(entry.decode())
        except UnicodeDecodeError:
            word = None
        if word is None:
            raise ArtifactError(f"{path.name}, line {number}: not one word in UTF-8", "write one word per line")
        words[word] = None
    return WordList(tuple(words), artifact)
