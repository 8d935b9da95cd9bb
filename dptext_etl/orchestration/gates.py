"""Make blocking asset checks of the gates: one step evaluates all gates, and one check per gate shows the result.

The reports of the same run are checks that warn and block nothing. They compare raw with released text, so they must
not decide (docs/spec/privacy.md#no-row-decision). They hold counts only and stay inside the boundary, like a Dagster
instance.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of a step's parameters when it is made.
from collections.abc import Iterator

import dagster as dg

from dptext_etl import runner
from dptext_etl.checks import Stage, catalogue, require
from dptext_etl.errors import InputError
from dptext_etl.orchestration import handover, reports
from dptext_etl.orchestration.failures import as_failure
from dptext_etl.orchestration.findings import Event, Findings, events_of, specs_of
from dptext_etl.orchestration.handover import is_staged
from dptext_etl.orchestration.partitions import to_judge
from dptext_etl.orchestration.resources import deployed, needed
from dptext_etl.orchestration.settings import Settings
from dptext_etl.orchestration.telling import teller
from dptext_etl.policy import Policy


def gate_checks(policy: Policy, settings: Settings) -> dg.AssetChecksDefinition:
    """Return the step that evaluates every gate on the staged rows; the published asset waits for all of them."""
    name = settings.names
    known = catalogue(policy, Stage.STAGED)
    reported = reports.catalogue(policy)
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
            found = Findings(name.staged, partitions)
            runs = []
            for partition in partitions:
                staged = handover.find_run(here, partition)
                verdicts = runner.check(staged, progress=teller(context.log, partition))
                handover.leave_verdicts(staged, verdicts)
                found.add(partition, verdicts, empty=not staged.shards)
                runs.append((partition, staged))
                if not found.passed:  # the release name is revoked, so no other partition can be judged under it
                    break
            if not runs:
                raise InputError(*handover.NOTHING)
            results = [*found.results(known), *reports.results(policy, name.staged, runs)]
        yield from events_of(context, results)
        with as_failure("evaluating the gates"):
            for partition, staged in runs:
                if staged.shards:
                    require(found.of(partition))

    return evaluate
