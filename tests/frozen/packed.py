"""Frozen folders as archives without times, owners, keys or logs of SQLite; opened as copies, with keys for tests."""

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

from dptext_etl.checks.published import MANIFEST, VERSIONS
from dptext_etl.ledger.storage.store import INDEXED

from . import jobs

HERE = Path(__file__).parent


def unpack(name, folder):
    """Make a copy of a frozen folder with keys, in the layout of version 0.2: README.md names what changed since."""
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="tar")
    if (ledger := Path(folder) / "ledger.db").exists():
        jobs.write_keys(folder)
        with closing(sqlite3.connect(ledger)) as connection:
            connection.execute(f"pragma user_version={INDEXED}")
    for kept in Path(folder).glob("**/*.staging/ledger.json"):
        kept.write_text(json.dumps({"groups": [], "losses": 0, **json.loads(kept.read_text())}))
    for sink in {version.parent for version in Path(folder).glob("**/v[0-9]")}:
        move(sink)
    return Path(folder)


def move(sink):
    """Put manifest and versions next to a sink, and let it show the current version."""
    versions = sink.rename(sink.with_name(sink.name + VERSIONS))
    if not (versions / MANIFEST).is_file():
        return
    manifest = (versions / MANIFEST).rename(sink.with_name(f"{sink.name}.{MANIFEST}"))
    said = json.loads(manifest.read_text())
    shown = versions / f"v{said['version']}.files"
    shown.mkdir()
    for number, part in enumerate(said["parts"]):
        (shown / f"part-{number:05d}.{said['file_format']}").hardlink_to(versions / part["path"])
    sink.symlink_to(Path(versions.name) / shown.name)
