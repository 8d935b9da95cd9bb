"""Keep the files of one folder inside the boundary: in that folder, or in an object store that stands for it.

A process that works with a store has a scratch folder of its own, which no one else sees. What it writes goes there,
then into the store under the same name. What it reads is fetched once.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

import polars as pl

from dptext_etl.objects import Objects
from dptext_etl.runner import durable
from dptext_etl.runner.publish.lease import NAME as LEASE
from dptext_etl.runner.publish.lease import Lease, kept_alive

_GROUPED = re.compile(r"(shard|quarantine|changed|kept|draft)-(\d{5,})?")
_TAIL = 1 << 16
"""Bytes at the end of a Parquet file that are fetched first: most descriptions of columns fit."""


class Shelf:
    """The files of one folder."""

    remote = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make the folder and the two above it, readable by their owner alone."""
        for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
            durable.private_folder(folder)
        durable.require_writable(self.folder)

    def alone(self, what: str) -> AbstractContextManager[None]:
        """Keep other processes out of the folder (`durable.alone`)."""
        return durable.alone(self.folder, what)

    def require_idle(self, what: str) -> None:
        """Refuse a folder in which another process works; nothing is made."""
        if self.folder.is_dir():
            with durable.alone(self.folder, what):
                return

    def hold(self) -> None:
        """Make sure that no other process has come in since (`alone`), before what others may need is removed."""

    def found(self, pattern: str) -> list[Path]:
        """Return the paths of the files whose names match, in order, whether they are on this machine or not."""
        return sorted(self.folder.glob(pattern))

    def here(self, path: Path, *, fresh: bool = False) -> Path:  # noqa: ARG002  (files of a folder are always fresh)
        """Bring a file to this machine, if there is such a file, and return its path."""
        return path

    def write(
        self, path: Path, fill: Callable[[IO[bytes]], object], *, action: str = "writing", listed: bool = True
    ) -> None:
        """Write a file so that it is there whole or not at all (`durable.write`)."""
        durable.write(path, fill, action=action, listed=listed)

    def put(self, *paths: Path) -> None:
        """Keep files that were written to this machine; in a folder they are kept already."""

    def name_again(self, path: Path, again: Path) -> None:
        """Give a file a second name (`durable.name_again`)."""
        durable.name_again(path, again)

    def remove(self, *paths: Path) -> None:
        """Remove files that are there, in this order."""
        for path in paths:
            path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.folder)

    def append(self, path: Path, line: str) -> None:
        """Add a line to a file that one process writes at a time."""
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def schema(self, path: Path) -> pl.Schema:
        """Return the columns and types of a Parquet file."""
        return pl.Schema(pl.read_parquet_schema(path))

    def ages(self, pattern: str) -> dict[Path, float]:
        """Return how many seconds ago the files whose names match were written."""
        now = time.time()
        return {path: now - path.stat().st_mtime for path in self.found(pattern)}

    def shown(self, path: Path) -> Path | str:
        """Return the name of a file for people."""
        return path


class StoreShelf(Shelf):
    """The files of a folder that an object store stands for."""

    remote = True

    def __init__(self, folder: Path, url: str, store: Objects) -> None:
        super().__init__(folder)
        durable.private_folder(folder)
        self._url = url
        self.store = store
        self._lease: Lease | None = None

    def prepare(self) -> None:
        """Look whether the store answers."""
        self.store.tag(LEASE)

    @contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Hold the lease of the folder."""
        with Lease(self.store, what) as lease, kept_alive(lease):
            self._lease = lease
            try:
                yield
            finally:
                self._lease = None

    def require_idle(self, what: str) -> None:
        """Look whether another process holds the lease."""
        Lease(self.store, what).require_free()

    def hold(self) -> None:
        """Renew the lease."""
        if self._lease is not None:
            self._lease.renew()

    def found(self, pattern: str) -> list[Path]:
        """List the store."""
        listed = (name.rpartition("/")[2] for name in self.store.names(_group(pattern)))
        return sorted(self.folder / name for name in listed if fnmatchcase(name, pattern))

    def here(self, path: Path, *, fresh: bool = False) -> Path:
        """Fetch a file."""
        if fresh or not path.is_file():
            draft = path.with_name(f".{path.name}.draft")
            try:
                if self.store.download(_key(path), draft):
                    draft.replace(path)
                else:
                    path.unlink(missing_ok=True)
            finally:
                draft.unlink(missing_ok=True)
        return path

    def write(
        self, path: Path, fill: Callable[[IO[bytes]], object], *, action: str = "writing", listed: bool = True
    ) -> None:
        """Write a file here, then into the store."""
        durable.write(path, fill, action=action, listed=listed)
        self.put(path)

    def put(self, *paths: Path) -> None:
        """Write files of this machine into the store."""
        for path in paths:
            self.store.put_file(_key(path), path)

    def name_again(self, path: Path, again: Path) -> None:
        """Copy an object inside the store."""
        if self.store.tag(_key(again)) is None:
            self.store.copy(_key(path), _key(again))

    def remove(self, *paths: Path) -> None:
        """Remove files from the store and from this machine."""
        self.store.delete(*map(_key, paths))
        super().remove(*paths)

    def clear(self) -> None:
        """Remove all objects but the lease, which goes with its holder."""
        self.store.delete(*(name for name in self.store.names("") if name != LEASE))
        for path in self.folder.iterdir():
            path.unlink()

    def append(self, path: Path, line: str) -> None:
        """Add a line to an object."""
        super().append(self.here(path, fresh=True), line)
        self.put(path)

    def schema(self, path: Path) -> pl.Schema:
        """Read the end of an object."""
        tail = self.store.tail(_key(path), _TAIL)
        if tail is not None and len(tail) >= 8:
            described = int.from_bytes(tail[-8:-4], "little") + 8
            if described > len(tail):
                tail = self.store.tail(_key(path), described)
        if not tail:
            raise FileNotFoundError(path.name)
        return pl.Schema(pl.read_parquet_schema(b"PAR1" + tail))

    def ages(self, pattern: str) -> dict[Path, float]:
        """List the store with its times."""
        wanted, now = set(self.found(pattern)), time.time()
        listed = {self.folder / item.name.rpartition("/")[2]: item.written for item in self.store.listed("")}
        return {path: now - listed[path].timestamp() for path in sorted(wanted & listed.keys())}

    def shown(self, path: Path) -> str:
        """Return the URL of a file."""
        return f"{self._url}/{_key(path)}"


def _key(path: Path) -> str:
    """Return the name of a file's object: what belongs to a shard is listed by itself."""
    group = _group(path.name)
    return f"{group}/{path.name}" if group else path.name


def _group(name: str) -> str:
    """Return the folder of a store for files whose names begin like this; "" lists all."""
    known = _GROUPED.match(name)
    if known is None:
        return ""
    return f"{known[1]}/{known[2]}" if known[1] == "shard" and known[2] else known[1]
