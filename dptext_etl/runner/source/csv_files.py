"""Read CSV files as a policy says that they are written: separator, quotes, and encoding."""

from __future__ import annotations

import glob
import io
from pathlib import Path
from typing import IO, Any

from dptext_etl.errors import InputError
from dptext_etl.policy.terms import CsvSpec
from dptext_etl.runner.layout import is_remote


def options(csv: CsvSpec) -> dict[str, Any]:
    """Return the options with which Polars reads such files."""
    return {"separator": csv.separator, "quote_char": csv.quote or None}


def sources(patterns: list[str], csv: CsvSpec, paths_as: str | None = None) -> list[str] | list[IO[bytes]]:
    """Return what Polars reads: the files, or what they hold in UTF-8 if they are written in another encoding.

    Raises:
        InputError: A file is not in the encoding of the policy, or cannot be converted here.
    """
    if csv.encoding == "utf-8":
        return patterns
    if any(map(is_remote, patterns)) or paths_as is not None:
        msg = f"csv.encoding: files in {csv.encoding} are read from a local folder, without columns in names of folders"
        raise InputError(msg, "convert them to UTF-8 first", {"entry": "csv.encoding"})
    found: list[IO[bytes]] = [_in_utf8(Path(path), csv.encoding) for pattern in patterns for path in glob.glob(pattern)]  # noqa: PTH207
    return found


def _in_utf8(path: Path, encoding: str) -> io.BytesIO:
    try:
        return io.BytesIO(path.read_bytes().decode(encoding).encode())
    except UnicodeError:
        problem = f"csv.encoding: the file {path} is not in {encoding}"
    raise InputError(
        problem, "correct csv.encoding in the policy; `dptext init FILE` shows one that fits", {"entry": "csv.encoding"}
    )
