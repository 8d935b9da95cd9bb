"""Give a process folders of its own for what it holds of an object store, and remove them with it.

Staged rows are not published yet, so the folders are readable by their owner alone. A process that is killed cannot
remove its folder: the next one does, because a lock says whose owner lives.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import cache
from pathlib import Path

from dptext_etl.errors import InputError, seam

PREFIX = "dptext-staged-"
_YOUNG = 60.0
"""Seconds in which a folder may not be locked yet."""


def of_process() -> Path:
    """Return the folder of this process; it goes when the process ends."""
    return _of(os.getpid())


@contextmanager
def for_block() -> Iterator[Path]:
    """Yield a folder that goes with the block."""
    folder, lock = _made()
    try:
        inside = folder / "files"  # anyone who locks that one does not wait for the lock of this process
        inside.mkdir(mode=0o700)
        yield inside
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@cache
def _of(process: int) -> Path:
    folder, _ = _made()

    def remove() -> None:
        if os.getpid() == process:  # not in a process that was forked from this one
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _made() -> tuple[Path, int]:
    """Make a folder, and lock it for as long as this process lives."""
    with seam("making a folder for staged rows", InputError, "name one with room: TMPDIR"):
        _sweep(Path(tempfile.gettempdir()))
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        flock(lock, LOCK_EX | LOCK_NB)
    return folder, lock


def _sweep(temporary: Path) -> None:
    """Remove the folders of processes that were killed."""
    for folder in temporary.glob(f"{PREFIX}*"):
        with suppress(OSError):
            found = folder.lstat()
            if found.st_uid != os.geteuid() or time.time() - found.st_mtime < _YOUNG:
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                flock(lock, LOCK_EX | LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
