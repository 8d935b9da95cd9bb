"""Score words by their class, with the weights of Meisenbacher et al. 2025, section 3.2.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dptext_etl.allocation.score import Score, Scores
from dptext_etl.artifacts import Artifact
from dptext_etl_models import tagging

WEIGHTS = {"NN": 14.0, "NNP": 14.0, "PR": 7.0, "VB": 15.0, "CD": 2.0, "JJ": 5.0, "RB": 5.0}
OTHERS = 0.1


class WordClass(Score):
    """The weight of a word's class, divided by the largest weight.

    Where the paper is odd: the weights are how often classes occur in tweets. So a number, which often reveals who is
    meant, gets 2, less than any adverb.
    """

    title: ClassVar[str] = "Part-of-Speech Informativeness"

    def compute(self, tokens: Sequence[str]) -> Scores:
        classes = tagging.tagger(self.tools.tagger).classes(tokens)
        return np.array([WEIGHTS.get(label, OTHERS) for label in classes]) / max(WEIGHTS.values())

    def artifacts(self) -> dict[str, Artifact]:
        return tagging.artifacts(self.tools.tagger)
