"""Score names and other entities, Meisenbacher et al. 2025, section 3.2.3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dptext_etl.allocation.score import Score, Scores
from dptext_etl.artifacts import Artifact
from dptext_etl_models import tagging


class Named(Score):
    """1 for words of a named entity, 0 for all others.

    Where the paper's code is wrong: it asks `1 in ner_scores` of a list of tuples, so this score was never active, and
    it looks up spaCy's tokens by the places of NLTK's. Here the library reads the very words that are drawn.
    """

    title: ClassVar[str] = "Named Entity Recognition"

    def compute(self, tokens: Sequence[str]) -> Scores:
        return np.array(tagging.tagger(self.tools.tagger).named(tokens), np.float64)

    def artifacts(self) -> dict[str, Artifact]:
        return tagging.artifacts(self.tools.tagger)
