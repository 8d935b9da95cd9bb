"""Turn the verdicts of gates into results of asset checks, one per gate and partition."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData

from dptext_etl.checks import Verdict, reports
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.policy import Policy
from dptext_etl.runner import StagedRun
from dptext_etl.runner.publish.gating import copies_of
from dptext_etl.runner.synthetic.attempt import StagedTable

Event = dg.AssetCheckResult | dg.AssetCheckEvaluation | dg.Output[None]

_NOTHING_NEW = "nothing new is staged, so there was nothing to judge"
_NOT_EVALUATED = "not evaluated: another gate failed before it"


@dataclass(frozen=True)
class CheckResult:
    """The result of a check on a partition."""

    asset: dg.AssetKey  # key of the asset that was judged
    check: str
    partition: str | None  # name of the partition; None if the dataset has none
    passed: bool  # True if the check passed
    said: str  # one sentence for people
    counts: Mapping[str, Any]
    blocking: bool  # True if later steps wait for the check; otherwise it only warns

    @property
    def facts(self) -> dict[str, Any]:
        """Return the arguments that all forms of a result share."""
        return {
            "asset_key": self.asset,
            "check_name": self.check,
            "passed": self.passed,
            "severity": dg.AssetCheckSeverity.ERROR if self.blocking else dg.AssetCheckSeverity.WARN,
            "description": self.said,
            "metadata": dict(self.counts),
        }


def specs_of(
    asset: dg.AssetKey, checks: Mapping[str, str], partitions: dg.PartitionsDefinition | None, *, blocking: bool
) -> list[dg.AssetCheckSpec]:
    """Return checks of an asset with its partitions; Dagster keeps the result of every partition apart."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)  # partitions of checks are new in Dagster 1.13
        return [
            dg.AssetCheckSpec(name, asset=asset, blocking=blocking, description=said, partitions_def=partitions)
            for name, said in checks.items()
        ]


def events_of(context: dg.AssetCheckExecutionContext, results: Iterable[CheckResult]) -> Iterator[Event]:
    """Yield the events of the checks that a run requests: all of them, unless a check is executed alone.

    A run of one partition yields Dagster's usual result. If a run covers several partitions, each result is an event of
    its own partition, so that a positive result never replaces or hides a negative one.
    """
    asked = {(key.asset_key, key.name) for key in context.selected_asset_check_keys}
    wanted = [item for item in results if (item.asset, item.check) in asked]
    if context.has_partition_key or all(item.partition is None for item in wanted):
        yield from (dg.AssetCheckResult(**item.facts) for item in wanted)
        return
    for item in wanted:
        yield dg.AssetCheckEvaluation(
            **item.facts,
            blocking=item.blocking,
            partition=item.partition,
            target_materialization_data=_judged(context, item),
        )
    for asset, name in dict.fromkeys((item.asset, item.check) for item in wanted):
        yield dg.Output(None, dg.AssetCheckSpec(name, asset=asset).get_python_identifier())


def _judged(context: dg.AssetCheckExecutionContext, item: CheckResult) -> Any:
    key, partition = item.asset, str(item.partition)
    wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    found = context.instance.fetch_materializations(wanted, limit=1).records
    if not found:
        return None
    run_id, storage_id, timestamp = found[0].run_id, found[0].storage_id, found[0].timestamp
    return AssetCheckEvaluationTargetMaterializationData(run_id=run_id, storage_id=storage_id, timestamp=timestamp)


