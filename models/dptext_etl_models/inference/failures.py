"""Recognize what a model could not compute: memory ran out, or a row of scores holds no number."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def out_of_memory(exc: BaseException) -> bool:
    """Return whether an exception of Python or torch means that memory ran out, on the host or on a device."""
    if isinstance(exc, MemoryError) or type(exc).__name__ == "OutOfMemoryError":
        return True
    message = str(exc).lower()
    return isinstance(exc, RuntimeError) and ("out of memory" in message or "can't allocate" in message)


def without_numbers(scores: Any) -> npt.NDArray[np.bool_]:
    """Return which rows of scores, numpy or torch, hold no number above minus infinity: they decide nothing."""
    some = _with_numbers(scores[:, :64])  # where these hold none, read all
    if not some.all():
        some[~some] = _with_numbers(scores[np.flatnonzero(~some)])
    return ~some


def _with_numbers(scores: Any) -> npt.NDArray[np.bool_]:
    some = (scores > float("-inf")).any(1)
    return np.array(some if isinstance(some, np.ndarray) else some.cpu().numpy())
