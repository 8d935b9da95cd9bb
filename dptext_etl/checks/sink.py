"""Find the files of a table that is published in a folder.

    published/                the current data files and nothing else, in row order
    published.versions/       versions before it (v1, …), until they expire; the name of the current one links to it
    published.manifest.json   which files are current, and what is claimed of them

A file is named by its place and its hash, so a reader that lists and then opens never mixes two versions. Version 0.2
kept all files in `published.versions`, and `published` was a link to a folder there: such a sink is read, too. A table
of Delta Lake keeps all of this in its own folder, and its log says what readers see:

    published/_delta_log            the log of the table
    published/v1, v2, …             the files of every version
    published/_dptext/manifest.json

A glob of `published` of the first kind finds one version. A manifest names a file by its path in `published.versions`.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Self

from dptext_etl.errors import InputError, seam
from dptext_etl.storage import Objects

MANIFEST = "manifest.json"
VERSIONS = ".versions"
_HASHED = re.compile(r"part-\d+-[0-9a-f]{16}\.")
"""Begins the name of a file that readers see; tables, stores, and version 0.2 have folders per version instead."""
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
        """Whether the path is a link that a publication of version 0.2 made."""
        return self.path.is_symlink() and self.path.readlink().parts[:1] == (self.versions.name,)

    @property
    def versions(self) -> Path:
        return self.path if self.table else self.path.with_name(self.path.name + VERSIONS)

    @property
    def manifest(self) -> Path:
        if self.table:
            return self.path / TABLE / MANIFEST
        return self.path.with_name(f"{self.path.name}.{MANIFEST}")

    def file(self, path: str, *, lasting: bool = False) -> Path:
        """Find a file of a manifest where readers look, or by a path that outlives the next publication."""
        inside = self.versions / path
        places = [self.path / inside.name, inside] if _HASHED.match(inside.name) else [inside]
        return next((place for place in places[:: -1 if lasting else 1] if place.is_file()), places[0])


def part_name(number: int, sha256: str, file_format: str) -> str:
    """Name a current data file by its place in row order and its hash."""
    return f"part-{number:05d}-{sha256[:16]}.{file_format}"


def place_of(sink: str) -> str:
    """Return where a sink is, the same from every folder: a URL, or an absolute path."""
    if "://" in sink and not sink.startswith("file://"):
        return sink.rstrip("/")
    path = LocalSink.at(sink.removeprefix("file://").rstrip("/")).path
    return str(path.parent.resolve() / path.name)


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
            content = sink.manifest.read_bytes()
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
        path = self.sink.file(part["path"]) if is_inside(part["path"]) else None
        return path if path is not None and path.is_file() else None

    def present(self) -> list[Path]:
        return [path for part in self.parts if (path := self.file(part)) is not None]

    def shown(self) -> list[Path]:
        """Return where readers of the folder find the entries; none where they read a log or the manifest."""
        if self.copied or self.sink.table:
            return []
        linked, ends = self.sink.linked, self.facts["file_format"]  # version 0.2 named files by their places
        return [
            self.sink.path / (f"part-{number:05d}.{ends}" if linked else part_name(number, part["sha256"], ends))
            for number, part in enumerate(self.parts)
        ]


def fetched(store: Objects, folder: Path) -> PublishedManifest:
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
