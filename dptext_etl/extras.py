"""Name the command that installs the libraries of an extra.

The command names the libraries and not our own distribution, because its name may belong to someone else on an index.
"""

from __future__ import annotations

from importlib import metadata

DISTRIBUTION = "dptext-etl"


def install(extra: str) -> str:
    """Return the command that installs the libraries of an extra."""
    parts = [line.partition(";") for line in _required(DISTRIBUTION)]
    wanted = [name.strip() for name, _, marker in parts if f"'{extra}'" in marker.replace('"', "'")]
    if wanted and wanted[0].startswith(DISTRIBUTION):  # a distribution of this repository: name what it needs
        wanted = [line for line in _required(f"{DISTRIBUTION}-{extra}") if not line.startswith(DISTRIBUTION)]
    if not wanted:
        return f"install the extra {extra!r} in the way in which {DISTRIBUTION} was installed"
    return f"pip install {' '.join(f'{name!r}' for name in wanted)}"


def _required(distribution: str) -> list[str]:
    try:
        return metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return []
