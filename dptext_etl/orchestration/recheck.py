"""Judge the published table again by every gate that needs no raw text; downstream assets wait for the result.

This finds changes of the table after its gates: files that were edited, cut, added, or written by someone else.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of a step's parameters when it is made.
from collections.abc import Iterator

import dagster as dg

from dptext_etl.checks import Stage, Verdict, catalogue, published
from dptext_etl.errors import GateError, InputError
from dptext_etl.orchestration.failures import as_failure
from dptext_etl.orchestration.findings import Event, Findings, events_of, specs_of
from dptext_etl.orchestration.partitions import to_judge
from dptext_etl.orchestration.resources import deployed, needed
from dptext_etl.orchestration.settings import Settings
from dptext_etl.policy import Policy
from dptext_etl.runner import Manifest
from dptext_etl.runner.layout import Layout

_NOTHING = ("nothing is published that could be checked", "materialize the published asset first")


def published_checks(policy: Policy, settings: Settings) -> dg.AssetChecksDefinition:
    """Return the step that judges the published table, in a folder or in an object store."""
    name = settings.names
    known = catalogue(policy, Stage.PUBLISHED)

    @dg.multi_asset_check(
        name=name.recheck,
        specs=specs_of(name.published, known, settings.partitions, blocking=True),
        description="The published table, judged again without raw data; its readers wait for this.",
        required_resource_keys=needed(name),
        can_subset=True,
        retry_policy=settings.retry_policy,
    )
    def recheck(context: dg.AssetCheckExecutionContext) -> Iterator[Event]:
        with as_failure("checking the published table"):
            here = deployed(policy, context, name)
            partitions = to_judge(context, settings.partitions, lambda partition: _published(here, partition))
            found = Findings(name.published, partitions)
            for partition in partitions:
                found.add(partition, _verdicts(here, partition))
            if not partitions:
                raise InputError(*_NOTHING)
        yield from events_of(context, found.results(known))
        with as_failure("checking the published table"):
            _require(found)

    return recheck


def _published(policy: Policy, partition: str | None) -> bool:
    return Manifest.read(Layout.of(policy, partition)) is not None


def _verdicts(policy: Policy, partition: str | None) -> tuple[Verdict, ...]:
    if not _published(policy, partition):
        raise InputError(*_NOTHING)
    return published.check_published(Layout.of(policy, partition).sink, policy)


def _require(found: Findings) -> None:
    failed = {
        f"{verdict.name}: {verdict.message}"
        for partition in found.partitions
        for verdict in found.of(partition)
        if not verdict.passed
    }
    if failed:
        msg = f"what is published is no longer what passed its gates: {'; '.join(sorted(failed))}"
        raise GateError(msg, "find out who wrote there; materialize the dataset again to restore its files")
