"""Make blocking asset checks of the gates: one step evaluates all gates, and one check per gate shows the result.

The reports of the same run are checks that warn and block nothing. They compare raw with released text, so they must
not decide (docs/spec/privacy.md#no-row-decision). They hold counts only and stay inside the boundary, like a Dagster
instance.

The published table is judged again by every gate that needs no raw text. This finds changes after the first gates:
files that were edited, cut, added, or written by someone else. Downstream assets wait for the result.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of a step's parameters when it is made.
import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData

from dptext_etl import runner
from dptext_etl.checks import Stage, Verdict, gate_descriptions, published, require, text_counts
from dptext_etl.errors import GateError, InputError, counted
from dptext_etl.ledger import Ledger, Scope, anchor_files
from dptext_etl.markup import markdown
from dptext_etl.orchestration import steps
from dptext_etl.orchestration.resources import Maintenance, Settings, deployed, to_judge
from dptext_etl.orchestration.steps import as_failure, is_staged, progress_logger
from dptext_etl.policy import Policy
from dptext_etl.runner import Manifest, StagedRun
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.parts import id_finder

Event = dg.AssetCheckResult | dg.AssetCheckEvaluation | dg.Output[None]
Verdicts = Mapping[str | None, tuple[Verdict, ...]]  # verdicts by partition; none where nothing new was staged

_NOTHING_NEW = "nothing new is staged, so there was nothing to judge"
_NOT_EVALUATED = "not evaluated: another gate failed before it"


def gate_checks(policy: Policy, settings: Settings) -> dg.AssetChecksDefinition:
    """Return the step that evaluates every gate on the staged rows; the published asset waits for all of them."""
    name = settings.names
    catalog = gate_descriptions(policy, Stage.STAGED)
    specs = _specs(name.staged, catalog, settings.partitions, blocking=True)
    specs += _specs(name.staged, report_catalog(policy), settings.partitions, blocking=False)

    @dg.multi_asset_check(
        name=name.gates,
        specs=specs,
        description="Every gate, before anything is published; no gate compares a row with its raw text.",
        required_resource_keys=name.resources,
        can_subset=True,
        retry_policy=settings.retry_policy,
    )
    def evaluate(context: dg.AssetCheckExecutionContext) -> Iterator[Event]:
        with as_failure("evaluating the gates"):
            here = deployed(policy, context, name)
            partitions = to_judge(context, settings.partitions, lambda partition: is_staged(here, partition))
            verdicts, runs = dict[str | None, tuple[Verdict, ...]](), dict[str | None, StagedRun]()
            for partition in partitions:
                if steps.is_empty(here, partition):
                    verdicts[partition] = ()
                    continue
                staged = runs[partition] = steps.load_run(here, partition)
                verdicts[partition] = runner.check(staged, progress=progress_logger(context.log, partition))
                steps.save_verdicts(staged, verdicts[partition])
                if not all(verdict.passed for verdict in verdicts[partition]):
                    break  # the release name is revoked, so no other partition can be judged under it
            if not runs:
                raise InputError(*steps.NOTHING_STAGED)
            results = _gate_results(name.staged, catalog, partitions, verdicts)
            results += [
                _REPORTS[report](name.staged, partition, run)
                for report in report_catalog(policy)
                for partition, run in runs.items()
            ]
        yield from _events(context, results)
        for partition, decided in verdicts.items():
            with as_failure("evaluating the gates", partition):
                if decided:
                    require(decided)

    return evaluate


def ledger_check(policy: Policy, settings: Settings, terms: Maintenance) -> dg.AssetChecksDefinition:
    """Return the check that maintains the ledger: it verifies it, stores its anchor, and makes a backup."""
    name = settings.names

    @dg.asset_check(
        asset=name.staged,
        name=LEDGER,
        description="The ledger agrees with its journal and with the anchor of the last time; then a backup is made.",
        required_resource_keys=name.resources,
        retry_policy=settings.retry_policy,
    )
    def maintain(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        with as_failure("maintaining the ledger"):
            here = deployed(policy, context, name)
            folder = None if terms.backup is None else Path(terms.backup)
            with Ledger.open(here.ledger.url, here.ledger.id_key, create=False, read_only=True) as ledger:
                done = anchor_files.maintain(
                    ledger, here.ledger.anchors, here.storage_options, backup=folder, keep=terms.keep
                )
        message = "; ".join(done.problems) or "the ledger is intact"
        return dg.AssetCheckResult(passed=done.ok, description=markdown(message), metadata=dict(done.counts))

    return maintain


_NOTHING_PUBLISHED = ("no published table can be checked", "materialize the published asset first")


def published_checks(policy: Policy, settings: Settings) -> dg.AssetChecksDefinition:
    """Return the step that judges the published table, in a folder or in an object store."""
    name = settings.names
    catalog = gate_descriptions(policy, Stage.PUBLISHED)

    @dg.multi_asset_check(
        name=name.recheck,
        specs=_specs(name.published, catalog, settings.partitions, blocking=True),
        description="The published table, judged again without raw data; its readers wait for this.",
        required_resource_keys=name.resources,
        can_subset=True,
        retry_policy=settings.retry_policy,
    )
    def recheck(context: dg.AssetCheckExecutionContext) -> Iterator[Event]:
        with as_failure("checking the published table"):
            here = deployed(policy, context, name)
            partitions = to_judge(context, settings.partitions, lambda partition: is_published(here, partition))
            if not partitions:
                raise InputError(*_NOTHING_PUBLISHED)
        verdicts = dict[str | None, tuple[Verdict, ...]]()
        for partition in partitions:
            with as_failure("checking the published table", partition):
                if is_published(here, partition):
                    layout = Layout.of(here, partition)
                    own_ids = id_finder(layout.staging, here.ledger)
                    verdicts[partition] = published.check_published(layout.sink, here, own_ids=own_ids)
                elif steps.is_empty(here, partition):
                    verdicts[partition] = ()
                else:
                    raise InputError(*_NOTHING_PUBLISHED)
        yield from _events(context, _gate_results(name.published, catalog, partitions, verdicts))
        for partition, decided in verdicts.items():
            with as_failure("checking the published table", partition):
                failed = {f"{verdict.name}: {verdict.message}" for verdict in decided if not verdict.passed}
                if failed:
                    msg = f"the published table is not the one that passed its gates: {'; '.join(sorted(failed))}"
                    raise GateError(msg, "find out who wrote there; materialize the dataset again to restore its files")

    return recheck


def is_published(policy: Policy, partition: str | None) -> bool:
    return Manifest.read(Layout.of(policy, partition)) is not None


@dataclass(frozen=True)
class CheckResult:
    asset: dg.AssetKey  # key of the asset that was judged
    check: str
    partition: str | None  # name of the partition; None if the dataset has none
    passed: bool
    message: str  # one sentence for people
    counts: Mapping[str, Any]
    blocking: bool  # True if later steps wait for the check; otherwise it only warns

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "asset_key": self.asset,
            "check_name": self.check,
            "passed": self.passed,
            "severity": dg.AssetCheckSeverity.ERROR if self.blocking else dg.AssetCheckSeverity.WARN,
            "description": markdown(self.message),
            "metadata": dict(self.counts),
        }


def _specs(
    asset: dg.AssetKey, checks: Mapping[str, str], partitions: dg.PartitionsDefinition | None, *, blocking: bool
) -> list[dg.AssetCheckSpec]:
    """Return checks of an asset with its partitions; Dagster keeps the result of every partition apart."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)  # partitions of checks are new in Dagster 1.13
        return [
            dg.AssetCheckSpec(name, asset=asset, blocking=blocking, description=text, partitions_def=partitions)
            for name, text in checks.items()
        ]


