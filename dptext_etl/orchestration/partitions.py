"""Define the partitions of a dataset, whose names replace "{partition}" in the source."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from dptext_etl.errors import PolicyError
from dptext_etl.policy import PARTITION, Policy
from dptext_etl.runner.layout import check_partition

Partitions = Sequence[str] | dg.PartitionsDefinition
"""Names, or a definition of Dagster: static, by time, or dynamic."""

_SOME_TIME = datetime(2001, 12, 31, 23, 59, tzinfo=UTC)


def partitions_definition(policy: Policy, given: Partitions | None = None) -> dg.PartitionsDefinition | None:
    """Return the partitions of a policy, or None if its source has no "{partition}"."""
    if PARTITION not in policy.source:
        if given is not None:
            raise PolicyError(
                f"partitions were given, and the source has no {PARTITION}", f"write {PARTITION} in source and sink"
            )
        return None
    if isinstance(given, dg.PartitionsDefinition):
        _check(policy, given)
        return given
    found = list(given) if given is not None else discovered(policy.source)
    if not found:
        raise PolicyError(
            f"no file matches the source's template, so {PARTITION} has no values", "pass partitions=[…], or add files"
        )
    static = dg.StaticPartitionsDefinition(found)
    _check(policy, static)
    return static


def discovered(template: str) -> list[str]:
    """List the values of "{partition}" for which a file exists, sorted."""
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


def in_run(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> list[str | None]:
    """Return the partitions of a run: one, or those of a range; an empty list if it names none."""
    if context.has_partition_key:
        return [context.partition_key]
    return list(context.partition_keys) if context.has_partition_key_range else []


def to_judge(
    context: dg.AssetCheckExecutionContext,
    partitions: dg.PartitionsDefinition | None,
    there: Callable[[str | None], bool],
) -> list[str | None]:
    """Return the partitions that a check judges: those of its run, or, if it runs alone, all that exist."""
    if partitions is None:
        return [None]
    keys = partitions.get_partition_keys(dynamic_partitions_store=context.op_execution_context.instance)
    return in_run(context) or [name for name in keys if there(name)]


def _check(policy: Policy, partitions: dg.PartitionsDefinition) -> None:
    """Refuse names that cannot be part of a path, before a run uses them; dynamic definitions are checked later."""
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        raise PolicyError("partitions of two dimensions have no place in a path", "give one dimension")
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        known = [_SOME_TIME.strftime(partitions.fmt)]
    elif isinstance(partitions, dg.StaticPartitionsDefinition):
        known = list(partitions.get_partition_keys())
    else:
        known = []
    for name in known:
        check_partition(policy, name)


def _pattern(template: str) -> str:
    """Write a glob template as a regular expression that captures the first partition and repeats it."""
    first, *rest = template.split(PARTITION)
    return _any(first) + "(?P<partition>[^/]+)" + "(?P=partition)".join(map(_any, rest))


def _any(part: str) -> str:
    """Write the glob characters of a path part as a regular expression."""
    said = re.escape(part).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    return said.replace(r"\[", "[").replace(r"\]", "]")
