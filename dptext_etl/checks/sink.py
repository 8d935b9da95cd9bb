"""Find the files of a table that is published in a folder.

    published                 the current data files alone, in row order: a link to one folder in the next one
    published.versions/       the files of every version (v1, v2, …), and the folders that the link points at
    published.manifest.json   which files are current, and what is claimed of them

A table of Delta Lake keeps all of this in its own folder, and its log says what readers see:

    published/_delta_log            the log of the table
    published/v1, v2, …             the files of every version
    published/_dptext/manifest.json

Anyone who globs `published` of the first kind meets one version. An older layout held manifest and versions inside the
folder itself. It is read as it is, and the next publication moves it (`runner.publish.versions`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Self

from dptext_etl.errors import InputError, seam
from dptext_etl.storage import Storage

MANIFEST = "manifest.json"
VERSIONS = ".versions"
TABLE = "_dptext"
"""Folder of the manifest inside a table with a log of its own; clean-ups of tables leave such names alone."""


@dataclass(frozen=True)
class LocalSink:
    """The places of a published table."""

    path: Path  # where readers look; links of the user's own are followed
    table: bool = False  # whether the folder is a table with a log of its own

    @classmethod
    def at(cls, path: str | Path, *, table: bool = False) -> Self:
        """Find the places of a table by the path that readers use; one with a log is recognized by its manifest."""
        found = cls._followed(path)
        return replace(found, table=table or (found.path / TABLE / MANIFEST).is_file())

    @classmethod
    def _followed(cls, path: str | Path) -> Self:
        here = Path(path) if Path(path).name else Path(path).absolute()
        for _ in range(40):  # a chain of links without end stops here
            if not here.is_symlink() or cls(here).linked:
                break
            here = here.parent / here.readlink()
        return cls(here)

    @property
    def linked(self) -> bool:
        """Whether the path is a link that a publication made."""
        return self.path.is_symlink() and self.path.readlink().parts[:1] == (self.versions.name,)

    @property
    def old(self) -> bool:
        """Whether the path is a folder of the older layout, or of someone else."""
        return not self.table and self.copied and not self.manifest.is_file()

    @property
    def copied(self) -> bool:
        """Whether the path is a folder of its own: of the older layout, or because a copy followed the link."""
        return self.path.is_dir() and not self.path.is_symlink()

    @property
    def versions(self) -> Path:
        return self.path if self.table else self.path.with_name(self.path.name + VERSIONS)

    @property
    def manifest(self) -> Path:
        if self.table:
            return self.path / TABLE / MANIFEST
        return self.path.with_name(f"{self.path.name}.{MANIFEST}")

    @property
    def parts(self) -> Path:
        """The folder from which the paths of a manifest start."""
        return self.path if self.old else self.versions

    def read_manifest(self) -> bytes:
        """Read the manifest, wherever its layout puts it."""
        inside: tuple[Path, ...] = (self.versions / MANIFEST, self.path / MANIFEST)  # while it is moved, and before
        for place in (self.manifest, *inside, self.manifest):
            try:
                return place.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue
        raise FileNotFoundError(MANIFEST)


def shown_name(number: int, file_format: str) -> str:
    """Name a current data file by its place in row order."""
    return f"part-{number:05d}.{file_format}"


HINT = "give the folder that `dptext run` published, one of its files, or a table"


def is_inside(path: str) -> bool:
    """Return whether a path of a manifest stays below its folder."""
    relative = PurePosixPath(path)
    return not relative.is_absolute() and ".." not in relative.parts


@dataclass(frozen=True)
class PublishedManifest:
    """What a published folder says about itself."""

    sink: LocalSink
    content: bytes = field(repr=False)  # the bytes of the manifest
    facts: dict[str, Any] = field(repr=False)  # the manifest, as it was read
    copied: bool = False  # whether this is a copy of an object store, which has no folder of current files
    listed: frozenset[str] | None = None  # paths of the files that the current version of a table with a log lists

    @classmethod
    def read(cls, folder: Path, *, copied: bool = False) -> Self:
        """Read the manifest of a folder, or of a copy of an object store (`fetched`)."""
        sink = LocalSink.at(folder)
        with seam(f"reading {MANIFEST}", InputError, HINT):
            content = sink.read_manifest()
            facts = json.loads(content)
            for part in facts["parts"]:
                _ = part["path"], int(part["rows"]), part["sha256"]
            _ = str(facts["file_format"])
            return cls(sink, content, facts, copied)

    @property
    def digest(self) -> str:
        """The SHA-256 of the manifest, 64 hex digits: what the ledger recorded of the publication."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def parts(self) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = self.facts["parts"]
        return parts

    def file(self, part: dict[str, Any]) -> Path | None:
        """Return the file of an entry; None if it is missing or lies outside the folder."""
        path = self.sink.parts / part["path"]
        return path if is_inside(part["path"]) and path.is_file() else None

    def present(self) -> list[Path]:
        return [path for part in self.parts if (path := self.file(part)) is not None]

    def shown(self) -> list[Path]:
        """Return where readers of the folder find the entries; none in the older layout, which shows all versions."""
        if self.sink.old or self.copied or self.sink.table:
            return []
        names = (shown_name(number, self.facts["file_format"]) for number in range(len(self.parts)))
        return [self.sink.path / name for name in names]


def fetched(store: Storage, folder: Path) -> PublishedManifest:
    """Copy a table that is published in an object store, what no one listed in its versions included, and read it."""
    sink = LocalSink.at(folder / "sink")
    if not store.download(MANIFEST, sink.manifest):
        sink = LocalSink.at(folder / "sink", table=True)
        if not store.download(f"{TABLE}/{MANIFEST}", sink.manifest):
            raise InputError("nothing is published there", HINT)
    manifest = PublishedManifest.read(sink.path, copied=True)
    listed = {part["path"] for part in manifest.parts if is_inside(part["path"])}
    present = {name for top in {path.partition("/")[0] for path in listed} for name in store.names(top)}
    for path in sorted(listed | {name for name in present if is_inside(name)}):
        store.download(path, sink.versions / path)
    return manifest
