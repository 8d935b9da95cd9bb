"""Frozen folders as archives without times, owners, keys or logs of SQLite; opened as copies, with keys for tests."""

import lzma
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

from dptext_etl.ledger import Ledger
from dptext_etl.ledger.anchor_files import maintain

from . import jobs

HERE = Path(__file__).parent
UNPACKED = {"noise.key", "ledger.key", "ledger.db-wal", "ledger.db-shm", "unchanged.json"}
"""Keys, logs, and the notes by which a run knows that nothing changed: a copy has other times."""


def pack(folder, name):
    """Write a folder as NAME.tar.xz; its ledger, if it has one, must be closed."""
    ledger = Path(folder) / "ledger.db"
    if ledger.exists():
        with closing(sqlite3.connect(ledger)) as connection:
            connection.execute("pragma wal_checkpoint(truncate)")

    def plain(entry):
        if Path(entry.name).name in UNPACKED:
            return None
        entry.mtime = entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with (
        lzma.open(HERE / f"{name}.tar.xz", "wb", preset=9) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(Path(folder).rglob("*")):
            archive.add(path, str(path.relative_to(folder)), recursive=False, filter=plain)


def unpack(name, folder):
    """Make a copy of a frozen folder with keys."""
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="tar")
    ledger = Path(folder) / "ledger.db"
    if ledger.exists():
        jobs.write_keys(folder)
        with Ledger.open(ledger, read_only=True) as opened:  # of another machine: its anchor is stored here first
            assert maintain(opened).ok
    return Path(folder)
