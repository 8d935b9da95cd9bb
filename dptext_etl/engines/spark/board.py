"""Share a notice board between the driver and the tasks of one run, as a folder in the run's staging folder.

The board proves that the executors see the staging folder. It counts finished rows and tells tasks to stop. A task that
outlives its run finds no board and stops.
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
    """A folder of empty files whose names hold counts, but no id and no text.

    Attributes:
        folder: Path of the board.
    """

    folder: Path

    @classmethod
    def of(cls, staging: Path, name: str) -> Board:
        """Return the board of that name in a staging folder."""
        return cls(staging / f"{_PREFIX}{name}")

    def put_up(self) -> None:
        """Make the board, and remove the boards of runs that were killed."""
        for old in self.folder.parent.glob(f"{_PREFIX}*"):
            shutil.rmtree(old, ignore_errors=True)
        durable.private_folder(self.folder)

    def take_down(self) -> None:
        """Remove the board; tasks that still run will stop at their next shard."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def require(self) -> None:
        """Refuse a machine that does not see the board.

        Raises:
            InputError: This machine does not see the board, or may not write there.
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
        """Mark a shard as done; marking it twice changes nothing."""
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
        """Return True if tasks shall stop."""
        return not self.folder.is_dir() or (self.folder / _STOP).exists()
