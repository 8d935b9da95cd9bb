"""Compute what integer weights by distance realize, apart from the code that states it of itself.

The weights are those that the kernel draws from, made anew, row by row. That they are those of the formula is checked
on some rows from the vectors themselves: distances by subtraction, weights by `sampling.integer_weights`. What they
realize is found in logarithms and settled in whole numbers (docs/spec/privacy.md#epsilon-table).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dptext_etl.families.certificate import Certificate
from dptext_etl.sampling import integer_weights

if TYPE_CHECKING:
    from dptext_etl.families.vector.distance import PairWeights

CHECKED = 64
"""Rows that are made from the vectors, spread over the vocabulary."""
_CELLS = 2**22


def of_distances(law: PairWeights, words: tuple[str, str]) -> Certificate:
    """Compute the certificate of a law by distance; words outside the vocabulary, drawn uniformly, are inputs, too."""
    if not _as_the_formula_says(law):
        return Certificate("weights that are not those of the formula", math.inf, exact=True, words=words)
    inputs, outputs = len(law.inputs), len(law.outputs)
    most, least = (np.full(outputs, -math.log(outputs)) for _ in range(2))
    rarest, likeliest = (np.full(outputs, -1, np.int64) for _ in range(2))
    step = max(1, _CELLS // outputs)
    for first in range(0, inputs, step):
        rows = np.arange(first, min(first + step, inputs))
        weights = law.weights(rows)
        if not weights.all():
            return Certificate("a weight of zero", math.inf, exact=True, words=words)
        totals = weights.sum(axis=1, dtype=np.uint64).astype(np.float64)
        logs = np.log(weights.astype(np.float64)) - np.log(totals)[:, None]
        _take(logs, first, most, likeliest)
        np.negative(logs, out=logs)
        np.negative(least, out=least)
        _take(logs, first, least, rarest)
        np.negative(least, out=least)
    worst = int(np.argmax(most - least))
    chances = [_chance(law, int(row[worst]), worst) for row in (likeliest, rarest)]
    ratio = chances[0] / chances[1]
    realised = math.log(ratio.numerator) - math.log(ratio.denominator)
    return Certificate("the integer weights of every word, made anew", realised, exact=True, words=words)


def _take(logs: npt.NDArray[np.float64], first: int, best: npt.NDArray[np.float64], row: npt.NDArray[np.int64]) -> None:
    """Keep the largest of every column, and its row."""
    found = logs.argmax(axis=0)
    values = logs[found, np.arange(logs.shape[1])]
    better = values > best
    best[better], row[better] = values[better], first + found[better]


def _chance(law: PairWeights, row: int, output: int) -> Fraction:
    """Return the chance of an output under a word, or under an unknown word (-1)."""
    if row < 0:
        return Fraction(1, len(law.outputs))
    weights = law.weights(np.array([row]))[0].tolist()
    return Fraction(weights[output], sum(weights))


def _as_the_formula_says(law: PairWeights) -> bool:
    """Whether some rows of weights are those of exp(-epsilon d / 2), d from the vectors."""
    rows = np.unique(np.linspace(0, len(law.inputs) - 1, CHECKED).astype(np.int64))
    outputs = law.outputs.vectors.astype(np.int64)
    for row in rows.tolist():
        apart = outputs - law.inputs.vectors[row].astype(np.int64)
        distances = np.sqrt((apart * apart).sum(axis=1).astype(np.float64)) * law.inputs.scale
        wanted = integer_weights(-distances, law.exponent, low=-law.diameter, high=0.0)
        if not np.array_equal(law.weights(np.array([row]))[0], wanted):
            return False
    return True
