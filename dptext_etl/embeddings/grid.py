"""Round word vectors to an integer grid, and read and write the grid's file.

Quantisation to int16 uses one scale for the whole file: the smallest power of two at which the largest coordinate fits.
A coordinate moves by at most half a step, which is at most 2**-15 of the largest coordinate.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import load_file

from dptext_etl.artifacts import canon, save_tensors
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


def write_grid(path: Path, words: tuple[str, ...], vectors: Grid, facts: dict[str, Any]) -> None:
    """Write words and an integer grid as safetensors: tensors "words" (UTF-8, one per line) and "vectors"."""
    blob = np.frombuffer("\n".join(words).encode(), dtype=np.uint8)
    save_tensors(path, {"words": blob, "vectors": vectors}, {"format": FORMAT, "description": canon(facts).decode()})


def read_grid(path: Path) -> tuple[tuple[str, ...], Grid, dict[str, Any]]:
    """Read a file of `write_grid`."""
    with seam(f"reading the word vectors {path.name}", ArtifactError, _HINT):
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
        facts: dict[str, Any] = json.loads(metadata["description"]) if metadata.get("format") == FORMAT else {}
        tensors = load_file(path)
        words = tuple(tensors["words"].tobytes().decode().split("\n"))
        vectors: Grid = tensors["vectors"]
        scale = float(facts["scale"])
    sound = vectors.ndim == 2 and vectors.dtype in (np.int8, np.int16) and len(vectors) == len(words) and scale > 0
    if not sound or len(set(words)) != len(words) or any(written(word) != word for word in words):
        raise ArtifactError(f"{path.name} is not a grid of word vectors ({FORMAT})", _HINT)
    vectors.flags.writeable = False
    return words, vectors, facts
