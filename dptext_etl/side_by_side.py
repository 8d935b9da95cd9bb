"""Do work side by side in threads, in bounded memory: the libraries that do it let other threads run meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

from dptext_etl import _kernel

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(work: Callable[[Item], Result], items: Iterable[Item], width: int) -> Iterator[Result]:
    """Do some work for every item, and yield the results in the order of the items.

    Args:
        work: What to do with an item, in any thread.
        items: The items; the next one is taken when a thread is free for it.
        width: How many items are under way, or wait to be yielded, at a time; 1 works in this thread.

    >>> list(in_order(str.upper, "abcd", 2))
    ['A', 'B', 'C', 'D']
    """
    if width <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(width, thread_name_prefix="dptext-beside") as pool:
        under_way: deque[Future[Result]] = deque()
        try:
            for item in items:
                under_way.append(pool.submit(work, item))
                if len(under_way) >= width:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for begun in under_way:
                begun.cancel()


@contextmanager
def sharing() -> Iterator[None]:
    """Run a block in parallel with others; the kernel gives each block its share of the threads."""
    _kernel.begin_sharing()
    try:
        yield
    finally:
        _kernel.end_sharing()


def both(first: Callable[[], Item], second: Callable[[], Result], width: int) -> tuple[Item, Result]:
    """Do two things that do not depend on each other, and return what came of them; what the first raises comes first.

    Args:
        first: Done in this thread.
        second: Done in another one.
        width: How many threads this process may use; 1 does one after the other.

    >>> both(lambda: 1, lambda: "a", 2)
    (1, 'a')
    """
    if width <= 1:
        return first(), second()
    with ThreadPoolExecutor(1, thread_name_prefix="dptext-beside") as pool:
        beside = pool.submit(second)
        return first(), beside.result()


def ahead(items: Iterable[Item], width: int) -> Iterator[Item]:
    """Take items in a thread, the first one at once, and each other one while the one before it is used.

    Args:
        items: The items; none is None.
        width: How many threads this process may use; 1 takes every item when it is asked for.

    >>> list(ahead("abcd", 2))
    ['a', 'b', 'c', 'd']
    """
    if width <= 1:
        return iter(items)
    source, pool = iter(items), ThreadPoolExecutor(1, thread_name_prefix="dptext-ahead")
    return _taken_ahead(source, pool, pool.submit(next, source, None))


def _taken_ahead(source: Iterator[Item], pool: ThreadPoolExecutor, coming: Future[Item | None]) -> Iterator[Item]:
    with pool:
        while (item := coming.result()) is not None:
            coming = pool.submit(next, source, None)
            yield item


def _numpys_own() -> Any:
    """Find the library that comes with NumPy; those of others round by their own numbers of threads, and keep them."""
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController()
    return found.select(filepath=[one.filepath for one in found.lib_controllers if "numpy" in one.filepath])


class _SingleThreaded:
    """Keeps NumPy's products of matrices to one thread while anybody asks for it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._asking = 0
        self._limits: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Keep to one thread for the block; where several blocks overlap, until the last one ends."""
        with self._lock:
            if not self._asking:
                self._limits = _numpys_own().limit(limits=1)
            self._asking += 1
        try:
            yield
        finally:
            with self._lock:
                self._asking -= 1
                if not self._asking:
                    self._limits.restore_original_limits()


products_in_one_thread = _SingleThreaded()
"""A block whose threads each multiply matrices: the library's own threads would wait for each other and burn time."""


def each(work: Callable[[Item], object], items: Iterable[Item], width: int) -> None:
    """Do some work that multiplies matrices for every item, in any order."""
    if width <= 1:
        for item in items:
            work(item)
        return
    with products_in_one_thread(), ThreadPoolExecutor(width, thread_name_prefix="dptext-beside") as pool:
        list(pool.map(work, items))
