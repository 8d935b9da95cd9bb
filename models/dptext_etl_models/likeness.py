"""Compare words and texts by an encoder: the word vectors of a corpus, or a model of sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dptext_etl.artifacts import Artifact
from dptext_etl.corpora import Corpus
from dptext_etl.corpora.corpus import WordEncoder
from dptext_etl.errors import PolicyError
from dptext_etl_models.sentence_transformers import SentenceModel

Reals = npt.NDArray[np.float64]

WORDS = "words"
CORPUS = "everyday-30k"  # the corpus whose encoder is "words": weights of words, common direction removed
_MODEL = "sentence-transformers:"


def words_to_rest(tokens: Sequence[str], source: str) -> Reals:
    """Return the cosine of each word and the text without it, shape (n,); 0 where either has no vector."""
    words, rest, _ = vectors(tokens, source)
    return _cosines(words, rest)


def rests_to_text(tokens: Sequence[str], source: str) -> Reals:
    """Return the cosine of the text without each word and the whole text, shape (n,)."""
    _, rest, whole = vectors(tokens, source)
    return _cosines(rest, np.broadcast_to(whole, rest.shape))


def words_to_text(tokens: Sequence[str], source: str) -> Reals:
    """Return the cosine of each word and the whole text, shape (n,)."""
    words, _, whole = vectors(tokens, source)
    return _cosines(words, np.broadcast_to(whole, words.shape))


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
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in {".json", ".safetensors"})
    return {f"encoder_{number}": Artifact.open(path) for number, path in enumerate(files)}


@lru_cache(maxsize=1)
def words_encoder() -> tuple[WordEncoder, Artifact]:
    corpus = Corpus.open(CORPUS)
    stated = {"provenance": corpus.description["provenance"], "license": corpus.description["licence"]}
    return corpus.word_encoder, Artifact.open(corpus.path, **stated)


@lru_cache(maxsize=2)
def sentence_model(folder: Path) -> SentenceModel:
    return SentenceModel(str(folder), "float32")


def _folder(source: str) -> Path:
    place = Path(source.removeprefix(_MODEL))
    if not source.startswith(_MODEL) or not place.is_dir():
        raise PolicyError(
            "an encoder of unknown form, or a folder that is not there",
            f'allowed: "{WORDS}", or "{_MODEL}FOLDER"; nothing is downloaded',
        )
    return place


def vectors(tokens: Sequence[str], source: str) -> tuple[Reals, Reals, Reals]:
    """Return the vectors of n words, of n texts without one word each, and of the whole text."""
    if source == WORDS:
        words = words_encoder()[0].sums(tokens).astype(np.float64)
        whole = words.sum(axis=0)
        return words, whole - words, whole
    model = sentence_model(_folder(source))
    rests = [" ".join([*tokens[:place], *tokens[place + 1 :]]) for place in range(len(tokens))]
    vectors = model.encode([*tokens, *rests, " ".join(tokens)]).astype(np.float64)
    return vectors[: len(tokens)], vectors[len(tokens) : -1], vectors[-1]


def _cosines(left: Reals, right: Reals) -> Reals:
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.asarray((left * right).sum(axis=1) / np.where(lengths > 0, lengths, 1.0))
