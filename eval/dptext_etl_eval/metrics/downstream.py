"""Measure what a classifier learns from a release: the use that most releases are made for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dptext_etl_eval.classifier import crossed, scores
from dptext_etl_eval.measure import Metric, Score
from dptext_etl_eval.pairs import LABEL, RAW, RELEASED, Pairs


class Downstream(Metric):
    """Macro-F1 and accuracy of a classifier of the labels, next to raw texts and next to not looking."""

    title: ClassVar[str] = "Labels that a classifier gets right"
    says: ClassVar[str] = (
        "TF-IDF and logistic regression, five folds. It learns from released texts and is tested on raw texts, "
        "as a model is used that is trained on a release; then tested on released texts. Blind is the better of the "
        "most frequent label and of every label as often as it occurs."
    )
    needs: ClassVar[frozenset[str]] = frozenset({LABEL})
    order: ClassVar[int] = 10
    weight: ClassVar[float] = 20.0

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return both figures, tested on raw and on released texts."""
        raw = crossed(pairs, LABEL, train=RAW, test=RAW)
        return [
            score
            for test in (RAW, RELEASED)
            for score in scores(
                crossed(pairs, LABEL, train=RELEASED, test=test),
                raw,
                f"{{figure}}, learned from released texts, tested on {test} texts",
                pairs.subject,
            )
        ]
