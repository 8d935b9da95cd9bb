"""Name the command that installs the libraries of an extra.

The command names the libraries and not our own distribution, because its name may belong to somebody else on an index.
"""

from __future__ import annotations

from importlib import metadata

DISTRIBUTION = "dptext-etl"


def install(extra: str) -> str:
    """Return the command that installs the libraries of an extra.

    Args:
        extra: Name of the extra, such as "spark".
    """
    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        required = []
    parts = (line.partition(";") for line in required)
    wanted = [name.strip() for name, _, marker in parts if f"'{extra}'" in marker.replace('"', "'")]
    if not wanted:
        return f"install the extra {extra!r} in the way in which {DISTRIBUTION} was installed"
    return f"pip install {' '.join(f'{name!r}' for name in wanted)}"
