"""Make asset checks of the reports of a run: they warn people inside the boundary by counts, and decide nothing."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from dptext_etl.checks.reports import copies, rewritten
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.orchestration.findings import Found
from dptext_etl.policy import Policy
from dptext_etl.runner import StagedRun
from dptext_etl.runner.publish.gating import copies_of

COPIES = "report_copies"
LEFT_OUT = "report_left_out"
BUDGET = "report_budget"
NEAR = 0.9
"""Share of a cap from which a unit counts as near it."""

Runs = Sequence[tuple[str | None, StagedRun]]


def catalogue(policy: Policy) -> dict[str, str]:
    """Return the reports on a run of the policy with a description of each, before the run."""
    said = {
        COPIES: "Warns when more texts came back unchanged than the mechanism makes by chance. It compares with raw "
        "text, so it decides nothing; it is an exact statistic of raw text, so it stays inside the boundary."
    }
    if policy.cap is not None and policy.on_cap == "quarantine":
        said[LEFT_OUT] = "Warns when records over the cap of their unit were left out of the release."
    if policy.cap is not None:
        said[BUDGET] = f"Warns when most {policy.unit}s have used more than {NEAR:.0%} of their cap."
    return said


def results(policy: Policy, asset: dg.AssetKey, runs: Runs) -> list[Found]:
    """Return one result per report and partition of a run."""
    make = {COPIES: _copies, LEFT_OUT: _left_out, BUDGET: _budget}
    return [make[name](asset, partition, run) for name in catalogue(policy) for partition, run in runs]


def _copies(asset: dg.AssetKey, partition: str | None, run: StagedRun) -> Found:
    found = copies.report(run.policy, copies_of(run))
    counts = {f"{item.column}: {name}": count for item in found for name, count in item.verdict().counts.items()}
    for column, count in rewritten.copies_of(shard.post for shard in run.shards).items():
        counts[f"{column}, rewritten: copies"] = count.copies
    beyond = sum(item.beyond_chance for item in found)
    said = f"{beyond} of {len(found)} text columns have more copies than chance makes" if beyond else "within chance"
    said = said if found else "no column has a bound to compare with"
    return Found(asset, COPIES, partition, not beyond, said, counts, blocking=False)


def _left_out(asset: dg.AssetKey, partition: str | None, run: StagedRun) -> Found:
    records = run.rows["quarantined"]
    said = f"{records} records over the cap were left out" if records else "no record was over the cap"
    return Found(asset, LEFT_OUT, partition, not records, said, {"records": records}, blocking=False)


def _budget(asset: dg.AssetKey, partition: str | None, run: StagedRun) -> Found:
    place = run.policy.ledger
    with Ledger.open(place.url, place.id_key, create=False, read_only=True) as ledger:
        found = ledger.remaining(Scope.of(run.policy))
    medians = {name: int(found.left[name]["p50"]) / limit for name, limit in found.limits.items() if name in found.left}
    least = min(medians.values(), default=1.0)
    near = bool(found.units) and least <= 1 - NEAR
    said = f"the median {found.unit} has {least:.0%} of the cap left"
    counts = {"units": found.units, "at their cap": found.exhausted, "median share left": round(least, 4)}
    return Found(asset, BUDGET, partition, not near, said, counts, blocking=False)
