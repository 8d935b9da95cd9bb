"""Pass messages between the driver and the tasks of one run, as small files in the run's staging.

They prove that the executors reach staging, count finished rows, and ask tasks to stop. A task that outlives its run
finds no messages and stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread

from dptext_etl.errors import DPTextError, InputError
from dptext_etl.storage import Storage

_FOLDER = "messages"
_RUNNING = "running"
_STOP = b"stop"


@dataclass(frozen=True)
class TaskMessages:
    """Small files in staging, whose names hold counts, but no id and no text."""

    staging: Storage
    name: str

    @property
    def poll_seconds(self) -> float:
        """How often the driver looks for messages."""
        return 3.0 if self.staging.remote else 0.5

    @property
    def _files(self) -> Storage:
        return self.staging.child(_FOLDER).child(self.name)

    def create(self) -> None:
        """Make the messages, and remove those of runs that were killed."""
        with suppress(OSError):
            self.staging.delete_folder(_FOLDER)
        self._files.prepare()
        self._files.put(_RUNNING, b"")

    def remove(self) -> None:
        """Remove the messages, first the one that tasks look for: those that still run stop at their next shard."""
        with suppress(OSError, InputError):  # what is left goes when the next messages are made
            self._files.delete(_RUNNING)
            self.staging.delete_folder(_FOLDER)

    def require(self) -> None:
        """Refuse a machine that cannot read and write the messages."""
        problem = None
        try:
            if self._files.read(_RUNNING) is not None:
                self._files.put("seen", b"")
                return
        except DPTextError as refused:
            problem = refused.message
        msg = f"an executor cannot use the staging folder {self.staging.url}"
        if not self.staging.remote:
            hint = "staging must lie on storage that driver and executors share under one path, owned by their user: "
            raise InputError(
                f"{msg} ({problem or 'it is not there'})", hint + 'write staging = "/shared/folder" into the policy'
            )
        if problem is None:
            raise InputError(f"{msg}: its run is over", "run the same policy again")
        hint = "executors need a role of their own, or the variables of storage_options: spark.executorEnv.NAME"
        raise InputError(f"{msg}: {problem}", hint)

    def done(self, number: int, rows: int) -> None:
        """Report a shard as done, unless the run is over; reporting it twice changes nothing."""
        with suppress(InputError):
            self._files.put(f"{number}-{rows}", b"")

    def rows_done(self) -> int:
        """Count the rows of the shards that are done."""
        return sum(int(name.partition("-")[2]) for name in self._files.glob("[0-9]*-*"))

    def stop(self) -> None:
        """Ask all tasks to stop before their next shard."""
        if self._files.read(_RUNNING) is not None:
            self._files.put(_RUNNING, _STOP)

    @property
    def stopped(self) -> bool:
        """Whether tasks shall stop: they were asked to, or their run is over."""
        return self._files.read(_RUNNING) in {None, _STOP}


@contextmanager
def watched(messages: TaskMessages, report: Callable[[int], object], *, idle: bool = False) -> Iterator[None]:
    """Make messages for the block, and report the rows that tasks finish, from a thread of its own."""
    over, failures = Event(), list[DPTextError]()

    def watch() -> None:
        seen = 0
        while True:
            last = over.wait(messages.poll_seconds)
            try:
                now = messages.rows_done()
            except InputError:  # of a store that is away: what is held is held on to
                now = seen
            if now > seen or idle:
                try:
                    report(now - seen)
                except DPTextError as failure:
                    failures.append(failure)
                    messages.stop()
                    return
                seen = now
            if last:
                return

    thread = Thread(target=watch, name="dptext-progress", daemon=True)
    messages.create()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        messages.remove()
        if failures:
            raise failures[0]
