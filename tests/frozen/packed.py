"""Frozen folders as archives without times, owners, keys or logs of SQLite; opened as copies, with keys for tests."""

import lzma
import sqlite3
import tarfile
from pathlib import Path

from dptext_etl import Ledger

from . import jobs

HERE = Path(__file__).parent
LEFT_OUT = {"noise.key", "ledger.key", "ledger.db-wal", "ledger.db-shm"}


def pack(folder, name):
    """Write a folder as NAME.tar.xz; its ledger, if it has one, must be closed."""
    ledger = Path(folder) / "ledger.db"
    if ledger.exists():
        connection = sqlite3.connect(ledger)
        connection.execute("pragma wal_checkpoint(truncate)")
        connection.close()

    def plain(entry):
        if Path(entry.name).name in LEFT_OUT:
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
    """Make a copy of a frozen folder; a ledger gets its keys and, if they changed since, the tables of this version."""
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="tar")
    if (ledger := Path(folder) / "ledger.db").exists():
        jobs.write_keys(folder)
        Ledger.migrate(ledger)
    return Path(folder)