def _events(context: dg.AssetCheckExecutionContext, results: Iterable[CheckResult]) -> Iterator[Event]:
    """Yield the events of the checks that a run requests: all of them, unless someone executes a single check.

    A run of one partition yields Dagster's usual result. If a run covers several partitions, each result is an event of
    its own partition, so that a positive result never replaces or hides a negative one.
    """
    requested = {(key.asset_key, key.name) for key in context.selected_asset_check_keys}
    wanted = [item for item in results if (item.asset, item.check) in requested]
    if context.has_partition_key or all(item.partition is None for item in wanted):
        yield from (dg.AssetCheckResult(**item.facts) for item in wanted)
        return
    for item in wanted:
        latest = dg.AssetRecordsFilter(asset_key=item.asset, asset_partitions=[str(item.partition)])
        target = None  # the materialization that was judged
        for record in context.instance.fetch_materializations(latest, limit=1).records:
            target = AssetCheckEvaluationTargetMaterializationData(
                run_id=record.run_id, storage_id=record.storage_id, timestamp=record.timestamp
            )
        yield dg.AssetCheckEvaluation(
            **item.facts, blocking=item.blocking, partition=item.partition, target_materialization_data=target
        )
    for asset, name in dict.fromkeys((item.asset, item.check) for item in wanted):
        yield dg.Output(None, dg.AssetCheckSpec(name, asset=asset).get_python_identifier())


