"""Compute PP+: the percentage points that a classifier of the labels is better than the random baseline.

Meisenbacher et al. 2024 and 2025 print it in hundredths of a point above the most frequent label. They use F1 of the
positive class, or micro-F1, and in 2025 the baseline of another figure than the score
(docs/spec/privacy.md#known-relative-gain). Here both sides are one figure, and the random baseline is the better of two
guesses (docs/spec/privacy.md#not-looking).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dptext_etl_eval.classifier import Guesses, scores
from dptext_etl_eval.fine_tuning import ways
from dptext_etl_eval.measure import Metric, Score
from dptext_etl_eval.pairs import CLASSES, LABEL, RAW, RELEASED, Pairs, Values


class PointsAboveGuessing(Metric):
    """PP+ of macro-F1, of accuracy, and of F1 of the most frequent label as in Meisenbacher et al. 2024."""

    title: ClassVar[str] = "PP+: points above the random baseline"
    says: ClassVar[str] = (
        "Percentage points by which the classifier that learned from released texts beats the random baseline, by the "
        "same figure on both sides: tested on released texts, as Meisenbacher et al. 2024 and 2025 do, "
        "and tested on raw texts. Below 0 the release is worse than no release."
    )
    needs: ClassVar[frozenset[str]] = frozenset({CLASSES})
    order: ClassVar[int] = 15
    weight: ClassVar[float] = 0.5
    seeded: ClassVar[bool] = True

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the points by three figures, tested on released and on raw texts."""
        results = []
        for how, guesses in ways(pairs):
            raw = guesses(pairs, LABEL, train=RAW, test=RAW)
            for test in (RELEASED, RAW):
                given = guesses(pairs, LABEL, train=RELEASED, test=test)
                results += _points(given, raw, f"{{figure}}, tested on {test} texts{how}")
        return results


def _points(guesses: Guesses, raw: Guesses, what: str) -> list[Score]:
    values, counts = np.unique(guesses.truth, return_counts=True)
    most = values[counts.argmax()]
    of_one = {"F1 of the most frequent label, as in Meisenbacher et al. 2024": _f1}
    every = scores(guesses, raw, what, guesses.groups)
    every += scores(_only(most, guesses), _only(most, raw), what, guesses.groups, of_one)
    return [_above(score) for score in every]


def _above(score: Score) -> Score:
    """Return the points of a figure above its own random baseline."""
    value, blind, raw = score.value or 0.0, score.blind or 0.0, score.raw or 0.0
    low, high = score.interval or (value, value)
    ends = 100 * (low - blind), 100 * (high - blind)
    return replace(score, value=100 * (value - blind), interval=ends, blind=0.0, raw=100 * (raw - blind), unit="number")


def _only(value: str, guesses: Guesses) -> Guesses:
    """Return guesses of whether a row has one value: 1 for yes."""
    return Guesses(*((column == value).astype(np.int64) for column in (guesses.truth, guesses.guessed, guesses.blind)))


def _f1(truth: Values | npt.NDArray[np.int64], guessed: Values | npt.NDArray[np.int64]) -> float:
    hits, both = np.sum((truth == 1) & (guessed == 1)), np.sum(truth == 1) + np.sum(guessed == 1)
    return float(2 * hits / max(1, both))
