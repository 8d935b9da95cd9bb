"""Guess a secret of the person from a release, as Meisenbacher et al. 2024 and 2025 do with authors and genders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dptext_etl_eval.classifier import crossed, scores
from dptext_etl_eval.measure import Attack, Score
from dptext_etl_eval.pairs import ATTRIBUTE, RAW, RELEASED, Pairs


class Attribute(Attack):
    """A static attacker learned from raw texts of other people; an adaptive one from released texts of other people."""

    title: ClassVar[str] = "Guessing the attribute"
    says: ClassVar[str] = (
        "TF-IDF and logistic regression, five folds; with subjects, no person is in two folds. The static attacker has "
        "only raw texts to learn from, the adaptive one has releases with their attributes. The adaptive one counts."
    )
    knows: ClassVar[str] = "other people's texts (raw, or released) with their attributes"
    needs: ClassVar[frozenset[str]] = frozenset({ATTRIBUTE})
    order: ClassVar[int] = 10
    weight: ClassVar[float] = 20.0
    seeded: ClassVar[bool] = True

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return macro-F1 and accuracy of both attackers, next to an attack on raw texts and the random baseline."""
        raw = crossed(pairs, ATTRIBUTE, train=RAW, test=RAW)
        return [
            score
            for kind, train in (("adaptive", RELEASED), ("static", RAW))
            for score in scores(
                crossed(pairs, ATTRIBUTE, train=train, test=RELEASED),
                raw,
                f"{kind} attacker, {{figure}}",
                pairs.subject,
            )
        ]
