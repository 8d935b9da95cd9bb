"""Write, link, and lock local files so that they survive a crash, and make folders that only their owner can read.

A file is written as a draft next to it, flushed to disk, and renamed: it is there completely or not at all.
"""

from __future__ import annotations

import atexit
import glob
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import cache
from pathlib import Path
from typing import IO

from dptext_etl.errors import BusyError, InputError, seam

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
PUBLIC_FILE = 0o644
INSIDE = ".dptext"  # name of the folder next to a policy file that holds staging by default
PREFIX = "dptext-staged-"  # begins the names of temporary folders
DRAFT = f".{PREFIX}"  # begins the names of those that are next to the place of an export, a backup, or an artifact

_SPACE_HINT = (
    "check free space and write access. The charge remains: run the same policy again and it continues from here"
)

Content = bytes | Callable[[IO[bytes]], object]  # the bytes of a file, or a function that writes them


def literal(path: Path) -> str:
    """Return a path for the readers of Polars, which read a name with `*`, `?`, or `[` as a pattern."""
    return glob.escape(str(path))


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def home() -> Path | None:
    """Return the home folder of this user, or None: a container may run as a user without one."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def flush(path: Path) -> None:
    """Make a file's bytes, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def draft_of(path: Path) -> Path:
    """Return the name of a draft next to a file, which no one can foresee."""
    return path.with_name(f".{path.name}-{secrets.token_hex(8)}.draft")


def create(path: str | Path, mode: int = PRIVATE_FILE) -> int:
    """Make a file that is not there, with this mode whatever the umask is, and return its descriptor."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY, mode)
    os.fchmod(descriptor, mode)
    return descriptor


def private(path: str, flags: int) -> int:
    """Open a file for `open(…, opener=private)`: one that is new is readable only by its owner."""
    return os.open(path, flags | os.O_NOFOLLOW, PRIVATE_FILE)


def make_folders(path: Path) -> None:
    """Make a folder and its missing parents, readable only by their owner, whatever the umask is."""
    for folder in (*reversed(path.parents), path):
        if not folder.exists():
            folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def write(
    path: Path,
    content: Content,
    *,
    mode: int = PRIVATE_FILE,
    action: str = "writing",
    durable: bool = True,
    flush_folder: bool = True,
) -> None:
    """Write a file durably, completely or not at all; without `flush_folder`, a later flush makes its name durable."""
    draft = draft_of(path)
    with seam(action, InputError, _SPACE_HINT):
        try:
            descriptor = create(draft, mode)
            with os.fdopen(descriptor, "wb") as file:
                if isinstance(content, bytes):
                    file.write(content)
                else:
                    content(file)
                file.flush()
                if durable:
                    os.fsync(descriptor)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        if durable and flush_folder:
            flush(path.parent)


def link(path: Path, new: Path, *, mode: int = PRIVATE_FILE, flush_folder: bool = True) -> None:
    """Give a file a second name, durably. Nothing happens if the file is gone or the name exists."""
    if new.exists():
        return
    action = "keeping the staged files"
    with seam(action, InputError, _SPACE_HINT):
        if not path.exists():
            return
        try:
            new.hardlink_to(path)
        except FileExistsError:
            return
        except OSError:  # a file system without links
            write(new, path.read_bytes(), mode=mode, action=action)
    if flush_folder:
        flush(new.parent)


def remove(path: Path) -> None:
    """Remove a link, a file, or a folder with all that is in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def exchange(path: Path, new: Path) -> None:
    """Let two paths on one file system change places, durably; where it cannot do so in one step, in three.

    Between the steps `path` is missing, and its old content is next to `new` in a folder for drafts. The caller knows
    from elsewhere the content that belongs at `path`, and calls `remove` on the draft of a process that died.
    """
    from dptext_etl import _kernel  # `dptext --help` needs no kernel

    if not os.path.lexists(path):
        new.rename(path)
    elif not _kernel.exchange(str(path), str(new)):
        aside = new.with_name(f".{new.name.removeprefix('.')}.incomplete")
        remove(aside)
        path.rename(aside)
        new.rename(path)
        aside.rename(new)
    for folder in {path.parent, new.parent}:
        flush(folder)


