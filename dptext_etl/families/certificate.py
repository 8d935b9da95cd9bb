"""Compute certificates: the largest log ratio of any output between any two words, from the sampler's own data.

A certificate is always computed and never read from a stored claim. It comes from the integers of a stored table, from
the sampler's weights, or from the exact output distributions of all words. A mechanism without a finite table
(continuous noise) has no certificate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from dptext_etl.errors import PolicyError, seam

if TYPE_CHECKING:
    from dptext_etl.families.words import WordMechanism

CELLS = 2**18
"""Largest number of inputs times outputs for which distributions of fractions are compared word by word."""

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Certificate:
    """The computed loss of one draw.

    Attributes:
        source: Description of the data that it was computed from.
        realised: Largest log ratio; infinite if an output is possible for one word and impossible for another.
        exact: True if the loss is attained, False if it is an upper bound.
        words: Two words with a large log ratio, for the trials.
    """

    source: str
    realised: float
    exact: bool
    words: tuple[str, str]


def of_distributions(mechanism: WordMechanism) -> Certificate | None:
    """Compare the output distributions of all words, each as fractions."""
    words, outputs = mechanism.input_words(), mechanism.output_words()
    if outputs is None or len(words) * len(outputs) > CELLS or mechanism.word_disclosures:
        return None
    most: dict[str, tuple[Fraction, str]] = {}
    least: dict[str, tuple[Fraction, str]] = {}
    for seen, word in enumerate(words):
        try:
            chances = dict(zip(*mechanism.transition(word), strict=True))
        except PolicyError:
            return None
        for output in chances.keys() | most.keys():
            chance = chances.get(output, Fraction(0))
            known = output in most
            most[output] = max(most.get(output, (chance, word)), (chance, word))
            first = (chance, word) if known or not seen else (Fraction(0), words[0])
            least[output] = min(least.get(output, first), (chance, word))
    worst = max(most, key=lambda output: _log_ratio(most[output][0], least[output][0]))
    realised = _log_ratio(most[worst][0], least[worst][0])
    words = most[worst][1], least[worst][1]
    return Certificate("the exact output distributions of all words", realised, exact=True, words=words)


def _log_ratio(most: Fraction, least: Fraction) -> float:
    if not most:
        return 0.0
    if not least:
        return math.inf
    return math.log(most.numerator * least.denominator) - math.log(most.denominator * least.numerator)


def read_table(path: Path) -> tuple[Arrays, dict[str, str]]:
    """Read a complete stored table: its arrays and its metadata."""
    with seam("reading the table"), safe_open(str(path), framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata())  # noqa: SIM118


def word_list(stored: npt.NDArray[Any]) -> list[str]:
    """Return the words in an array of a stored table."""
    return bytes(stored).decode().split("\n")


def stored_words(words: Iterable[str]) -> npt.NDArray[np.uint8]:
    """Return the array of a stored table that holds words."""
    return np.frombuffer("\n".join(words).encode(), dtype=np.uint8)
