"""Tell rows of scores that say nothing from rows that say something."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_GLANCE = 64
"""Scores of a row that nearly always hold a number; all others are read where these hold none."""


def without_numbers(scores: Any) -> npt.NDArray[np.bool_]:
    """Return which rows of scores, numpy or torch, hold no number above minus infinity: they decide nothing."""
    found = _with_numbers(scores[:, :_GLANCE])
    if not found.all():
        found[~found] = _with_numbers(scores[np.flatnonzero(~found)])
    return ~found


def _with_numbers(scores: Any) -> npt.NDArray[np.bool_]:
    some = (scores > float("-inf")).any(1)
    return np.array(some if isinstance(some, np.ndarray) else some.cpu().numpy())
