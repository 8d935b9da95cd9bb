"""List the values of "{partition}" for which the source has files."""

from __future__ import annotations

import re
from pathlib import Path

from dptext_etl.policy import PARTITION, Policy
from dptext_etl.runner.layout import is_remote
from dptext_etl.storage import Storage


def partitions_of_source(policy: Policy) -> list[str]:
    """List the values of "{partition}" for which a file or a folder exists, or an object in a store, sorted."""
    template = policy.source.removeprefix("file://")
    if is_remote(template):
        above = re.split(r"[*?\[{]", template, maxsplit=1)[0].rpartition("/")[0]
        pattern = _pattern(template.removeprefix(f"{above}/").rstrip("/")) + "(?:/.*)?"
        found = Storage.open(above, policy.storage_options).names()
    else:
        path = Path(template).absolute()
        pattern = _pattern(path.as_posix())
        files = Path(path.anchor).glob(str(path.relative_to(path.anchor)).replace(PARTITION, "*"))
        found = [file.as_posix() for file in files]
    matches = (re.fullmatch(pattern, name) for name in found)
    return sorted({match["partition"] for match in matches if match})


def _pattern(template: str) -> str:
    """Write a glob template as a regular expression that captures the first partition and repeats it."""
    first, *rest = template.split(PARTITION)
    return _any(first) + "(?P<partition>[^/]+)" + "(?P=partition)".join(map(_any, rest))


def _any(part: str) -> str:
    """Write the glob characters of a path part as a regular expression."""
    pattern = re.escape(part).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    return pattern.replace(r"\[", "[").replace(r"\]", "]")
