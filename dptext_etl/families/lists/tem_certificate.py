"""Compute what stored weights by distance realize on lists, output by output, apart from the code that stored them.

`families.list_tem` goes pair by pair of inputs, and states what it finds in the table it writes. This module reads
nothing but the stored weights and lists, and takes the other way: for every output, the most and the least chance that
any input gives it (docs/spec/privacy.md#epsilon-table).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Order = npt.NDArray[np.integer]

DENSE = 2**26
"""Inputs times outputs up to which every chance of a mixture is written down."""
_CELLS = 2**22


def of_one_list(weights: Sequence[int], places: int) -> float:
    """Return the worst log ratio of any output of one list, an unknown word's uniform chances included."""
    reach, logs = len(weights) - 1, np.log(np.array(weights, np.float64))
    rows = -np.log(_totals(weights, places))
    most = np.full(places, -math.log(places))
    least = most.copy()
    for distance in range(min(reach, places)):
        chances = rows + logs[distance]
        before, behind = slice(None, places - distance), slice(distance, None)
        for toward, source in ((behind, before), (before, behind)):
            most[toward] = np.maximum(most[toward], chances[source])
            least[toward] = np.minimum(least[toward], chances[source])
    if reach < places:
        chances = rows + logs[-1]
        for side in (slice(None), slice(None, None, -1)):
            seen_most, seen_least = np.maximum.accumulate(chances[side]), np.minimum.accumulate(chances[side])
            into_most, into_least = most[side], least[side]
            into_most[reach:] = np.maximum(into_most[reach:], seen_most[: places - reach])
            into_least[reach:] = np.minimum(into_least[reach:], seen_least[: places - reach])
    return float((most - least).max())


def of_mixture(weights: Sequence[int], lists: Sequence[Order]) -> float | None:
    """Return the worst log ratio of any output of a uniform mixture over lists of one vocabulary; None if too large."""
    places = len(lists[0])
    if places * places > DENSE:
        return None
    by_distance = np.array(weights, np.float64)
    totals, place_of = _totals(weights, places), [np.argsort(order, kind="stable") for order in lists]
    most = np.full(places, 1.0 / places)
    least = most.copy()
    step = max(1, _CELLS // places)
    for start in range(0, places, step):
        chances = np.zeros((min(step, places - start), places))
        for own in place_of:
            inputs = own[start : start + step]
            gaps = np.minimum(np.abs(inputs[:, None] - own), len(weights) - 1)
            chances += by_distance[gaps] / totals[inputs][:, None]
        chances /= len(lists)
        np.maximum(most, chances.max(axis=0), out=most)
        np.minimum(least, chances.min(axis=0), out=least)
    return float(np.log(most / least).max())


def _totals(weights: Sequence[int], places: int) -> Floats:
    """Return the sum of every place's row, counted distance by distance."""
    here, reach = np.arange(places), len(weights) - 1
    near = np.zeros(places, np.int64)
    total = np.zeros(places, np.int64)
    for distance in range(min(reach, places)):
        count = (here >= distance).astype(np.int64) + ((here + distance < places) if distance else 0)
        near += count
        total += count * weights[distance]
    return (total + (places - near) * weights[-1]).astype(np.float64)
