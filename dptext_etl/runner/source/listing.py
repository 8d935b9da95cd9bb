"""List the local files that a folder or a pattern names, and refuse, by path, whatever cannot be listed or opened.

A file that is excluded in silence is lost rows. Names that begin with "." or "_" are excluded, unless a pattern has
this character there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from dptext_etl.errors import InputError

_HIDDEN = (".", "_")
_HINT = "repair it, remove it, or name the other files by a pattern such as FOLDER/2026-*.parquet; no budget used"


def matching(pattern: str) -> list[str]:
    """Return the files that a pattern names, in the order of their paths; `**` spans folders."""
    return sorted({str(path) for path in places(pattern) if not path.is_dir()})


def places(pattern: str) -> Iterator[Path]:
    """Yield the files and folders that a pattern names; a part that is a folder as it is written is that folder.

    Raises:
        InputError: A folder cannot be listed, a file cannot be opened, or a link leads to nothing or in a circle.
    """
    path = Path(pattern)
    return _below(Path(path.anchor), path.parts[bool(path.anchor) :], (), _opened)


def named(source: str) -> list[Path]:
    """List the files and folders that exist under a path or pattern; they may be unreadable."""
    path = Path(source)
    found = [path] if path.exists() else _below(Path(path.anchor), path.parts[bool(path.anchor) :], (), lambda at: at)
    return [place for place in found if place.exists()]


def is_name(folder: Path, part: str) -> bool:
    """Return whether a part of a pattern is the name of a folder: names may hold `?` and `[`."""
    return not has_magic(part) or (part != "**" and (folder / part).is_dir())


def _below(
    folder: Path, parts: Sequence[str], above: tuple[tuple[int, int], ...], check: Callable[[Path], Path]
) -> Iterator[Path]:
    part, *rest = parts
    if is_name(folder, part):
        if rest:
            yield from _below(folder / part, rest, above, check)
        elif os.path.lexists(folder / part):
            yield check(folder / part)
        return
    if not folder.is_dir():
        return
    if part == "**" and rest:
        yield from _below(folder, rest, above, check)
    above = (*above, _identity(folder, above))
    for name in _names(folder):
        if name.startswith(_HIDDEN) and not part.startswith(name[0]):
            continue
        if part == "**" or fnmatchcase(name, part):
            child = check(folder / name)
            if (rest or part == "**") and child.is_dir():
                yield from _below(child, parts if part == "**" else rest, above, check)
            if not rest:
                yield child


def _names(folder: Path) -> list[str]:
    try:
        return [child.name for child in folder.iterdir()]
    except OSError as error:
        problem = f"the folder {folder} cannot be listed: {error.strerror}"
    raise InputError(problem, _HINT)


def _identity(folder: Path, above: Sequence[tuple[int, int]]) -> tuple[int, int]:
    stat = folder.stat()
    identity = stat.st_dev, stat.st_ino
    if identity in above:
        raise InputError(f"a link leads from {folder} back to a folder above it", _HINT)
    return identity


def _opened(path: Path) -> Path:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        problem = f"cannot be opened: {error.strerror}"
    else:
        readable = os.access(path, os.R_OK)
        if readable and (S_ISREG(mode) or S_ISDIR(mode)):
            return path
        problem = "is neither a file nor a folder" if readable else "cannot be read: you have no permission"
    raise InputError(f"{'the link ' if path.is_symlink() else ''}{path} {problem}", _HINT)
