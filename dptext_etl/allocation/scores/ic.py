"""Score words by how much they tell: their information content, paper 001, section 3.2.1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dptext_etl.allocation import information
from dptext_etl.allocation.score import Score, Scores
from dptext_etl.artifacts import Artifact


class InformationContent(Score):
    """-log p of a word, divided by that of the rarest: rare words tell most.

    Where the paper is wrong: what it calls IC ("IC('dog') = 235") are counts, so that frequent words seem to tell most,
    and every word but nouns and verbs, and every unknown name, counts as the most harmless. Here counts become -log p,
    all classes of words have one, and a word that no count knows reveals most.
    """

    title: ClassVar[str] = "Information Content"

    def said(self, tokens: Sequence[str]) -> Scores:
        """Return -log p over its largest value."""
        return information.contents(self.tools.information).of(tokens)

    def printed(self, tokens: Sequence[str]) -> Scores:
        """Return the counts of NLTK's files, as the paper takes them; 1 for a word without one."""
        return information.counts(self.tools.information).of(tokens)

    def artifacts(self) -> dict[str, Artifact]:
        """Return the files of counts."""
        return information.artifacts(self.tools.information)
