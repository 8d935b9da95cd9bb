"""Score words by how close each is to its whole text, as KeyBERT ranks key words (Grootendorst 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dptext_etl.allocation.score import Score, Scores
from dptext_etl.artifacts import Artifact
from dptext_etl_models import likeness


class KeyBert(Score):
    """The cosine of a word and its whole text, divided by the largest of the text; a word without a vector gets 1.

    KeyBERT looks for the words that say most about a text. These need most protection. `wi` of Meisenbacher et al. 2025
    asks for the opposite: it protects the words that are least like the rest.
    """

    title: ClassVar[str] = "KeyBERT"

    def compute(self, tokens: Sequence[str]) -> Scores:
        words, _, whole = likeness.vectors(tokens, self.tools.encoder)
        lengths = np.linalg.norm(words, axis=1) * np.linalg.norm(whole)
        close = (words @ whole) / np.where(lengths > 0, lengths, 1.0)
        return np.where(lengths > 0, likeness.relative(close), 1.0)

    def artifacts(self) -> dict[str, Artifact]:
        return likeness.artifacts(self.tools.encoder)
