"""Run work in parallel threads, in bounded memory: while one waits for the disk, another computes."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from dptext_etl import _kernel
from dptext_etl.errors import PolicyError

Item = TypeVar("Item")
Result = TypeVar("Result")


_USED_BY: set[int] = set()
"""Processes in which Polars had started its threads when they forked."""
_TASKS = Path("/proc/self/task")
_FORKS_UNUSED: list[bool] = []
"""Not empty in a process that imports Polars without using it, so that its forks need not import it."""
_FORKED = 0x40  # Linux sets this flag of a process until it starts another program


def _facts(place: Path) -> tuple[str, int, int]:
    """Return the name of a process or thread, its flags, and the time of its start."""
    name, _, rest = (place / "stat").read_text().partition("(")[2].rpartition(")")
    return name, int(rest.split()[6]), int(rest.split()[19])


def _note_threads(process: int | None = None, until: float = inf) -> None:
    if not _TASKS.is_dir():  # other systems than Linux do not show the threads: a process that imported Polars counts
        _USED_BY.update({os.getpid()} if "polars" in sys.modules and not _FORKS_UNUSED else ())
        return
    with suppress(OSError):
        for thread in Path(f"/proc/{process or 'self'}/task").iterdir():
            with suppress(OSError):  # a thread that has ended
                name, _, begun = _facts(thread)
                if name.startswith("polars-0") and begun <= until:
                    _USED_BY.add(process or os.getpid())


os.register_at_fork(before=_note_threads)
with suppress(OSError):  # this process may have been forked before it imported this module
    _, flags, begun = _facts(Path("/proc/self"))
    _note_threads(os.getppid(), begun) if flags & _FORKED else None


def fork_unused() -> None:
    """Say that this process only imports Polars, and forks before it uses it."""
    _FORKS_UNUSED.append(True)


def require_threads() -> None:
    """Refuse a process that was forked from one that had used Polars: it would wait for threads that it lacks."""
    if _USED_BY - {os.getpid()}:
        msg = "this process was forked from one that had used Polars, whose threads it does not have: it would hang"
        raise PolicyError(msg, 'start it by multiprocessing.get_context("spawn"), or fork before the import of Polars')


def map_in_order(work: Callable[[Item], Result], items: Iterable[Item], width: int) -> Iterator[Result]:
    """Work on at most `width` items at a time, and yield the results in the order of the items.

    >>> list(map_in_order(str.upper, "abcd", 2))
    ['A', 'B', 'C', 'D']
    """
    if width <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(width, thread_name_prefix="dptext-map") as pool:
        under_way: deque[Future[Result]] = deque()
        try:
            for item in items:
                under_way.append(pool.submit(work, item))
                if len(under_way) >= width:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()


@contextmanager
def sharing_threads() -> Iterator[None]:
    """Run a block in parallel with others; the kernel gives each block its share of the threads."""
    _kernel.begin_sharing()
    try:
        yield
    finally:
        _kernel.end_sharing()


def run_both(first: Callable[[], Item], second: Callable[[], Result], width: int) -> tuple[Item, Result]:
    """Run the first function in this thread and the second in another; an error of the first comes first.

    >>> run_both(lambda: 1, lambda: "a", 2)
    (1, 'a')
    """
    if width <= 1:
        return first(), second()
    with ThreadPoolExecutor(1, thread_name_prefix="dptext-both") as pool:
        future = pool.submit(second)
        return first(), future.result()


def prefetch(items: Iterable[Item], width: int) -> Iterator[Item]:
    """Prefetch one item, which is not None, in a background thread, beginning at once; a width of 1 does not.

    >>> list(prefetch("abcd", 2))
    ['a', 'b', 'c', 'd']
    """
    if width <= 1:
        return iter(items)
    source, pool = iter(items), ThreadPoolExecutor(1, thread_name_prefix="dptext-prefetch")
    first = pool.submit(next, source, None)

    def rest(coming: Future[Item | None]) -> Iterator[Item]:
        with pool:
            while (item := coming.result()) is not None:
                coming = pool.submit(next, source, None)
                yield item

    return rest(first)


class _SingleThreadedProducts:
    """Keep NumPy's products of matrices to one thread while any block is open: threads that multiply would wait."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._blocks = 0
        self._limits: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._blocks:
                from threadpoolctl import ThreadpoolController

                pools = ThreadpoolController()  # others than NumPy's keep their numbers of threads, by which they round
                paths = [pool.filepath for pool in pools.lib_controllers if "numpy" in pool.filepath]
                self._limits = pools.select(filepath=paths).limit(limits=1)
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks:
                    self._limits.restore_original_limits()


single_threaded_products = _SingleThreadedProducts()


def for_each_product(work: Callable[[Item], object], items: Iterable[Item], width: int) -> None:
    """Do some work that multiplies matrices for every item, in any order."""
    if width <= 1:
        for item in items:
            work(item)
        return
    with single_threaded_products(), ThreadPoolExecutor(width, thread_name_prefix="dptext-product") as pool:
        list(pool.map(work, items))
