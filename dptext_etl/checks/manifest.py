"""Read the manifest of a published folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self

from dptext_etl.checks.sink import MANIFEST, LocalSink, shown_name
from dptext_etl.errors import InputError, seam

HINT = "give the folder that `dptext run` published, one of its files, or a table"


@dataclass(frozen=True)
class PublishedManifest:
    """What a published folder says about itself.

    Attributes:
        sink: The folder.
        content: The bytes of the manifest.
        facts: The manifest, as it was read.
    """

    sink: LocalSink
    content: bytes = field(repr=False)
    facts: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of a folder.

        Raises:
            InputError: There is none, or it is no manifest of ours.
        """
        sink = LocalSink.at(folder)
        with seam(f"reading {MANIFEST}", InputError, HINT):
            content = sink.read_manifest()
            facts = json.loads(content)
            for part in facts["parts"]:
                _ = part["path"], int(part["rows"]), part["sha256"]
            _ = str(facts["file_format"])
            return cls(sink, content, facts)

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
        relative = PurePosixPath(part["path"])
        path = self.sink.parts / relative
        inside = not relative.is_absolute() and ".." not in relative.parts
        return path if inside and path.is_file() else None

    def present(self) -> list[Path]:
        """Return the files that are there."""
        return [path for part in self.parts if (path := self.file(part)) is not None]

    def shown(self) -> list[Path]:
        """Return where readers of the folder find the entries; none in the older layout, which shows all versions."""
        if self.sink.old:
            return []
        names = (shown_name(number, self.facts["file_format"]) for number in range(len(self.parts)))
        return [self.sink.path / name for name in names]
