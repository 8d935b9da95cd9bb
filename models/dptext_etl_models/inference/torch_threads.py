"""Start threads in which torch starts no further ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock

_SETTING = Lock()  # torch has one number of threads per process: pools that set it wait for each other


def single_threads(width: int) -> ThreadPoolExecutor:
    """Start threads in which torch starts no further ones, so that it rounds alike on any number of cores."""
    import torch

    pool, met = ThreadPoolExecutor(width, thread_name_prefix="dptext-batch"), Barrier(width)

    def alone() -> None:
        torch.get_num_threads()  # a thread that was never asked uses the number of the process at its first product
        torch.set_num_threads(1)
        met.wait()

    with _SETTING:
        before = torch.get_num_threads()
        for started in [pool.submit(alone) for _ in range(width)]:
            started.result()
        torch.set_num_threads(before)  # torch also keeps a number for threads that are yet to start
    return pool
