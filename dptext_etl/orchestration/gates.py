"""Make blocking asset checks of the gates: one step evaluates all gates, and one check per gate shows the result.

The reports of the same run are checks that warn and block nothing. They compare raw with released text, so they must
not decide (docs/spec/privacy.md#no-row-decision). They hold counts only and stay inside the boundary, like a Dagster
instance.

The published table is judged again by every gate that needs no raw text. This finds changes after the first gates:
files that were edited, cut, added, or written by someone else. Downstream assets wait for the result.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of a step's parameters when it is made.
from collections.abc import Iterator

import dagster as dg

from dptext_etl import runner
from dptext_etl.checks import Stage, Verdict, catalogue, published, require
from dptext_etl.errors import GateError, InputError
from dptext_etl.orchestration import findings, handover, synthetic
from dptext_etl.orchestration.failures import as_failure, progress_logger
from dptext_etl.orchestration.findings import CheckResults, Event, Staged, events_of, specs_of
from dptext_etl.orchestration.handover import is_staged
from dptext_etl.orchestration.names import to_judge
from dptext_etl.orchestration.resources import Settings, deployed, needed
from dptext_etl.policy import Policy
from dptext_etl.runner import Manifest
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.own_ids import finder


def gate_checks(policy: Policy, settings: Settings) -> dg.AssetChecksDefinition:
    """Return the step that evaluates every gate on the staged rows; the published asset waits for all of them."""
    name = settings.names
    known = catalogue(policy, Stage.STAGED)
    reported = findings.report_catalog(policy)
    specs = specs_of(name.staged, known, settings.partitions, blocking=True)
    specs += specs_of(name.staged, reported, settings.partitions, blocking=False)

    @dg.multi_asset_check(
        name=name.gates,
        specs=specs,
        description="Every gate, before anything is published; no gate compares a row with its raw text.",
        required_resource_keys=needed(name),
        can_subset=True,
        retry_policy=settings.retry_policy,
    )
    def evaluate(context: dg.AssetCheckExecutionContext) -> Iterator[Event]:
        with as_failure("evaluating the gates"):
            here = deployed(policy, context, name)
            partitions = to_judge(context, settings.partitions, lambda partition: is_staged(here, partition))
            found = CheckResults(name.staged, partitions)
            runs = list[tuple[str | None, Staged]]()
            for partition in partitions:
                staged: Staged
                if here.synthetic is not None:
                    staged, verdicts = synthetic.judge(here)
                else:
                    staged = handover.load_run(here, partition)
                    verdicts = runner.check(staged, progress=progress_logger(context.log, partition))
                    handover.save_verdicts(staged, verdicts)
                found.add(partition, verdicts, empty=not verdicts)
                runs.append((partition, staged))
                if not found.passed:  # the release name is revoked, so no other partition can be judged under it
                    break
            if not runs:
                raise InputError(*handover.NOTHING)
            results = [*found.results(known), *findings.report_results(policy, name.staged, runs)]
        yield from events_of(context, results)
        with as_failure("evaluating the gates"):
            for partition, _ in runs:
                if found.of(partition):
                    require(found.of(partition))

    return evaluate


_NOTHING_PUBLISHED = ("nothing is published that could be checked", "materialize the published asset first")


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
            found = CheckResults(name.published, partitions)
            for partition in partitions:
                found.add(partition, _verdicts(here, partition))
            if not partitions:
                raise InputError(*_NOTHING_PUBLISHED)
        yield from events_of(context, found.results(known))
        with as_failure("checking the published table"):
            _require(found)

    return recheck


def _published(policy: Policy, partition: str | None) -> bool:
    return Manifest.read(Layout.of(policy, partition)) is not None


def _verdicts(policy: Policy, partition: str | None) -> tuple[Verdict, ...]:
    if not _published(policy, partition):
        raise InputError(*_NOTHING_PUBLISHED)
    layout = Layout.of(policy, partition)
    return published.check_published(layout.sink, policy, own_ids=finder(layout.staging))


def _require(found: CheckResults) -> None:
    failed = {
        f"{verdict.name}: {verdict.message}"
        for partition in found.partitions
        for verdict in found.of(partition)
        if not verdict.passed
    }
    if failed:
        msg = f"what is published is no longer what passed its gates: {'; '.join(sorted(failed))}"
        raise GateError(msg, "find out who wrote there; materialize the dataset again to restore its files")
