"""Write files that survive a crash: write a draft next to the file, flush it to disk, then rename it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import IO

from dptext_etl.errors import BusyError, InputError, seam
from dptext_etl.files import flush

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
PUBLIC_FILE = 0o644

_ROOM = "is there space and write access? What is spent is kept: run the same policy again and it goes on from here"


def write(
    path: Path,
    fill: Callable[[IO[bytes]], object],
    *,
    mode: int = PRIVATE_FILE,
    action: str = "writing",
    listed: bool = True,
) -> None:
    """Write a file so that it is there whole or not at all, whatever happens in between."""
    draft = path.with_name(f".{path.name}.draft")
    with seam(action, InputError, _ROOM):
        try:
            descriptor = os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, mode)
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                fill(file)
                file.flush()
                os.fsync(descriptor)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        if listed:
            flush(path.parent)


def name_again(path: Path, again: Path, *, mode: int = PRIVATE_FILE, listed: bool = True) -> None:
    """Give a file a second name that outlives the first, durably.

    Nothing happens if the file is gone or the name is taken.
    """
    if again.exists():
        return
    with seam("keeping what was staged", InputError, _ROOM):
        if not path.exists():
            return
        try:
            again.hardlink_to(path)
        except FileExistsError:
            return
        except OSError:  # a file system without links
            write(again, lambda file: file.write(path.read_bytes()), mode=mode, action="keeping what was staged")
    if listed:
        flush(again.parent)


def private_folder(path: Path) -> None:
    """Make a folder and its missing parents, readable by its owner alone, who is this process's user."""
    require_own(path)
    with seam(f"making the staging folder {path}", InputError, "the folder must be writable by you"):
        path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        path.chmod(PRIVATE_FOLDER)


def require_own(path: Path) -> None:
    """Refuse a staging folder that cannot be made, or that belongs to someone else. Nothing is made."""
    _require_place(path, f"the staging folder {path} cannot be made", "the folder must be writable by you")
    if not path.exists():
        return
    owner, user = path.stat().st_uid, os.geteuid()
    if owner == user:
        return
    msg = f"the staging folder {path} belongs to user {owner}, not to user {user}: its owner could read raw texts"
    raise InputError(msg, "remove it, or name a folder of your own as staging; nothing was spent")


def require_writable(folder: Path, *, making: bool = True) -> None:
    """Check, before anything is spent, that a folder can be written to. Make the folder if need be."""
    hint = "the folder must be writable; nothing was spent"
    _require_place(folder, f"writing to {folder} is not possible", hint)
    if not making:
        return
    probe = folder / f".dptext-{os.getpid()}"
    with seam(f"writing to {folder}", InputError, hint):
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()


def _require_place(folder: Path, problem: str, hint: str) -> None:
    """Refuse a folder that cannot be made where it should stand, or be written to."""
    with seam(f"looking at {folder}", InputError, hint):
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        fits = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    if not fits:
        raise InputError(problem, hint)


@contextmanager
def alone(folder: Path, what: str) -> Iterator[None]:
    """Lock a folder for this process. The operating system unlocks it if the process dies."""
    with seam(f"locking {folder}", InputError, _ROOM):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
        except OSError:
            busy = True
        else:
            busy = False
        if busy:
            raise BusyError(f"another run {what}", "wait for it, or stop it; then run again")
        yield
    finally:
        os.close(descriptor)
