"""Define what scores of words have in common, find them by their files, and compare words and texts by an encoder."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from dptext_etl import extensions
from dptext_etl.artifacts import Artifact
from dptext_etl.corpora import Corpus
from dptext_etl.corpora.corpus import WordEncoder
from dptext_etl.corpora.sentences import SentenceModel
from dptext_etl.errors import PolicyError


class Tools(BaseModel):
    """Which public tools score words. Nothing is downloaded; a library is imported when a score uses it.

    Attributes:
        tagger: Word classes and names: "english" (comes with the library), "nltk" or "nltk:FOLDER" (NLTK's tagger over
            data that lies here), or "spacy:NAME" (any pipeline of spaCy, installed or in a folder).
        information: How rare words are: "english" (comes with the library), or "wordnet" or "wordnet:FOLDER" (WordNet
            and its counts in NLTK's data).
        encoder: Likeness of texts: "words" (comes with the library), or "sentence-transformers:FOLDER".
        printed: Take the formulas as Meisenbacher et al. 2025 print them (true), or as their code has them ("code"), to
            compare with it; some are the wrong way round.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)

    artifact_fields: ClassVar[frozenset[str]] = frozenset({"tagger", "information", "encoder"})
    """Fields that name public files; the hashes of these enter the configuration, not the names."""
    hub_fields: ClassVar[frozenset[str]] = artifact_fields
    """All of them: in a policy file a folder is looked for in the folder of the policy first."""

    tagger: str = "english"
    information: str = "english"
    encoder: str = "words"
    printed: Literal["code"] | bool = False


Scores = npt.NDArray[np.float64]


class Score(ABC):
    """A number from 0 to 1 for each word of a text: 1 asks for most protection, so for the least epsilon.

    Attributes:
        title: Its name in the paper.

    Args:
        tools: The public tools that it may use.
    """

    title: ClassVar[str]

    def __init__(self, tools: Tools) -> None:
        self.tools = tools

    @property
    def name(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    def of(self, tokens: Sequence[str]) -> Scores:
        """Score the words of a text.

        Args:
            tokens: All words that are drawn, in their order, n of them. None is exempt.

        Returns:
            Numbers from 0 to 1, shape (n,), a function of these words and of public files only.

        Raises:
            PolicyError: A library or data that the score needs is not here.
        """
        if not len(tokens):
            return np.zeros(0)
        if not self.tools.printed:
            return np.asarray(np.clip(np.nan_to_num(self.compute(tokens)), 0.0, 1.0))
        formula = self.code if self.tools.printed == "code" else self.printed
        numbers = np.maximum(np.nan_to_num(formula(tokens)), 0.0)
        total = numbers.sum()
        return np.asarray(numbers / total if total > 0 else np.full(len(tokens), 1.0 / len(tokens)))

    @abstractmethod
    def compute(self, tokens: Sequence[str]) -> Scores:
        """Compute the score as the paper's text defines it, from 0 to 1, shape (n,), for one word or more."""

    def printed(self, tokens: Sequence[str]) -> Scores:
        """Compute the printed formula, on any scale; the paper's code divides by the sum. By default, the same."""
        return self.compute(tokens)

    def code(self, tokens: Sequence[str]) -> Scores:
        """Compute the formula of the paper's code. By default, the printed one."""
        return self.printed(tokens)

    def artifacts(self) -> dict[str, Artifact]:
        """Return the public files that the score depends on, by role."""
        return {}


def available() -> tuple[str, ...]:
    """Return the names of all scores, sorted.

    >>> "wi" in available()
    True
    """
    return extensions.names("scores")


def load(name: str) -> type[Score]:
    return extensions.load("scores", name, Score)  # type: ignore[type-abstract]


FLOOR = 1e-6  # least score: a score of 0 would use the whole budget
_UNIT = 2.0**40


def spread(scores: Sequence[float], total: int, lowest: int, highest: int) -> list[int]:
    """Divide a budget: each part is inversely proportional to its score, within bounds, rounded down.

    Amounts are in millionths. A score that is not a number counts as 1. The sum of the parts is at most `total`.

    >>> spread([0.1, 0.2, 0.4], 7_000_000, 1, 7_000_000)
    [4000000, 2000000, 1000000]
    """
    if not 0 <= lowest <= highest or len(scores) * lowest > total:
        raise ValueError("the least parts fit into the budget, and the largest part is not below the least")
    inverse = [int(_UNIT / _from_floor(score)) for score in scores]
    whole = sum(inverse)
    parts = [min(highest, max(lowest, total * share // whole)) for share in inverse]
    if sum(parts) <= total:
        return parts
    free, excess = total - len(parts) * lowest, sum(parts) - len(parts) * lowest
    return [lowest + (part - lowest) * free // excess for part in parts]


def _from_floor(score: float) -> float:
    return 1.0 if math.isnan(score) else min(1.0, max(FLOOR, score))


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
    model: Any = sentence_model(_folder(source))
    rests = [" ".join([*tokens[:place], *tokens[place + 1 :]]) for place in range(len(tokens))]
    vectors = model.encode([*tokens, *rests, " ".join(tokens)]).astype(np.float64)
    return vectors[: len(tokens)], vectors[len(tokens) : -1], vectors[-1]


def _cosines(left: Reals, right: Reals) -> Reals:
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.asarray((left * right).sum(axis=1) / np.where(lengths > 0, lengths, 1.0))
