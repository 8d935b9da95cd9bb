"""A notice board that driver and tasks of one run share: a folder in the run's staging folder.

It shows that the executors see the staging folder at all, how many rows are done, and whether to stop. A task that
outlived its run finds the board gone and stops.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from dptext_etl.errors import InputError
from dptext_etl.runner import durable

_STOP = "stop"
_PREFIX = "board-"


@dataclass(frozen=True)
class Board:
    """A folder of empty files whose names say counts; no id and no text is written there.

    Attributes:
        folder: Where it is.
    """

    folder: Path

    @classmethod
    def of(cls, staging: Path, name: str) -> Board:
        """Name a board of a staging folder."""
        return cls(staging / f"{_PREFIX}{name}")

    def put_up(self) -> None:
        """Make the board, and take down those of runs that were killed."""
        for old in self.folder.parent.glob(f"{_PREFIX}*"):
            shutil.rmtree(old, ignore_errors=True)
        durable.private_folder(self.folder)

    def take_down(self) -> None:
        """Remove the board; tasks that still run stop at their next shard."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def require(self) -> None:
        """Refuse a machine that does not see the board.

        Raises:
            InputError: It does not, or may not write there.
        """
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
        """Say that a shard is done; saying it twice changes nothing."""
        if self.folder.is_dir():
            (self.folder / f"{number}-{rows}").touch()

    def rows_done(self) -> int:
        """Count the rows of the shards that are done."""
        return sum(int(path.name.partition("-")[2]) for path in self.folder.glob("*-*"))

    def stop(self) -> None:
        """Tell all tasks to stop before their next shard."""
        if self.folder.is_dir():
            (self.folder / _STOP).touch()

    @property
    def stopped(self) -> bool:
        """Whether tasks are to stop."""
        return not self.folder.is_dir() or (self.folder / _STOP).exists()
