"""Tell rows of scores that say nothing from rows that say something."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def without_numbers(scores: Any) -> npt.NDArray[np.bool_]:
    """Return which rows of scores, numpy or torch, hold no number above minus infinity: they decide nothing."""
    some = (scores > float("-inf")).any(1)
    return ~np.asarray(some if isinstance(some, np.ndarray) else some.cpu().numpy())
