"""Score words by what their text loses without them, Meisenbacher et al. 2025, section 3.2.5 and Algorithm 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dptext_etl.allocation.score import Score, Scores
from dptext_etl.artifacts import Artifact
from dptext_etl_models import likeness


class SentenceDifference(Score):
    """1 - cosine of a text and the same text without the word, divided by the largest of the text.

    "Words whose removal causes a more significant drop in similarity are considered more important." The paper's
    Algorithm 3 prints the cosine itself, the other way round; its code has 1 - cosine.
    """

    title: ClassVar[str] = "Sentence Difference"

    def compute(self, tokens: Sequence[str]) -> Scores:
        return likeness.relative(1.0 - likeness.rests_to_text(tokens, self.tools.encoder))

    def printed(self, tokens: Sequence[str]) -> Scores:
        return likeness.rests_to_text(tokens, self.tools.encoder)

    def code(self, tokens: Sequence[str]) -> Scores:
        return np.abs(1.0 - likeness.rests_to_text(tokens, self.tools.encoder))

    def artifacts(self) -> dict[str, Artifact]:
        return likeness.artifacts(self.tools.encoder)
