"""Find the files of a published table.

    published/                the current data files and nothing else, in row order
    published.versions/       versions before it (v1, …), until they expire; the name of the current one links to it
    published.manifest.json   which files are current, and their claims
    published.classifier-….safetensors   the classifier of a synthetic table, named by its hash

A file is named by its place and its hash, so a reader that lists and then opens never mixes two versions. A table of
Delta Lake keeps all of this in its own folder, and its log says what readers see:

    published/_delta_log            the log of the table
    published/v1, v2, …             the files of every version
    published/_dptext/manifest.json

A glob of `published` of the first kind finds one version. A manifest names a file by its path in `published.versions`.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self

from dptext_etl.errors import InputError, seam
from dptext_etl.storage import Objects

MANIFEST = "manifest.json"
VERSIONS = ".versions"
_HASHED = re.compile(r"part-\d+-[0-9a-f]{16}\.")
"""Begins the name of a file that readers see; tables and stores have folders per version instead."""
TABLE = "_dptext"
"""Folder of the manifest inside a table with its own log; clean-ups of tables skip such names."""


@dataclass(frozen=True)
class LocalSink:
    """The places of a published table."""

    path: Path  # where readers look; links of the user's own are followed
    table: bool = False  # whether the folder is a table with its own log

    @classmethod
    def at(cls, path: str | Path, *, table: bool = False) -> Self:
        """Find the places of a table by the path that readers use; one with a log is recognized by its manifest."""
        here = Path(path) if Path(path).name else Path(path).absolute()
        for _ in range(40):  # a chain of links without end stops here
            if not here.is_symlink():
                break
            here = here.parent / here.readlink()
        return cls(here, table or (here / TABLE / MANIFEST).is_file())

    @property
    def versions(self) -> Path:
        return self.path if self.table else self.path.with_name(self.path.name + VERSIONS)

    @property
    def manifest(self) -> Path:
        return self.beside(MANIFEST)

    def beside(self, name: str) -> Path:
        """Return the place of a file next to the manifest."""
        return self.path / TABLE / name if self.table else self.path.with_name(f"{self.path.name}.{name}")

    def file(self, path: str, *, lasting: bool = False) -> Path:
        """Find a file of a manifest where readers look, or by a path that outlives the next publication."""
        inside = self.versions / path
        places = [self.path / inside.name, inside] if _HASHED.match(inside.name) else [inside]
        return next((place for place in places[:: -1 if lasting else 1] if place.is_file()), places[0])


def part_name(number: int, sha256: str, file_format: str) -> str:
    """Name a current data file by its place in row order and its hash."""
    return f"part-{number:05d}-{sha256[:16]}.{file_format}"


def classifier_name(sha256: str) -> str:
    """Name the file of a classifier by its hash."""
    return f"classifier-{sha256[:16]}.safetensors"


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
    """The claims of a published folder about itself."""

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
        """The SHA-256 of the manifest, 64 hex digits, as in the ledger's record of the publication."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def parts(self) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = self.facts["parts"]
        return parts

    def file(self, part: dict[str, Any]) -> Path | None:
        """Return the file of an entry; None if it is missing or lies outside the folder."""
        path = self.sink.file(part["path"]) if is_inside(part["path"]) else None
        return path if path is not None and path.is_file() else None

    @property
    def classifier(self) -> bool:
        """Whether the file of the classifier is as the manifest says; also if it names none."""
        sha256 = self.facts.get("classifier")
        if sha256 is None:
            return True
        path = self.sink.beside(classifier_name(sha256))
        return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256

    def present(self) -> list[Path]:
        return [path for part in self.parts if (path := self.file(part)) is not None]

    def listing(self) -> list[Path]:
        """Return where readers of the folder find the entries; none where they read a log or the manifest."""
        if self.copied or self.sink.table:
            return []
        ends = self.facts["file_format"]
        return [self.sink.path / part_name(at, part["sha256"], ends) for at, part in enumerate(self.parts)]


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
    if (sha256 := manifest.facts.get("classifier")) is not None:
        name = classifier_name(sha256)
        store.download(f"{TABLE}/{name}" if sink.table else name, sink.beside(name))
    return manifest
