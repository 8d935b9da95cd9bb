"""Probe models with public texts, because only a failure on these may stop a release (docs/spec/privacy.md#probe).

If a model fails on texts of a release, the release does not stop: no one learns which text failed, and its tokens are
drawn uniformly. So probes test with public texts whether a model works at all, on a schedule that does not depend on
private texts.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from dptext_etl.errors import PolicyError
from dptext_etl.scoring import Choices, Slots

WORDS = ("good", "film", "about", "a", "doctor", "and", "the", "people", "of", "an", "old", "town")
"""Words of the public texts."""
SHORT = " ".join(WORDS)


class Undrawn:
    """Sample without drawing: a probe releases nothing and takes no integer of any stream."""

    def choose(self, scores: Any, slots: Slots, **law: Any) -> Choices:  # noqa: ARG002
        return np.zeros(len(slots), np.uint32)

    def choose_uniform(self, slots: Slots, m: int, **stream: Any) -> Choices:  # noqa: ARG002
        return np.zeros(len(slots), np.uint32)


def refuse() -> NoReturn:
    """Refuse to continue because the model fails."""
    raise PolicyError(
        "the model fails on public texts: its releases would be random at the same cost; nothing more is charged",
        "check the model's files, its libraries and the memory; a new run continues where this one stopped",
    )
