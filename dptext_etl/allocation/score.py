"""Define what scores of words have in common, find them by their files, and divide a budget by them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from dptext_etl import extensions
from dptext_etl.artifacts import Artifact


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

    >>> "ic" in available()
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
    rated = [1.0 if math.isnan(score) else min(1.0, max(FLOOR, score)) for score in scores]
    inverse = [int(_UNIT / score) for score in rated]
    whole = sum(inverse)
    parts = [min(highest, max(lowest, total * share // whole)) for share in inverse]
    if sum(parts) <= total:
        return parts
    free, excess = total - len(parts) * lowest, sum(parts) - len(parts) * lowest
    return [lowest + (part - lowest) * free // excess for part in parts]
