"""Watch the notice board of tasks while they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from dptext_etl.engines.spark.task_messages import Board
from dptext_etl.errors import DPTextError, InputError


@contextmanager
def watched(board: Board, report: Callable[[int], object], *, idle: bool = False) -> Iterator[None]:
    """Put up a board for the block, and report the rows that tasks finish, from a thread of its own."""
    over, failures = Event(), list[DPTextError]()

    def watch() -> None:
        seen = 0
        while True:
            last = over.wait(board.looks)
            try:
                now = board.rows_done()
            except InputError:  # of a store that is away: what is held is held on to
                now = seen
            if now > seen or idle:
                try:
                    report(now - seen)
                except DPTextError as failure:
                    failures.append(failure)
                    board.stop()
                    return
                seen = now
            if last:
                return

    thread = Thread(target=watch, name="dptext-progress", daemon=True)
    board.put_up()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        board.take_down()
        if failures:
            raise failures[0]
