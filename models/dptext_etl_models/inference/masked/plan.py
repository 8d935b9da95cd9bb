"""Plan which words are deleted, and after which words another word is added (algorithm 3, corrected).

A plan consists of Bernoulli trials that do not depend on any text. It is drawn before anything is scored, from a stream
of its own, so it discloses nothing about the text. Given the plan, a release costs only the draws that it makes, which
are at most two per word.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.guarantee import exact
from dptext_etl.scoring import Slots, bernoulli
from dptext_etl_models.inference.masked.steps import INSERTED, Item, Script

PLAN = 3
"""Purpose number of the trials: word i takes positions 2i (deleted?) and 2i + 1 (followed by another word?)."""


def draw_plans(
    keys: pa.Array, counts: npt.NDArray[np.int64], deletion: float, addition: float
) -> list[npt.NDArray[np.bool_]]:
    """Draw the plans of some texts."""
    records = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    words = np.arange(len(records), dtype=np.uint64) - np.repeat(starts[:-1], counts).astype(np.uint64)
    drawn = np.zeros((len(records), 2), bool)
    for side, chance in enumerate((deletion, addition)):
        slots = Slots(keys, records, 2 * words + np.uint64(side))
        drawn[:, side] = bernoulli(slots, exact(chance), purpose=PLAN)
    return [drawn[first:last] for first, last in pairwise(starts.tolist())]


def planned(words: Sequence[str], kept: Sequence[bool], plan: npt.NDArray[np.bool_]) -> Script:
    """Return the script of a text under a plan: remaining words and added words take one draw each."""
    items: list[Item] = []
    of_words = iter(plan.tolist())
    for number, keep in enumerate(kept):
        if keep:
            items.append(Item(number, drawn=False, tail=number + 1))
            continue
        deleted, followed = next(of_words)
        if not deleted:
            items.append(Item(number, drawn=True, tail=number + 1))
        if followed:
            items.append(Item(INSERTED, drawn=True, tail=number + 1))
    return Script(words, items)


@lru_cache(maxsize=4096)
def likely_draws(words: int, deletion: float, addition: float, delta: float) -> int:
    """Return the smallest t such that a text takes more than t draws with probability at most `delta`.

    >>> likely_draws(20, 0.05, 0.1, 1e-6), likely_draws(100, 0.05, 0.25, 1e-6)
    (30, 144)
    """
    stays = 1.0 - deletion
    one = np.array([deletion * (1 - addition), stays * (1 - addition) + deletion * addition, stays * addition])
    distribution = _power(one, words)
    tails = np.cumsum(distribution[::-1])[::-1] * (
        1 + 1e-9
    )  # tails[t]: probability of at least t draws, plus a margin above all rounding errors
    beyond = np.append(tails[1:], 0.0)
    return int(np.argmax(beyond <= delta))


def _power(one: npt.NDArray[np.float64], times: int) -> npt.NDArray[np.float64]:
    """Return the distribution of a sum of equal draws; sums of positive products lose hardly any precision."""
    total, square = np.ones(1), one
    while times:
        if times & 1:
            total = np.convolve(total, square)
        times >>= 1
        if times:
            square = np.convolve(square, square)
    return total
