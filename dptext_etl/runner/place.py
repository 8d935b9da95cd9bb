"""Name where the files of a folder inside the boundary lie: in a folder, or in an object store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self
from urllib.parse import quote, unquote

from dptext_etl.objects import Objects
from dptext_etl.runner import temporary_folders
from dptext_etl.runner.staging_files import Shelf, StoreShelf


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
        return temporary_folders.of_process() / sha256(self.where.encode()).hexdigest()[:16]

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
        """Return the objects of a store."""
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
        with temporary_folders.for_block() as folder:
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
