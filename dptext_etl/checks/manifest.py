"""Read the manifest of a published folder."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self

from dptext_etl.errors import InputError, seam

MANIFEST = "manifest.json"
HINT = "give the folder that `dptext run` published, one of its files, or a table"


@dataclass(frozen=True)
class PublishedManifest:
    """What a published folder says about itself.

    Attributes:
        folder: The folder.
        facts: The manifest, as it was read.
    """

    folder: Path
    facts: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of a folder.

        Raises:
            InputError: There is none, or it is no manifest of ours.
        """
        with seam(f"reading {MANIFEST}", InputError, HINT):
            facts = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            for part in facts["parts"]:
                _ = part["path"], int(part["rows"]), part["sha256"]
            return cls(folder, facts)

    @property
    def path(self) -> Path:
        """The manifest's file."""
        return self.folder / MANIFEST

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The entries of the published files."""
        parts: list[dict[str, Any]] = self.facts["parts"]
        return parts

    def file(self, part: dict[str, Any]) -> Path | None:
        """Return the file of an entry; None if it is missing or lies outside the folder."""
        relative = PurePosixPath(part["path"])
        path = self.folder / relative
        inside = not relative.is_absolute() and ".." not in relative.parts
        return path if inside and path.is_file() else None

    def present(self) -> list[Path]:
        """Return the files that are there."""
        return [path for part in self.parts if (path := self.file(part)) is not None]
