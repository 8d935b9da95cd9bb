"""Guess a secret of the person by a fine-tuned encoder, as Meisenbacher et al. 2024 and 2025 do with larger ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dptext_etl_eval.classifier import scores
from dptext_etl_eval.evaluators import SMALL
from dptext_etl_eval.fine_tuning import tuned
from dptext_etl_eval.measure import Attack, Score
from dptext_etl_eval.pairs import ATTRIBUTE, CLASSIFIER, RAW, RELEASED, Pairs


class AttributeByEncoder(Attack):
    """The static and the adaptive attacker with a pretrained encoder in place of counts of words."""

    title: ClassVar[str] = "Guessing the attribute by a fine-tuned encoder"
    says: ClassVar[str] = (
        f"{SMALL}, or the model of --classifier, with a new head, fine-tuned on seven tenths of the rows and tested on "
        "the others; with subjects, no person is in both. With --split, it learns from the training rows. It reads "
        "order and context, which counts of words do not."
    )
    knows: ClassVar[str] = "other people's texts (raw, or released) with their attributes, and a public language model"
    needs: ClassVar[frozenset[str]] = frozenset({ATTRIBUTE, CLASSIFIER})
    order: ClassVar[int] = 15
    weight: ClassVar[float] = 150.0
    seeded: ClassVar[bool] = True

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return macro-F1 and accuracy of both attackers, with an attack on raw texts and the most frequent value."""
        raw = tuned(pairs, ATTRIBUTE, train=RAW, test=RAW)
        results = {
            kind: tuned(pairs, ATTRIBUTE, train=train, test=RELEASED)
            for kind, train in (("adaptive", RELEASED), ("static", RAW))
        }
        return [
            score
            for kind, guesses in results.items()
            for score in scores(guesses, raw, f"{kind} attacker, {{figure}}", guesses.groups)
        ]