def _gate_results(
    asset: dg.AssetKey, gates: Iterable[str], partitions: Sequence[str | None], verdicts: Verdicts
) -> list[CheckResult]:
    """Return the results of gates; a gate that was not evaluated fails, unless there was nothing to judge."""
    results = []
    for gate, partition in itertools.product(gates, partitions):
        own = [verdict for verdict in verdicts.get(partition, ()) if verdict.name == gate]
        empty = partition in verdicts and not verdicts[partition]
        counts = {
            f"{name} ({number})" if number else name: value
            for number, verdict in enumerate(own)
            for name, value in verdict.as_dict()["counts"].items()
        }
        message = "; ".join(verdict.message for verdict in own) or (_NOTHING_NEW if empty else _NOT_EVALUATED)
        passed = all(verdict.passed for verdict in own) if own else empty
        results.append(CheckResult(asset, gate, partition, passed, message, counts, blocking=True))
    return results


LEDGER = "ledger_intact"
COPIES, EXCLUDED, BUDGET = "report_copies", "report_excluded", "report_budget"
NEAR = 0.9  # share of a cap from which a unit counts as near it


def report_catalog(policy: Policy) -> dict[str, str]:
    """Return the reports on a run of the policy with a description of each, before the run."""
    descriptions = {}
    if policy.synthetic is None:
        descriptions[COPIES] = (
            "Warns when more texts came back unchanged than the mechanism makes by chance. It compares with raw "
            "text, so it decides nothing; it is an exact statistic of raw text, so it stays inside the boundary."
        )
    if policy.cap is not None and policy.on_cap == "quarantine":
        descriptions[EXCLUDED] = "Warns when records over the cap of their unit were excluded from the release."
    if policy.cap is not None:
        descriptions[BUDGET] = f"Warns when most {policy.unit}s have used more than {NEAR:.0%} of their cap."
    return descriptions


def _copies_result(asset: dg.AssetKey, partition: str | None, run: StagedRun) -> CheckResult:
    items = text_counts.copy_reports(run.policy, text_counts.total_copies(shard.copies for shard in run.shards))
    counts = {f"{item.column}: {name}": count for item in items for name, count in item.verdict().counts.items()}
    for column, count in text_counts.total_copies(shard.post.get("copies", {}) for shard in run.shards).items():
        counts[f"{column}, rewritten: copies"] = count.copies
    beyond = sum(item.beyond_chance for item in items)
    message = "within chance" if items else "no column has a bound to compare with"
    if beyond:
        message = f"{beyond} of {len(items)} text columns have more copies than chance makes"
    return CheckResult(asset, COPIES, partition, not beyond, message, counts, blocking=False)


def _excluded_result(asset: dg.AssetKey, partition: str | None, run: StagedRun) -> CheckResult:
    records = run.rows["quarantined"]
    message = (
        f"{counted(records, 'record over the cap was', 'records over the cap were')} excluded"
        if records
        else "no record was over the cap"
    )
    return CheckResult(asset, EXCLUDED, partition, not records, message, {"records": records}, blocking=False)


def _budget_result(asset: dg.AssetKey, partition: str | None, run: StagedRun) -> CheckResult:
    place = run.policy.ledger
    with Ledger.open(place.url, place.id_key, create=False, read_only=True) as ledger:
        rest = ledger.remaining(Scope.of(run.policy))
    medians = {name: int(rest.left[name]["p50"]) / limit for name, limit in rest.limits.items() if name in rest.left}
    least = min(medians.values(), default=1.0)
    near = bool(rest.units) and least <= 1 - NEAR
    message = f"the median {rest.unit} has {least:.0%} of the cap left"
    counts = {"units": rest.units, "at their cap": rest.exhausted, "median share left": round(least, 4)}
    return CheckResult(asset, BUDGET, partition, not near, message, counts, blocking=False)


_REPORTS = {COPIES: _copies_result, EXCLUDED: _excluded_result, BUDGET: _budget_result}
