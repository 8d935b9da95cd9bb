"""Read the manifest of a published folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self

from dptext_etl.checks.sink import MANIFEST, LocalSink, shown_name
from dptext_etl.errors import InputError, seam
from dptext_etl.objects import Objects

HINT = "give the folder that `dptext run` published, one of its files, or a table"


def is_inside(path: str) -> bool:
    """Return whether a path of a manifest stays below its folder."""
    relative = PurePosixPath(path)
    return not relative.is_absolute() and ".." not in relative.parts


@dataclass(frozen=True)
class PublishedManifest:
    """What a published folder says about itself.

    Attributes:
        sink: The folder.
        content: The bytes of the manifest.
        facts: The manifest, as it was read.
        copied: Whether the folder is a copy of an object store, which shows no one a folder of current files.
    """

    sink: LocalSink
    content: bytes = field(repr=False)
    facts: dict[str, Any] = field(repr=False)
    copied: bool = False

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
        """The entries of the published files."""
        parts: list[dict[str, Any]] = self.facts["parts"]
        return parts

    def file(self, part: dict[str, Any]) -> Path | None:
        """Return the file of an entry; None if it is missing or lies outside the folder."""
        path = self.sink.parts / part["path"]
        return path if is_inside(part["path"]) and path.is_file() else None

    def present(self) -> list[Path]:
        """Return the files that are there."""
        return [path for part in self.parts if (path := self.file(part)) is not None]

    def shown(self) -> list[Path]:
        """Return where readers of the folder find the entries; none in the older layout, which shows all versions."""
        if self.sink.old or self.copied:
            return []
        names = (shown_name(number, self.facts["file_format"]) for number in range(len(self.parts)))
        return [self.sink.path / name for name in names]


def fetched(store: Objects, folder: Path) -> PublishedManifest:
    """Copy a table that is published in an object store, what no one listed in its versions included, and read it."""
    sink = LocalSink.at(folder / "sink")
    if not store.download(MANIFEST, sink.manifest):
        raise InputError("nothing is published there", HINT)
    found = PublishedManifest.read(sink.path, copied=True)
    listed = {part["path"] for part in found.parts if is_inside(part["path"])}
    beside = {name for top in {path.partition("/")[0] for path in listed} for name in store.names(top)}
    for path in sorted(listed | {name for name in beside if is_inside(name)}):
        store.download(path, sink.versions / path)
    return found
