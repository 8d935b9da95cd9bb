"""Divide the budgets of texts among their draws, and draw in one pass or in two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.allocation.allocation import Allocation, Place
from dptext_etl.guarantee import MICRO
from dptext_etl.scoring import TOKEN, Sampler, Slots

TEMPLATE = 7  # purpose number of the choice of a template, at position 0
PASS = 256  # what a pass adds to purpose numbers

Epsilons = npt.NDArray[np.float64]
Found = TypeVar("Found")


class Marked(NamedTuple):
    """A text and its draws, for a division."""

    tokens: Sequence[str]  # the words of the text, in order
    places: Sequence[Place]  # index of each draw's word, or the indices of its words; None for a draw that has none
    most: int  # largest number of draws of a text with these disclosures, at least as many as there are


def along(words: int, steps: int) -> list[int | None]:
    """Return the word that lies as far along a text as each step along an answer; none if there are no words.

    >>> along(3, 6)
    [0, 0, 1, 1, 2, 2]
    """
    return [step * words // steps if words else None for step in range(steps)]


def draw_in_passes(
    allocation: Allocation,
    texts: Sequence[Marked],
    keys: pa.Array,
    sampler: Sampler,
    *,
    once: Callable[[list[Epsilons], int], Found],
    words: Callable[[Found], Sequence[Marked]],
) -> list[Found]:
    """Draw texts in one pass, or in two if the first release divides the budget of the second."""
    if allocation.first is None:
        return [once(divided(allocation, texts, keys, sampler), TOKEN)]
    even = [
        _numbers([allocation.even(text.most)] * len(text.places)) if text.places else _numbers([]) for text in texts
    ]
    before = once(even, TOKEN)
    return [
        before,
        once([_numbers(allocation.over(*text[:2], draws=text.most)) for text in words(before)], TOKEN + PASS),
    ]


def divided(allocation: Allocation, texts: Sequence[Marked], keys: pa.Array, sampler: Sampler) -> list[Epsilons]:
    """Return the epsilons of each text's draws, shape (draws,) each, as the allocation says."""
    if allocation.template is not None:
        shares = allocation.template
        return [_numbers(allocation.by_position(shares, len(text.places), draws=text.most)) for text in texts]
    wanted = [allocation.over(text.tokens, text.places, draws=text.most) for text in texts]
    if not allocation.templates:
        return [_numbers(parts) for parts in wanted]
    offered = [
        [allocation.by_position(shares, len(text.places), draws=text.most) for shares in allocation.templates]
        for text in texts
    ]
    taking = [number for number, text in enumerate(texts) if text.places]
    found: list[Sequence[int]] = list(wanted)
    if taking:
        fits = np.array([fit(wanted[number], offered[number]) for number in taking])
        slots = Slots(keys, np.array(taking, np.uint32), np.zeros(len(taking), np.uint64))
        price = allocation.choosing or 0.0
        chosen = sampler.choose(fits, slots, epsilon=price, low=0.0, high=1.0, purpose=TEMPLATE)
        for number, template in zip(taking, chosen.tolist(), strict=True):
            found[number] = offered[number][template]
    return [_numbers(parts) for parts in found]


def fit(wanted: Sequence[int], offered: Sequence[Sequence[int]]) -> list[float]:
    """Return how close each offered division is to the wanted one, from 0 to 1: one less half the l1 distance."""
    shares = np.array([wanted, *offered], np.float64)
    shares /= shares.sum(axis=1, keepdims=True)
    away: list[float] = (np.abs(shares[1:] - shares[0]).sum(axis=1) / 2).tolist()
    return [1.0 - distance for distance in away]


def _numbers(parts: Sequence[int]) -> Epsilons:
    return np.array(parts, np.float64) / MICRO
