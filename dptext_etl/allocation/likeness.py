"""Compare words and texts by an encoder: "words", or a model of sentence-transformers in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl.artifacts import Artifact
from dptext_etl.corpora import Corpus
from dptext_etl.corpora.encoder import SentenceModel, WordEncoder
from dptext_etl.errors import PolicyError

Reals = npt.NDArray[np.float64]

WORDS = "words"
CORPUS = "everyday-30k"  # the corpus whose encoder is "words": weights of words, common direction removed
_MODEL = "sentence-transformers:"
_AT_ONCE = 32


def words_to_rest(tokens: Sequence[str], source: str) -> Reals:
    """Return the cosine of each word and the text without it, shape (n,); 0 where either has no vector."""
    each, rest, _ = _vectors(tokens, source)
    return _cosines(each, rest)


def rests_to_text(tokens: Sequence[str], source: str) -> Reals:
    """Return the cosine of the text without each word and the whole text, shape (n,)."""
    _, rest, whole = _vectors(tokens, source)
    return _cosines(rest, np.broadcast_to(whole, rest.shape))


def relative(differences: Reals) -> Reals:
    """Divide by the largest number of a text; negative ones become 0.

    >>> relative(np.array([0.1, 0.4, 0.0])).tolist()
    [0.25, 1.0, 0.0]
    """
    positive = np.maximum(differences, 0.0)
    largest = positive.max(initial=0.0)
    return np.asarray(positive / largest if largest > 0 else positive)


def artifacts(source: str) -> dict[str, Artifact]:
    if source == WORDS:
        return {"encoder": words_encoder()[1]}
    folder = _folder(source)
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in {".json", ".safetensors"})
    return {f"encoder_{number}": Artifact.open(path) for number, path in enumerate(found)}


@lru_cache(maxsize=1)
def words_encoder() -> tuple[WordEncoder, Artifact]:
    corpus = Corpus.open(CORPUS)
    stated = {"provenance": corpus.description["provenance"], "licence": corpus.description["licence"]}
    return corpus.encoder, Artifact.open(corpus.path, **stated)


@lru_cache(maxsize=2)
def sentence_model(folder: Path) -> SentenceModel:
    return SentenceModel(str(folder), _AT_ONCE)


def _folder(source: str) -> Path:
    place = Path(source.removeprefix(_MODEL))
    if not source.startswith(_MODEL) or not place.is_dir():
        raise PolicyError(
            "an encoder of unknown form, or a folder that is not there",
            f'allowed: "{WORDS}", or "{_MODEL}FOLDER"; nothing is downloaded',
        )
    return place


def _vectors(tokens: Sequence[str], source: str) -> tuple[Reals, Reals, Reals]:
    """Return the vectors of n words, of n texts without one word each, and of the whole text."""
    if source == WORDS:
        each = words_encoder()[0].sums(tokens).astype(np.float64)
        whole = each.sum(axis=0)
        return each, whole - each, whole
    model: Any = sentence_model(_folder(source))
    rests = [" ".join([*tokens[:place], *tokens[place + 1 :]]) for place in range(len(tokens))]
    found = model.encode([*tokens, *rests, " ".join(tokens)]).astype(np.float64)
    return found[: len(tokens)], found[len(tokens) : -1], found[-1]


def _cosines(one: Reals, other: Reals) -> Reals:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.asarray((one * other).sum(axis=1) / np.where(lengths > 0, lengths, 1.0))