def make_private(path: Path) -> None:
    """Make a folder, readable only by its owner, who is this process's user.

    The folder above it is private, too, if it is new. Others are open as the umask says, because they may belong to a
    sink. `INSIDE` and all in it are private, and Git ignores them.
    """
    require_own(path)
    with seam(f"making the staging folder {path}", InputError, "the folder must be writable by you"):
        path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        for folder in [folder for folder in reversed(path.parents) if INSIDE in folder.parts] + [path]:
            folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            folder.chmod(PRIVATE_FOLDER)
            if folder.name == INSIDE:
                (folder / ".gitignore").write_bytes(b"*\n")


def require_own(path: Path) -> None:
    """Refuse a staging folder that cannot be made, or that belongs to someone else. Nothing is made."""
    _require_possible(
        path, f"the staging folder {path} cannot be made", "the folder must be writable by you, or name another staging"
    )
    user = os.geteuid()
    if path.exists() and (owner := path.stat().st_uid) != user:
        msg = f"the staging folder {path} belongs to user {owner}, not to user {user}: its owner could read raw texts"
        raise InputError(msg, "remove it, or name your own folder as staging; no budget used")


_OF_THE_KERNEL = ("/proc", "/sys")  # folders in which no one can make files, although their modes let root write


def require_writable(folder: Path, *, making: bool = True) -> None:
    """Check, before anything is spent, that a folder can be written to. Make the folder if need be."""
    hint = "the folder must be writable; no budget used"
    _require_possible(folder, f"writing to {folder} is not possible", hint)
    if not making:
        return
    with seam(f"writing to {folder}", InputError, hint):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # it has no name that a killed process would leave


def _require_possible(folder: Path, problem: str, hint: str) -> None:
    with seam(f"looking at {folder}", InputError, hint):
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        fits = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
        fits &= not any(there.resolve().is_relative_to(kernel) for kernel in _OF_THE_KERNEL)
    if not fits:
        raise InputError(problem, hint)


@contextmanager
def lock(folder: Path, what: str) -> Iterator[None]:
    """Lock a folder for this process. The operating system unlocks it if the process dies."""
    with seam(f"locking {folder}", InputError, _SPACE_HINT):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
        except OSError:
            raise BusyError(f"another run {what}", "wait for it, or stop it; then run again") from None
        yield
    finally:
        os.close(descriptor)


def process_folder() -> Path:
    """Return a temporary folder of this process, which only its owner can read; it goes when the process ends."""
    return folder_of(os.getpid())


@cache
def folder_of(process: int) -> Path:
    block = temporary_folder()
    # not in a process that was forked from this one
    atexit.register(lambda: os.getpid() == process and block.__exit__(None, None, None))
    return block.__enter__()


@contextmanager
def temporary_folder(within: Path | None = None) -> Iterator[Path]:
    """Yield a folder that goes with the block, for staged rows, or for a draft next to its place.

    The next such folder there removes the folders of processes that were killed.
    """
    named = nullcontext() if within else seam("making a folder for staged rows", InputError, "name one: TMPDIR")
    with named:
        place, prefix = (within, DRAFT) if within else (Path(tempfile.gettempdir()), PREFIX)
        for left in left_behind(place, prefix):
            shutil.rmtree(left, ignore_errors=True)
        folder, lock = _locked(place, prefix)
    try:
        inside = folder / "files"  # a lock of that one does not wait for the lock of this process
        inside.mkdir(mode=PRIVATE_FOLDER)
        yield inside
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def left_behind(place: Path, prefix: str = DRAFT) -> Iterator[Path]:
    """Yield the temporary folders there whose processes were killed, and hold the lock of each meanwhile."""
    for folder in sorted(place.glob(f"{prefix}*")):
        with suppress(OSError):
            if folder.lstat().st_uid != os.geteuid():
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                flock(lock, LOCK_EX | LOCK_NB)
                yield folder
            finally:
                os.close(lock)


def _locked(place: Path, prefix: str) -> tuple[Path, int]:
    """Make a folder and lock it; another process may remove a folder that is not locked yet."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        with suppress(BlockingIOError):
            flock(lock, LOCK_EX | LOCK_NB)
            if folder.exists():
                return folder, lock
        os.close(lock)
