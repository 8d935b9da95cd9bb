"""Probe models with public texts: only what fails on these may stop a release (docs/spec/privacy.md#probe).

A model that fails on the texts of a release is no reason to stop: which text it is that fails is told by nobody, and
what fails is drawn uniformly. So whether a model works at all is asked with texts that everybody knows, on a schedule
that no private text moves.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from dptext_etl.errors import PolicyError
from dptext_etl.scoring import Choices, Slots

WORDS = ("good", "film", "about", "a", "doctor", "and", "the", "people", "of", "an", "old", "town")
"""What public texts are made of."""
SHORT = " ".join(WORDS)


class Undrawn:
    """A sampler that draws nothing: a probe releases nothing, and takes no integer of any stream."""

    def choose(self, scores: Any, slots: Slots, *, epsilon: float, low: float, high: float) -> Choices:  # noqa: ARG002
        """Look at no score, and return the first output for every slot."""
        return np.zeros(len(slots), np.uint32)

    def choose_uniform(self, slots: Slots, m: int) -> Choices:  # noqa: ARG002
        """Return the first output for every slot."""
        return np.zeros(len(slots), np.uint32)


def refuse() -> NoReturn:
    """Say that the model fails.

    Raises:
        PolicyError: Always.
    """
    raise PolicyError(
        "the model fails on public texts: what it would release is random, and costs as much; nothing more is charged",
        "check the model's files, its libraries and memory; a run that is started again goes on where it stopped",
    )
