"""Reports of a run as asset checks that warn: counts for people inside the boundary, which decide nothing."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from dptext_etl.checks.reports import copies
from dptext_etl.policy import Policy
from dptext_etl.runner import StagedRun
from dptext_etl.runner.publish.gating import copies_of

COPIES = "report_copies"
LEFT_OUT = "report_left_out"

Runs = Sequence[tuple[str | None, StagedRun]]


def catalogue(policy: Policy) -> dict[str, str]:
    """Return the reports on a run of the policy, and what each warns of; known before it runs."""
    said = {
        COPIES: "Warns when more texts came back as they were than the mechanism makes by chance. Compares with raw "
        "text, so it decides nothing; an exact statistic of raw text, so it stays inside the boundary."
    }
    if policy.cap is not None and policy.on_cap == "quarantine":
        said[LEFT_OUT] = "Warns when records over the cap of their unit were left out of the release."
    return said


def results(policy: Policy, asset: str, runs: Runs) -> list[dg.AssetCheckResult]:
    """Return one result per report over the partitions of a run."""
    made = {COPIES: _copies(asset, runs), LEFT_OUT: _left_out(asset, runs)}
    return [made[name] for name in catalogue(policy)]


def _copies(asset: str, runs: Runs) -> dg.AssetCheckResult:
    found = [(partition, item) for partition, run in runs for item in copies.report(run.policy, copies_of(run))]
    counts: dict[str, int | float] = {}
    for partition, item in found:
        prefix = _prefix(partition, runs)
        for name, count in item.verdict().counts.items():
            counts[f"{prefix}{item.column}: {name}"] = count
    beyond = sum(item.beyond_chance for _, item in found)
    said = f"{beyond} of {len(found)} text columns have more copies than chance makes" if beyond else "within chance"
    return _result(asset, COPIES, said if found else "no column has a bound to compare with", counts, passed=not beyond)


def _left_out(asset: str, runs: Runs) -> dg.AssetCheckResult:
    counts = {f"{_prefix(partition, runs)}records": run.rows["quarantined"] for partition, run in runs}
    total = sum(counts.values())
    said = f"{total} records over the cap were left out" if total else "no record was over the cap"
    return _result(asset, LEFT_OUT, said, counts, passed=not total)


def _prefix(partition: str | None, runs: Runs) -> str:
    return f"{partition}: " if len(runs) > 1 else ""


def _result(
    asset: str, name: str, said: str, counts: dict[str, int] | dict[str, int | float], *, passed: bool
) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=asset,
        check_name=name,
        passed=passed,
        severity=dg.AssetCheckSeverity.WARN,
        description=said,
        metadata=dict(counts),
    )