class CheckResults:
    """Collect the verdicts of a run."""

    def __init__(self, asset: dg.AssetKey, partitions: Sequence[str | None]) -> None:
        self._asset = asset
        self.partitions = partitions
        self._verdicts: dict[str | None, tuple[Verdict, ...]] = {}
        self._empty: set[str | None] = set()

    def add(self, partition: str | None, verdicts: Sequence[Verdict], *, empty: bool = False) -> None:
        """Add the verdicts over a partition."""
        self._verdicts[partition] = tuple(verdicts)
        if empty:
            self._empty.add(partition)

    @property
    def passed(self) -> bool:
        """Return True if all verdicts so far are positive."""
        return all(verdict.passed for verdicts in self._verdicts.values() for verdict in verdicts)

    def of(self, partition: str | None) -> tuple[Verdict, ...]:
        """Return the verdicts over a partition."""
        return self._verdicts[partition]

    def results(self, gates: Iterable[str]) -> list[CheckResult]:
        """Return the results of gates; a gate that was not evaluated fails, unless there was nothing to judge."""
        return [self._result(gate, partition) for gate in gates for partition in self.partitions]

    def _result(self, gate: str, partition: str | None) -> CheckResult:
        verdicts = [verdict for verdict in self._verdicts.get(partition, ()) if verdict.name == gate]
        empty = partition in self._empty
        counts = {
            f"{name} ({number})" if number else name: value
            for number, verdict in enumerate(verdicts)
            for name, value in verdict.as_dict()["counts"].items()
        }
        said = "; ".join(verdict.message for verdict in verdicts) or (_NOTHING_NEW if empty else _NOT_EVALUATED)
        passed = all(verdict.passed for verdict in verdicts) if verdicts else empty
        return CheckResult(self._asset, gate, partition, passed, said, counts, blocking=True)


COPIES = "report_copies"
LEFT_OUT = "report_left_out"
BUDGET = "report_budget"
NEAR = 0.9
"""Share of a cap from which a unit counts as near it."""

Staged = StagedRun | StagedTable
"""What a run staged: rows of a release, or a synthetic table."""
Runs = Sequence[tuple[str | None, Staged]]


def report_catalog(policy: Policy) -> dict[str, str]:
    """Return the reports on a run of the policy with a description of each, before the run."""
    said = {}
    if policy.synthetic is None:
        said[COPIES] = (
            "Warns when more texts came back unchanged than the mechanism makes by chance. It compares with raw "
            "text, so it decides nothing; it is an exact statistic of raw text, so it stays inside the boundary."
        )
    if policy.cap is not None and policy.on_cap == "quarantine":
        said[LEFT_OUT] = "Warns when records over the cap of their unit were left out of the release."
    if policy.cap is not None:
        said[BUDGET] = f"Warns when most {policy.unit}s have used more than {NEAR:.0%} of their cap."
    return said


def report_results(policy: Policy, asset: dg.AssetKey, runs: Runs) -> list[CheckResult]:
    """Return one result per report and partition of a run."""
    make = {COPIES: _copies_result, LEFT_OUT: _left_out_result, BUDGET: _budget_result}
    return [make[name](asset, partition, run) for name in report_catalog(policy) for partition, run in runs]


def _copies_result(asset: dg.AssetKey, partition: str | None, run: Staged) -> CheckResult:
    assert isinstance(run, StagedRun)  # noqa: S101  (a synthetic table has no such report)
    found = reports.copy_reports(run.policy, copies_of(run))
    counts = {f"{item.column}: {name}": count for item in found for name, count in item.verdict().counts.items()}
    for column, count in reports.copies_of(shard.post for shard in run.shards).items():
        counts[f"{column}, rewritten: copies"] = count.copies
    beyond = sum(item.beyond_chance for item in found)
    said = f"{beyond} of {len(found)} text columns have more copies than chance makes" if beyond else "within chance"
    said = said if found else "no column has a bound to compare with"
    return CheckResult(asset, COPIES, partition, not beyond, said, counts, blocking=False)


def _left_out_result(asset: dg.AssetKey, partition: str | None, run: Staged) -> CheckResult:
    records = run.rows["quarantined"]
    said = f"{records} records over the cap were left out" if records else "no record was over the cap"
    return CheckResult(asset, LEFT_OUT, partition, not records, said, {"records": records}, blocking=False)


def _budget_result(asset: dg.AssetKey, partition: str | None, run: Staged) -> CheckResult:
    place = run.policy.ledger
    with Ledger.open(place.url, place.id_key, create=False, read_only=True) as ledger:
        found = ledger.remaining(Scope.of(run.policy))
    medians = {name: int(found.left[name]["p50"]) / limit for name, limit in found.limits.items() if name in found.left}
    least = min(medians.values(), default=1.0)
    near = bool(found.units) and least <= 1 - NEAR
    said = f"the median {found.unit} has {least:.0%} of the cap left"
    counts = {"units": found.units, "at their cap": found.exhausted, "median share left": round(least, 4)}
    return CheckResult(asset, BUDGET, partition, not near, said, counts, blocking=False)
