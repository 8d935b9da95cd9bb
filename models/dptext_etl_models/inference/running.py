"""Log the progress of a long run of a model, and recognize its failures."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Listener = Callable[[int, int], None]
"""Function that is called with the number of items done and the number of all items."""
_SHORT = ("out of memory", "can't allocate", "cublas_status_alloc_failed", "cublas_status_execution_failed")
"""What errors of torch say when memory runs out; the last one is how an H100 with 128 MiB left fails."""
_EVERY = 30.0  # seconds between two log lines


class Progress:
    """Count items that are done, call a listener, and log now and then the time for the rest."""

    def __init__(self, log: logging.Logger, items: str, total: int, listener: Listener | None = None) -> None:
        self._log, self._items, self._total, self._listener = log, items, total, listener
        self._done = 0
        self._began = self._logged = time.monotonic()

    def add(self, count: int) -> None:
        self._done = min(self._total, self._done + count)
        if self._listener is not None:
            self._listener(self._done, self._total)
        now = time.monotonic()
        if now - self._logged >= _EVERY:
            self._logged = now
            left = (self._total - self._done) * (now - self._began) / max(1, self._done)
            self._log.info("%d of %d %s are done; about %.0f s are left", self._done, self._total, self._items, left)


def out_of_memory(exc: BaseException) -> bool:
    """Return whether an exception of Python or torch means that memory ran out, on the host or on a device."""
    if isinstance(exc, MemoryError) or type(exc).__name__ == "OutOfMemoryError":
        return True
    message = str(exc).lower()
    return isinstance(exc, RuntimeError) and any(sign in message for sign in _SHORT)


def to_device(values: npt.NDArray[Any], device: Any) -> Any:
    """Return numbers as a tensor of a device. A GPU copies them from pinned memory, so that the host does not wait."""
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(values))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def without_numbers(scores: Any) -> npt.NDArray[np.bool_]:
    """Return which rows of scores, numpy or torch, hold no number above minus infinity: they decide nothing."""
    with_numbers = _with_numbers(scores[:, :64])  # where these hold none, read all
    if not with_numbers.all():
        with_numbers[~with_numbers] = _with_numbers(scores[np.flatnonzero(~with_numbers)])
    return ~with_numbers


def _with_numbers(scores: Any) -> npt.NDArray[np.bool_]:
    with_numbers = (scores > float("-inf")).any(1)
    return np.array(with_numbers if isinstance(with_numbers, np.ndarray) else with_numbers.cpu().numpy())
