"""The gates as blocking asset checks: one step evaluates all of them, one check per gate says what it found."""

# No `from __future__ import annotations`: Dagster reads the annotations of a step's parameters when it is made.
from collections.abc import Iterator, Sequence

import dagster as dg

from dptext_etl import runner
from dptext_etl.checks import Verdict, require
from dptext_etl.checks.gates import catalogue
from dptext_etl.orchestration import handover
from dptext_etl.orchestration.assets import partition_of
from dptext_etl.orchestration.failures import told
from dptext_etl.orchestration.names import names
from dptext_etl.orchestration.resources import KeyResource, LedgerResource, deployed
from dptext_etl.policy import Policy


def gate_checks(policy: Policy) -> dg.AssetChecksDefinition:
    """Return the step that evaluates every gate on the staged rows; the published asset waits for all of them."""
    name = names(policy)
    known = catalogue(policy)

    @dg.multi_asset_check(
        name=name.gates,
        specs=[
            dg.AssetCheckSpec(gate, asset=name.staged, blocking=True, description=said) for gate, said in known.items()
        ],
        description="Every gate, before anything is published (amendment A1): none compares a row with its raw text.",
    )
    def evaluate(
        context: dg.AssetCheckExecutionContext, ledger: LedgerResource, key: KeyResource
    ) -> Iterator[dg.AssetCheckResult]:
        with told("evaluating the gates"):
            staged = handover.find_run(deployed(policy, ledger, key), partition_of(context))
            verdicts = runner.check(staged)
            handover.leave_verdicts(staged, verdicts)
        for gate in known:
            yield _result(
                gate, name.staged, [verdict for verdict in verdicts if verdict.name == gate], empty=not staged.shards
            )
        with told("evaluating the gates"):
            if staged.shards:
                require(verdicts)

    return evaluate


def _result(gate: str, asset: str, verdicts: Sequence[Verdict], *, empty: bool) -> dg.AssetCheckResult:
    """Say what a gate found; a gate that was not evaluated has not passed, unless there was nothing to judge."""
    silence = (
        "nothing new is staged, so there was nothing to judge"
        if empty
        else "not evaluated: another gate failed before it"
    )
    counts = {
        f"{name} ({number})" if number else name: value
        for number, verdict in enumerate(verdicts)
        for name, value in verdict.as_dict()["counts"].items()
    }
    return dg.AssetCheckResult(
        asset_key=asset,
        check_name=gate,
        passed=all(verdict.passed for verdict in verdicts) if verdicts else empty,
        severity=dg.AssetCheckSeverity.ERROR,
        description="; ".join(verdict.message for verdict in verdicts) or silence,
        metadata=counts,
    )
