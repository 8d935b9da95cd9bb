"""Partitions of a dataset: the names that stand for "{partition}" in the source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from dptext_etl.errors import PolicyError
from dptext_etl.policy import PARTITION, Policy


def partitions_definition(policy: Policy, names: Sequence[str] | None = None) -> dg.StaticPartitionsDefinition | None:
    """Return the partitions of a policy, or None where its source has no "{partition}".

    Args:
        policy: The policy.
        names: The partitions; found by listing the source's files if absent.

    Raises:
        PolicyError: Names for a source that has no partitions, or nothing found to name them by.
    """
    if PARTITION not in policy.source:
        if names is not None:
            raise PolicyError(
                f"partitions were given, and the source has no {PARTITION}", f"write {PARTITION} in source and sink"
            )
        return None
    found = list(names) if names is not None else discovered(policy.source)
    if not found:
        raise PolicyError(
            f"no file matches the source's template, so {PARTITION} has no values", "pass partitions=[…], or add files"
        )
    return dg.StaticPartitionsDefinition(found)


def discovered(template: str) -> list[str]:
    """List the values of "{partition}" for which a file exists, sorted.

    Raises:
        PolicyError: An object-store URL: its listing needs credentials that a code location should not hold.
    """
    template = template.removeprefix("file://")
    if "://" in template:
        raise PolicyError(
            f"the partitions of an object-store source cannot be listed: {template}", "pass partitions=[…]"
        )
    path = Path(template).absolute()
    name = re.compile(_pattern(path.as_posix()))
    files = Path(path.anchor).glob(str(path.relative_to(path.anchor)).replace(PARTITION, "*"))
    matches = (name.fullmatch(found.as_posix()) for found in files)
    return sorted({match["partition"] for match in matches if match})


def _pattern(template: str) -> str:
    """Write a glob template as a regular expression that captures the first partition and repeats it."""
    first, *rest = template.split(PARTITION)
    return _any(first) + "(?P<partition>[^/]+)" + "(?P=partition)".join(map(_any, rest))


def _any(part: str) -> str:
    """Write the glob characters of a path part as a regular expression."""
    said = re.escape(part).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    return said.replace(r"\[", "[").replace(r"\]", "]")
