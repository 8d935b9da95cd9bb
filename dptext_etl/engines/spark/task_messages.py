"""Share a notice board between the driver and the tasks of one run, in the run's staging folder or store.

The board proves that the executors reach the place of staging. It counts finished rows and signals tasks to stop. A
task that outlives its run finds no board and stops.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
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
class Board(ABC):
    """Empty files whose names hold counts, but no id and no text.

    Attributes:
        place: The place of staging.
        name: Name of the board.
        looks: Seconds between two looks at it.
    """

    place: Place
    name: str
    looks: ClassVar[float] = 0.5

    @staticmethod
    def of(place: Place, name: str) -> Board:
        """Return the board of that name at the place of staging."""
        return StoreBoard(place, name) if place.remote else FolderBoard(place, name)

    @abstractmethod
    def put_up(self) -> None:
        """Make the board, and remove the boards of runs that were killed."""

    @abstractmethod
    def take_down(self) -> None:
        """Remove the board; tasks that still run will stop at their next shard."""

    @abstractmethod
    def require(self) -> None:
        """Refuse a machine that does not see the board."""

    @abstractmethod
    def done(self, number: int, rows: int) -> None:
        """Mark a shard as done; marking it twice changes nothing."""

    @abstractmethod
    def rows_done(self) -> int:
        """Count the rows of the shards that are done."""

    @abstractmethod
    def stop(self) -> None:
        """Tell all tasks to stop before their next shard."""

    @property
    @abstractmethod
    def stopped(self) -> bool:
        """Return True if tasks shall stop."""


class FolderBoard(Board):
    """A folder in the staging folder."""

    @property
    def folder(self) -> Path:
        """The folder."""
        return self.place.folder / f"{_PREFIX}{self.name}"

    def put_up(self) -> None:
        """Make the folder."""
        for old in self.folder.parent.glob(f"{_PREFIX}*"):
            shutil.rmtree(old, ignore_errors=True)
        durable.private_folder(self.folder)

    def take_down(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def require(self) -> None:
        """Write a file."""
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
        """Write an empty file."""
        if self.folder.is_dir():
            (self.folder / f"{number}-{rows}").touch()

    def rows_done(self) -> int:
        """List the folder."""
        return _rows(path.name for path in self.folder.glob("*-*"))

    def stop(self) -> None:
        """Write an empty file."""
        if self.folder.is_dir():
            (self.folder / _STOP).touch()

    @property
    def stopped(self) -> bool:
        """Look for the folder and the file."""
        return not self.folder.is_dir() or (self.folder / _STOP).exists()


class StoreBoard(Board):
    """Objects below one name in the staging store."""

    looks = 3.0

    def put_up(self) -> None:
        """Write an object."""
        store = _store(self.place)
        store.delete(*store.names(_BOARDS))
        store.put(self._named(_UP), b"")

    def take_down(self) -> None:
        """Delete the objects: first the one that tasks look for."""
        store = _store(self.place)
        with suppress(InputError):  # what is left goes with the next board
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
        """Write another content, if the board is up."""
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


def _rows(names: Iterable[str]) -> int:
    return sum(int(name.partition("-")[2]) for name in names)


@lru_cache(maxsize=8)
def _store(place: Place) -> Objects:
    return place.objects()
