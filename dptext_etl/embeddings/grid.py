"""Read files of word vectors in the published formats and lists of words, and round vectors to an integer grid.

Rules for all formats:

* Words are lower-cased, and U+2019 becomes an apostrophe, as in lookups. Of equal words, the first one stays.
* Empty entries and entries with white space can never be a word of a text: they are left out. Both are counted.
* Numbers are read as float32 and must be finite; then they are rounded to the grid.

Quantization to int16 uses one scale for the whole file: the smallest power of two at which the largest coordinate fits.
A coordinate moves by at most half a step, which is at most 2**-15 of the largest coordinate.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import load_file

from dptext_etl.artifacts import Artifact, canon, save_tensors
from dptext_etl.errors import ArtifactError, seam

FORMAT = "dptext-vectors/1"
Grid = npt.NDArray[np.int8] | npt.NDArray[np.int16]
Reals = npt.NDArray[np.float32]
_HINT = "such files are written by dptext_etl; other formats are distinguished by their suffix"


def written(word: str) -> str | None:
    r"""Return a word in the form of vocabularies, or None if it is empty or has white space, so that it is no word.

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


def read_grid(path: Path) -> tuple[tuple[str, ...], Grid, dict[str, Any]]:
    with seam(f"reading the word vectors {path.name}", ArtifactError, _HINT):
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
        facts: dict[str, Any] = json.loads(metadata["description"]) if metadata.get("format") == FORMAT else {}
        tensors = load_file(path)
        words = tuple(word_list(tensors["words"]))
        vectors: Grid = tensors["vectors"]
        scale = float(facts["scale"])
    sound = vectors.ndim == 2 and vectors.dtype in (np.int8, np.int16) and len(vectors) == len(words) and scale > 0
    if not sound or len(set(words)) != len(words) or any(written(word) != word for word in words):
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
        words, vectors, facts = read_grid(path)
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
        msg = f"expected {width} numbers after the word, got something else"
        raise ValueError(msg) from None
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
                word = _word(file)
                numbers = _finite(np.frombuffer(file.read(4 * width), dtype="<f4", count=width))
            yield word, numbers


def _word(file: BinaryIO) -> str:
    letters = bytearray()
    while (letter := file.read(1)) != b" ":
        if not letter:
            raise ValueError("the file ends inside a word")
        letters += letter
    return letters.lstrip(b"\n").decode()


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
    """Read a list of stopwords: our own English list, or any UTF-8 file with one word per line (such as NLTK's)."""
    own = source == "english"
    path = _ENGLISH if own else Path(source)
    stated = {"provenance": "written for dptext_etl", "licence": "Apache-2.0"} if own else {}
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
