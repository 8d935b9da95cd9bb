"""Compute several batches of a small model at a time, each in a thread of its own.

Threads that share a batch of a small model wait for each other longer than they compute. So here every batch has one
thread, and as many batches are under way as there are threads. One thread alone computes a batch whatever else is
under way, so that the number of texts changes no bit of a score.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier, Lock
from typing import Any

_SETTING = Lock()


class BatchThreads:
    """Threads that compute one batch each; with a width of 1, the caller's own."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._pool = _single_threads(width) if width > 1 else None

    def begin(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        """Begin a piece of work, and return the future of its result or of its exception."""
        if self._pool is not None:
            return self._pool.submit(work, *given)
        done: Future[Any] = Future()
        try:
            done.set_result(work(*given))
        except Exception as exc:  # noqa: BLE001  (the caller of the result gets it)
            done.set_exception(exc)
        return done


def _single_threads(width: int) -> ThreadPoolExecutor:
    """Start threads in which torch takes no further ones; they end with the pool."""
    import torch

    pool, met = ThreadPoolExecutor(width, thread_name_prefix="dptext-batch"), Barrier(width)

    def alone() -> None:
        torch.get_num_threads()  # a thread that was never asked takes the number of the process at its first product
        torch.set_num_threads(1)
        met.wait()

    with _SETTING:
        before = torch.get_num_threads()
        for started in [pool.submit(alone) for _ in range(width)]:
            started.result()
        torch.set_num_threads(before)  # torch also keeps a number for threads that are yet to start
    return pool
