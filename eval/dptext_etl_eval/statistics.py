"""Compute figures of predictions with their 95% intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl_eval.pairs import Values

RESAMPLES = 300
Codes = npt.NDArray[np.int64]
_Z = 1.959963984540054


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Return the 95% interval of a share (Wilson 1927).

    >>> low, high = wilson(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
    """
    if trials == 0:
        return 0.0, 1.0
    share, spread = hits / trials, _Z * _Z / trials
    middle = (share + spread / 2) / (1 + spread)
    half = _Z * math.sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def accuracy(truth: Values | Codes, guessed: Values | Codes) -> float:
    """Return the share of right guesses."""
    return float(np.mean(truth == guessed))


def macro_f1(truth: Values | Codes, guessed: Values | Codes) -> float:
    """Return the mean over classes of the harmonic mean of precision and recall.

    The classes occur in `truth` or `guessed`.

    >>> round(macro_f1(np.array(["a", "a", "b"]), np.array(["a", "b", "b"])), 4)
    0.6667
    """
    true, guess = coded(truth, guessed)
    hits = np.bincount(true[true == guess], minlength=1 + max(true.max(), guess.max()))
    both = np.bincount(true, minlength=len(hits)) + np.bincount(guess, minlength=len(hits))
    return float(np.mean(2 * hits[both > 0] / both[both > 0]))


def pearson(truth: Any, guessed: Any) -> float:
    """Return the linear correlation of numbers; 0 where one side does not vary.

    >>> round(pearson(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0])), 3), pearson(np.ones(3), np.arange(3.0))
    (0.982, 0.0)
    """
    if not np.ptp(truth) or not np.ptp(guessed):
        return 0.0
    return float(np.corrcoef(truth, guessed)[0, 1])


def spearman(truth: Any, guessed: Any) -> float:
    """Return the correlation of ranks; ties have their mean rank."""
    from scipy.stats import rankdata

    return pearson(rankdata(truth), rankdata(guessed))


def unseen(figure: Callable[[Any, Any], float], truth: Values, most_frequent: Values) -> float:
    """Return the figure of the random baseline, which does not use the texts: the better of two ways to guess.

    One always says the most frequent value. The other says every value as often as it occurs: its F1 of a value is the
    value's share, so that its macro-F1 is 1 / values, more than the first way gets.
    Of numbers, the correlation of the random baseline is 0.

    >>> truth = np.array(["a"] * 6 + ["b"] * 4)
    >>> round(unseen(macro_f1, truth, np.array(["a"] * 10)), 3), unseen(accuracy, truth, np.array(["a"] * 10))
    (0.5, 0.6)
    """
    if truth.dtype.kind == "f":
        return 0.0
    always = figure(truth, most_frequent)
    return max(always, 1 / len(np.unique(truth))) if figure is macro_f1 else always


def coded(truth: Values | Codes, guessed: Values | Codes) -> tuple[Codes, Codes]:
    """Return values as numbers from 0; equal values have equal numbers. Numbers of a regression stay as they are."""
    if truth.dtype.kind == guessed.dtype.kind and truth.dtype.kind in "if":
        return truth, guessed  # type: ignore[return-value]
    codes = np.unique(np.concatenate([truth, guessed]), return_inverse=True)[1]
    return codes[: len(truth)], codes[len(truth) :]


def bootstrapped(
    figure: Callable[[Any, Any], float], truth: Values, guessed: Values, groups: Values | None = None
) -> tuple[float, float]:
    """Return the 95% percentile interval of a figure over resampled rows (or groups of rows)."""
    random = np.random.default_rng(0)
    true, guess = coded(truth, guessed)
    means = np.empty(RESAMPLES)
    members: list[npt.NDArray[np.intp]] | None = None
    if groups is not None:
        _, codes = np.unique(groups, return_inverse=True)
        members = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    for number in range(RESAMPLES):
        if members is None:
            rows = random.integers(0, len(truth), len(truth))
        else:
            rows = np.concatenate([members[at] for at in random.integers(0, len(members), len(members))])
        means[number] = figure(true[rows], guess[rows])
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
