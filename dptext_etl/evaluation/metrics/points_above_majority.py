"""Compute PP+: the percentage points that a classifier of the labels is better than the most frequent label.

Papers 000 and 001 print it in hundredths of a point. They take F1 of the positive class, or micro-F1, and 001 takes the
baseline of another figure than the score (docs/spec/privacy.md#known-relative-gain). Here both sides are one figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dptext_etl.evaluation.classifier import crossed
from dptext_etl.evaluation.measure import Metric, Score
from dptext_etl.evaluation.pairs import LABEL, RAW, RELEASED, Pairs
from dptext_etl.evaluation.statistics import accuracy, bootstrapped, macro_f1


class PointsAboveMajority(Metric):
    """PP+ of macro-F1, of accuracy, and of F1 of the most frequent label as paper 000 takes it."""

    title: ClassVar[str] = "PP+: points above the most frequent label"
    says: ClassVar[str] = (
        "Percentage points by which the classifier that learnt from released texts beats the most frequent label on "
        "raw texts, by the same figure on both sides (papers 000 and 001 print hundredths of a point). Below 0 the "
        "release is worse than no release."
    )
    needs: ClassVar[frozenset[str]] = frozenset({LABEL})
    order: ClassVar[int] = 15
    weight: ClassVar[float] = 0.5

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the points by three figures."""
        raw = crossed(pairs, LABEL, train=RAW, test=RAW)
        found = crossed(pairs, LABEL, train=RELEASED, test=RAW)
        every = (found.truth, found.guessed, found.blind, raw.guessed)
        values, counts = np.unique(found.truth, return_counts=True)
        frequent = tuple((column == values[counts.argmax()]).astype(np.int64) for column in every)
        return [
            _points("macro-F1", macro_f1, every, pairs.subject),
            _points("accuracy", accuracy, every, pairs.subject),
            _points("F1 of the most frequent label, as paper 000 takes it", _f1, frequent, pairs.subject),
        ]


def _points(
    what: str, figure: Callable[[Any, Any], float], columns: Sequence[Any], groups: npt.NDArray[Any] | None
) -> Score:
    """Return the points above the most frequent label; columns are truth, guesses, blind guesses, guesses of raw."""
    truth, guessed, blind, of_raw = columns
    base = figure(truth, blind)
    low, high = bootstrapped(figure, truth, guessed, groups)
    return Score(
        what,
        100 * (figure(truth, guessed) - base),
        (100 * (low - base), 100 * (high - base)),
        blind=0.0,
        raw=100 * (figure(truth, of_raw) - base),
        unit="number",
    )


def _f1(truth: npt.NDArray[np.int64], guessed: npt.NDArray[np.int64]) -> float:
    return float(2 * (truth & guessed).sum() / max(1, truth.sum() + guessed.sum()))
