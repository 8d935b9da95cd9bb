"""Compute shards side by side in threads, while one thread alone talks to the ledger, in one order.

Threads read texts, draw and stage: all of that is done by libraries that let other threads run meanwhile. What the
shards share (the ledger's connection, the checkpoints) belongs to the thread that started them. Shards hand it their
work and wait. It takes their turns in an order that follows from the number of lanes alone: with two lanes reserve 0,
reserve 1, commit 0, reserve 2, commit 1, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from threading import get_ident
from typing import Any, Generic, TypeVar

from dptext_etl.runner.shard.shard import Result, Schedule, Step, StoppedError

Frame = TypeVar("Frame")
Turn = tuple[Step, int]


@dataclass(frozen=True)
class _Asked:
    """What a shard wants done.

    Attributes:
        step: Its step, or None.
        index: Number of the shard.
        work: What to do.
        answer: Where the result goes.
    """

    step: Step | None
    index: int
    work: Callable[[], Any]
    answer: Future[Any]

    def do(self) -> BaseException | None:
        """Do it, hand over what came of it, and return what it raised."""
        try:
            self.answer.set_result(self.work())
        except BaseException as exc:  # noqa: BLE001  (the shard raises it)
            self.answer.set_exception(exc)
            return exc
        return None


class Lanes(Schedule, Generic[Frame]):
    """Take shards through their steps side by side."""

    parallel = True

    def __init__(self, numbers: range, width: int) -> None:
        self._width = width
        self._owner = get_ident()
        self._events: SimpleQueue[_Asked | int] = SimpleQueue()
        self._turns = turns(numbers, width)
        self._next = next(self._turns, None)
        self._waiting: dict[Turn, _Asked] = {}
        self._under_way: dict[int, Future[Any]] = {}
        self._gone: set[int] = set()
        self._failed: dict[int, BaseException] = {}
        self._last: int | None = None

    def run(self, step: Step | None, index: int, work: Callable[[], Result]) -> Result:
        """Have the thread that owns the ledger do some work when it is its turn, and wait for its result."""
        if get_ident() == self._owner:
            return work()
        asked = _Asked(step, index, work, Future())
        self._events.put(asked)
        result: Result = asked.answer.result()
        return result

    def each(
        self,
        frames: Iterator[tuple[int, Frame]],
        work: Callable[[int, Frame], Result],
        ended: Callable[[Result], object],
    ) -> None:
        """Do some work for every shard; call this in the thread that owns the ledger."""
        with ThreadPoolExecutor(self._width, thread_name_prefix="dptext-shard") as pool:
            try:
                more = True
                while more or self._under_way:
                    if more and len(self._under_way) < self._width:
                        more = not self._failed and self._begin(pool, frames, work)
                        if not more:
                            self._last = max([*self._gone, *self._under_way], default=-1)
                            self._take_turns()
                        continue
                    self._serve(self._events.get(), ended)
            except BaseException:
                self._stop()
                raise
        if self._failed:
            raise self._failed[min(self._failed)]

    def _begin(
        self, pool: ThreadPoolExecutor, frames: Iterator[tuple[int, Frame]], work: Callable[[int, Frame], Any]
    ) -> bool:
        """Start the next shard; False if there is none."""
        try:
            number, frame = next(frames)
        except StopIteration:
            return False
        except Exception as exc:  # noqa: BLE001  (shards that were read go on; then it is raised)
            self._failed[max([*self._gone, *self._under_way], default=-1) + 1] = exc
            return False
        begun = self._under_way[number] = pool.submit(work, number, frame)
        begun.add_done_callback(lambda _: self._events.put(number))
        return True

    def _never_comes(self, index: int) -> bool:
        """Whether a shard takes no more turns: it has ended, or no more shards are read."""
        return index in self._gone or (self._last is not None and index > self._last)

    def _serve(self, event: _Asked | int, ended: Callable[[Any], object]) -> None:
        if isinstance(event, int):
            self._end(event, ended)
        elif self._is_stopped(event.index):
            event.answer.set_exception(StoppedError("a shard before this one failed"))
        elif event.step is None:
            event.do()
        else:
            self._waiting[event.step, event.index] = event
        self._take_turns()

    def _take_turns(self) -> None:
        while self._next is not None:
            if self._next in self._waiting:
                failure = self._waiting.pop(self._next).do()
                if failure is not None:  # its shard will end so; none after it takes a turn meanwhile
                    self._failed[self._next[1]] = failure
                    self._stop_waiting()
            elif not self._never_comes(self._next[1]):
                return
            self._next = next(self._turns, None)

    def _end(self, index: int, ended: Callable[[Any], object]) -> None:
        future = self._under_way.pop(index)
        self._gone.add(index)
        failure = future.exception()
        if failure is None:
            ended(future.result())
            return
        self._failed[index] = failure
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        for turn in [turn for turn in self._waiting if self._is_stopped(turn[1])]:
            self._waiting.pop(turn).answer.set_exception(StoppedError("a shard before this one failed"))

    def _stop(self) -> None:
        """Refuse all that is asked from now on, until no shard is under way."""
        self._failed[-1] = StoppedError("the run stopped")
        self._stop_waiting()
        while self._under_way:
            event = self._events.get()
            if isinstance(event, int):
                self._under_way.pop(event)
            else:
                event.answer.set_exception(StoppedError("the run stopped"))

    def _is_stopped(self, index: int) -> bool:
        return bool(self._failed) and index > min(self._failed)


def turns(numbers: range, width: int) -> Iterator[Turn]:
    """Order the turns of shards of which so many are under way at a time.

    >>> [f"{step} {index}" for step, index in turns(range(3), 2)]
    ['reserve 0', 'reserve 1', 'commit 0', 'reserve 2', 'commit 1', 'commit 2']
    """
    for at in range(len(numbers) + width - 1):
        if at < len(numbers):
            yield "reserve", numbers[at]
        if at >= width - 1:
            yield "commit", numbers[at - width + 1]
