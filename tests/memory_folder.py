"""Keep what tests write in memory, where there is plenty: ledgers and events flush to disk thousands of times.

With `TMPDIR` set, everything goes there and stays there.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
PREFIX = "dptext-tests-"
FREE, AVAILABLE = 4 << 30, 8 << 30
"""Bytes that the folder in memory, and the machine as a whole, must have left."""


def use_memory():
    """Name a new folder in memory as the temporary one of this process and its children; remove it when they end."""
    if "TMPDIR" in os.environ or not MEMORY.is_dir():
        return
    remove_left_behind(MEMORY)
    if shutil.disk_usage(MEMORY).free < FREE or available() < AVAILABLE:
        return
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=MEMORY))
    folder.chmod(0o755)  # PostgreSQL's folder is in it, and belongs to another user
    lock(folder)
    os.environ["TMPDIR"], tempfile.tempdir = str(folder), None
    atexit.register(remove, folder, os.getpid())


def remove_left_behind(place):
    """Remove the folders of test runs that were killed: their lock is free."""
    for folder in place.glob(f"{PREFIX}*"):
        if (held := lock(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)


def lock(folder):
    """Hold the folder as long as this process lives, and return the descriptor; None where another process does."""
    try:
        held = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held


def remove(folder, process):
    if os.getpid() == process:  # and not a fork of it
        shutil.rmtree(folder, ignore_errors=True)


def available():
    """Bytes of memory that programs can still use."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0
