"""Keep the files of one folder inside the boundary: in that folder, or in an object store that stands for it.

A process that works with a store has a scratch folder of its own, which nobody else sees. What it writes goes there,
then into the store under the same name. What it reads is fetched once.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import IO, Self
from urllib.parse import quote, unquote

import polars as pl

from dptext_etl.objects import Objects
from dptext_etl.runner import durable, scratch
from dptext_etl.runner.publish.lease import NAME as LEASE
from dptext_etl.runner.publish.lease import Lease, kept_alive

_GROUPED = re.compile(r"(shard|quarantine|kept|draft)-(\d{5,})?")
_TAIL = 1 << 16
"""Bytes at the end of a Parquet file that are fetched first: most descriptions of columns fit."""
_AGAIN = "run the same policy again: it goes on from what is committed"


class Shelf:
    """The files of one folder.

    Args:
        folder: The folder.
    """

    remote = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make the folder and the two above it, readable by their owner alone.

        Raises:
            InputError: Access is denied.
        """
        for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
            durable.private_folder(folder)
        durable.require_writable(self.folder)

    def alone(self, what: str) -> AbstractContextManager[None]:
        """Keep other processes out of the folder (`durable.alone`).

        Args:
            what: What another process would be doing there, for the error.

        Raises:
            PolicyError: Another process is there.
        """
        return durable.alone(self.folder, what)

    def found(self, pattern: str) -> list[Path]:
        """Return the paths of the files whose names match, in order, whether they are on this machine or not."""
        return sorted(self.folder.glob(pattern))

    def here(self, path: Path, *, fresh: bool = False) -> Path:  # noqa: ARG002  (files of a folder are always fresh)
        """Bring a file to this machine, if there is such a file, and return its path.

        Args:
            path: The file.
            fresh: Fetch it again, because others may have written it meanwhile.

        Raises:
            InputError: The store cannot be read.
        """
        return path

    def write(
        self, path: Path, fill: Callable[[IO[bytes]], object], *, action: str = "writing", listed: bool = True
    ) -> None:
        """Write a file so that it is there whole or not at all (`durable.write`).

        Raises:
            InputError: There is no room or no access.
        """
        durable.write(path, fill, action=action, listed=listed)

    def put(self, *paths: Path) -> None:
        """Keep files that were written to this machine; in a folder they are kept already.

        Raises:
            InputError: The store refuses.
        """

    def name_again(self, path: Path, again: Path) -> None:
        """Give a file a second name (`durable.name_again`).

        Raises:
            InputError: There is no room or no access.
        """
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
        """Return the columns and types of a Parquet file.

        Raises:
            OSError: It is gone.
        """
        return pl.Schema(pl.read_parquet_schema(path))

    def ages(self, pattern: str) -> dict[Path, float]:
        """Return how many seconds ago the files whose names match were written."""
        now = time.time()
        return {path: now - path.stat().st_mtime for path in self.found(pattern)}

    def shown(self, path: Path) -> Path | str:
        """Return the name of a file for people."""
        return path


class StoreShelf(Shelf):
    """The files of a folder that an object store stands for.

    Args:
        folder: A folder of this process, for what it writes and fetches.
        url: URL of the folder in the store.
        store: The objects there.
    """

    remote = True

    def __init__(self, folder: Path, url: str, store: Objects) -> None:
        super().__init__(folder)
        durable.private_folder(folder)
        self._url = url
        self.store = store

    def prepare(self) -> None:
        """Look whether the store answers."""
        self.store.tag(LEASE)

    @contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Hold the lease of the folder."""
        with Lease(self.store, what) as lease, kept_alive(lease):
            yield

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


@dataclass(frozen=True)
class Place:
    """Where the files of a folder lie. It travels to executors: it holds no secret, only references to secrets.

    Attributes:
        where: Path or URL.
        options: Options of the store, as a policy writes them.
    """

    where: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, where: str, options: Mapping[str, str]) -> Self:
        """Return the place of a path or URL; a path has no options."""
        return cls(where.rstrip("/"), tuple(options.items())) if "://" in where else cls(where)

    @property
    def remote(self) -> bool:
        """Whether it is an object store."""
        return "://" in self.where

    @property
    def folder(self) -> Path:
        """The folder, or the scratch folder that stands for it in this process."""
        if not self.remote:
            return Path(self.where)
        return scratch.of_process() / sha256(self.where.encode()).hexdigest()[:16]

    @property
    def above(self) -> Place:
        """The folder that this one lies in."""
        if self.remote:
            return Place(self.where.rpartition("/")[0], self.options)
        return Place(str(Path(self.where).parent))

    @property
    def name(self) -> str:
        """The name of the folder itself."""
        return unquote(self.where.rpartition("/")[2]) if self.remote else Path(self.where).name

    def joined(self, name: str) -> Place:
        """Return a folder in this one."""
        return Place(f"{self.where}/{quote(name)}" if self.remote else str(Path(self.where) / name), self.options)

    def absolute(self) -> Self:
        """Return the same place for a process that works in another folder."""
        return self if self.remote else type(self)(str(Path(self.where).absolute()))

    def objects(self) -> Objects:
        """Return the objects of a store.

        Raises:
            PolicyError: A variable is not set.
            InputError: The library for it is not installed, or there is no such store.
        """
        return Objects.of(self.where, dict(self.options))

    def shelf(self) -> Shelf:
        """Return the files, for the whole life of this process."""
        return self._at(self.folder)

    @contextmanager
    def opened(self) -> Iterator[Shelf]:
        """Yield the files for a block; what is fetched for it goes with it."""
        if not self.remote:
            yield Shelf(self.folder)
            return
        with scratch.for_block() as folder:
            yield self._at(folder)

    def _at(self, folder: Path) -> Shelf:
        return StoreShelf(folder, self.where, self.objects()) if self.remote else Shelf(folder)

    def below(self, last: str = "*") -> list[Place]:
        """Return the places two folders below this one whose last folder has this name."""
        if not self.remote:
            return [Place(str(path)) for path in sorted(Path(self.where).glob(f"*/{last}")) if path.is_dir()]
        named = (name.split("/") for name in self.objects().names(""))
        found = {(parts[0], parts[1]) for parts in named if len(parts) > 2 and last in {"*", parts[1]}}
        return [self.joined(release).joined(part) for release, part in sorted(found)]


def _key(path: Path) -> str:
    """Return the name of a file's object: what belongs to a shard is listed by itself."""
    group = _group(path.name)
    return f"{group}/{path.name}" if group else path.name


def _group(name: str) -> str:
    """Return the folder of a store for files whose names begin like this; "" lists all."""
    known = _GROUPED.match(name)
    if known is None:
        return ""
    return f"shards/{known[2]}".rstrip("/") if known[1] == "shard" and known[2] else f"{known[1]}s"
