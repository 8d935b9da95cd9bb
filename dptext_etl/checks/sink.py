"""Find the files of a table that is published in a folder.

    published                 the current data files alone, in row order: a link to one folder in the next one
    published.versions/       the files of every version (v1, v2, …), and the folders that the link points at
    published.manifest.json   which files are current, and what is claimed of them

Anyone who globs `published` meets one version. An older layout held manifest and versions inside the folder itself. It
is read as it is, and the next publication moves it (`runner.publish.showing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

MANIFEST = "manifest.json"
VERSIONS = ".versions"
_LINKS = 40
"""How many links may lead to a sink; a chain without end stops here."""


@dataclass(frozen=True)
class LocalSink:
    """The places of a published table.

    Attributes:
        path: Where readers look; links of the user's own are followed.
    """

    path: Path

    @classmethod
    def at(cls, path: str | Path) -> Self:
        """Find the places of a table by the path that readers use."""
        here = Path(path) if Path(path).name else Path(path).absolute()
        for _ in range(_LINKS):
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
        return self.copied and not self.manifest.is_file()

    @property
    def copied(self) -> bool:
        """Whether the path is a folder of its own: of the older layout, or because a copy followed the link."""
        return self.path.is_dir() and not self.path.is_symlink()

    @property
    def versions(self) -> Path:
        """The folder that holds the files of every version."""
        return self.path.with_name(self.path.name + VERSIONS)

    @property
    def manifest(self) -> Path:
        """The file that says which files are current."""
        return self.path.with_name(f"{self.path.name}.{MANIFEST}")

    @property
    def parts(self) -> Path:
        """The folder from which the paths of a manifest start."""
        return self.path if self.old else self.versions

    def read_manifest(self) -> bytes:
        """Read the manifest, wherever its layout puts it."""
        inside = (self.versions / MANIFEST, self.path / MANIFEST)  # while it is moved, and before
        for place in (self.manifest, *inside, self.manifest):
            try:
                return place.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue
        raise FileNotFoundError(MANIFEST)


def shown_name(number: int, file_format: str) -> str:
    """Name a current data file by its place in row order."""
    return f"part-{number:05d}.{file_format}"
