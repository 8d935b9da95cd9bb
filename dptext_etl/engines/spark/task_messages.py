"""Share marker files between the driver and the tasks of one run, in the run's staging folder or store.

The markers prove that the executors reach the place of staging. They count finished rows and signal tasks to stop. A
task that outlives its run finds no markers and stops.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Event, Thread
from typing import ClassVar

from dptext_etl.errors import DPTextError, InputError
from dptext_etl.objects import Objects
from dptext_etl.runner import durable
from dptext_etl.runner.place import Place

_STOP = "stop"
_PREFIX = "board-"
_BOARDS = "boards"
_UP = "up"


@dataclass(frozen=True)
class FolderMarkers:
    """Empty files in a folder of the staging folder, whose names hold counts, but no id and no text."""

    place: Place
    name: str
    poll_seconds: ClassVar[float] = 0.5

    @property
    def folder(self) -> Path:
        """Return the folder of the markers."""
        return self.place.folder / f"{_PREFIX}{self.name}"

    def create(self) -> None:
        """Make the markers, and remove those of runs that were killed."""
        for old in self.folder.parent.glob(f"{_PREFIX}*"):
            shutil.rmtree(old, ignore_errors=True)
        durable.private_folder(self.folder)

    def remove(self) -> None:
        """Remove the markers; tasks that still run will stop at their next shard."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def require(self) -> None:
        """Refuse a machine that does not see the markers."""
        try:
            (self.folder / "seen").touch()
        except OSError as exc:
            reason = type(exc).__name__
        else:
            return
        msg = f"an executor cannot use the staging folder {self.folder.parent} ({reason})"
        hint = "staging must lie on storage that driver and executors share under one path, owned by their user: "
        raise InputError(msg, hint + 'write staging = "/shared/folder" into the policy')

    def done(self, number: int, rows: int) -> None:
        """Mark a shard as done; marking it twice changes nothing."""
        if self.folder.is_dir():
            (self.folder / f"{number}-{rows}").touch()

    def rows_done(self) -> int:
        """Count the rows of the shards that are done."""
        return _rows(path.name for path in self.folder.glob("*-*"))

    def stop(self) -> None:
        """Tell all tasks to stop before their next shard."""
        if self.folder.is_dir():
            (self.folder / _STOP).touch()

    @property
    def stopped(self) -> bool:
        """Return True if tasks shall stop."""
        return not self.folder.is_dir() or (self.folder / _STOP).exists()


@dataclass(frozen=True)
class StoreMarkers:
    """Empty objects below one name in the staging store, whose names hold counts, but no id and no text."""

    place: Place
    name: str
    poll_seconds: ClassVar[float] = 3.0

    def create(self) -> None:
        """Write an object."""
        store = _store(self.place)
        store.delete(*store.names(_BOARDS))
        store.put(self._named(_UP), b"")

    def remove(self) -> None:
        """Delete the objects: first the one that tasks look for."""
        store = _store(self.place)
        with suppress(InputError):  # what is left goes when the next markers are made
            store.delete(self._named(_UP))
            store.delete(*store.names(self._named("").rstrip("/")))

    def require(self) -> None:
        """Read an object and write one, with what this machine knows of the store."""
        problem = None
        try:
            found = _store(self.place).get(self._named(_UP))
            if found is not None:
                _store(self.place).put(self._named("seen"), b"")
                return
        except DPTextError as refused:
            problem = refused.message
        msg = f"an executor cannot use the staging folder {self.place.where}"
        if problem is None:
            raise InputError(f"{msg}: its run is over", "run the same policy again")
        hint = "executors need a role of their own, or the variables of storage_options: spark.executorEnv.NAME"
        raise InputError(f"{msg}: {problem}", hint)

    def done(self, number: int, rows: int) -> None:
        """Write an empty object."""
        _store(self.place).put(self._named(f"{number}-{rows}"), b"")

    def rows_done(self) -> int:
        """List the objects."""
        names = _store(self.place).names(self._named("").rstrip("/"))
        return _rows(name for path in names if "-" in (name := path.rpartition("/")[2]))

    def stop(self) -> None:
        """Write another content, if the markers are there."""
        store = _store(self.place)
        if store.tag(self._named(_UP)) is not None:
            store.put(self._named(_UP), _STOP.encode())

    @property
    def stopped(self) -> bool:
        """Read the object."""
        found = _store(self.place).get(self._named(_UP))
        return found is None or found.content == _STOP.encode()

    def _named(self, name: str) -> str:
        return f"{_BOARDS}/{self.name}/{name}"


Markers = FolderMarkers | StoreMarkers


def markers_of(place: Place, name: str) -> Markers:
    """Return the markers of that name at the place of staging."""
    return StoreMarkers(place, name) if place.remote else FolderMarkers(place, name)


def _rows(names: Iterable[str]) -> int:
    return sum(int(name.partition("-")[2]) for name in names)


@lru_cache(maxsize=8)
def _store(place: Place) -> Objects:
    return place.objects()


@contextmanager
def watched(markers: Markers, report: Callable[[int], object], *, idle: bool = False) -> Iterator[None]:
    """Make markers for the block, and report the rows that tasks finish, from a thread of its own."""
    over, failures = Event(), list[DPTextError]()

    def watch() -> None:
        seen = 0
        while True:
            last = over.wait(markers.poll_seconds)
            try:
                now = markers.rows_done()
            except InputError:  # of a store that is away: what is held is held on to
                now = seen
            if now > seen or idle:
                try:
                    report(now - seen)
                except DPTextError as failure:
                    failures.append(failure)
                    markers.stop()
                    return
                seen = now
            if last:
                return

    thread = Thread(target=watch, name="dptext-progress", daemon=True)
    markers.create()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        markers.remove()
        if failures:
            raise failures[0]
