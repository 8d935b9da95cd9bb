"""Score words by how little they are like their text, Meisenbacher et al. 2025, section 3.2.4 and Algorithm 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dptext_etl.allocation.score import Score, Scores
from dptext_etl.artifacts import Artifact
from dptext_etl_models import likeness


class WordImportance(Score):
    """1 - cosine of a word and the text without it, divided by the largest of the text.

    "The lower the similarity between these two entities, the greater the importance of the word." The paper's code
    uses |cosine of the word and the whole text| instead: the other way round.
    """

    title: ClassVar[str] = "Word Importance"

    def compute(self, tokens: Sequence[str]) -> Scores:
        return likeness.relative(1.0 - likeness.words_to_rest(tokens, self.tools.encoder))

    def code(self, tokens: Sequence[str]) -> Scores:
        return np.abs(likeness.words_to_text(tokens, self.tools.encoder))

    def artifacts(self) -> dict[str, Artifact]:
        return likeness.artifacts(self.tools.encoder)
