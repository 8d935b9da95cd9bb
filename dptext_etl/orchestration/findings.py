"""Turn the verdicts of gates into results of asset checks, one per gate and partition."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData

from dptext_etl.checks import Verdict

Event = dg.AssetCheckResult | dg.AssetCheckEvaluation | dg.Output[None]

_NOTHING_NEW = "nothing new is staged, so there was nothing to judge"
_NOT_EVALUATED = "not evaluated: another gate failed before it"


@dataclass(frozen=True)
class Found:
    """The result of a check on a partition.

    Attributes:
        asset: Key of the asset that was judged.
        check: Name of the check.
        partition: Name of the partition; None if the dataset has none.
        passed: True if the check passed.
        said: One sentence for people.
        counts: Counts by name.
        blocking: True if later steps wait for the check; otherwise it only warns.
    """

    asset: dg.AssetKey
    check: str
    partition: str | None
    passed: bool
    said: str
    counts: Mapping[str, Any]
    blocking: bool

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


def events_of(context: dg.AssetCheckExecutionContext, results: Iterable[Found]) -> Iterator[Event]:
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


def _judged(context: dg.AssetCheckExecutionContext, item: Found) -> Any:
    """Return the materialization of a partition that was judged."""
    key, partition = item.asset, str(item.partition)
    wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    found = context.instance.fetch_materializations(wanted, limit=1).records
    if not found:
        return None
    run_id, storage_id, timestamp = found[0].run_id, found[0].storage_id, found[0].timestamp
    return AssetCheckEvaluationTargetMaterializationData(run_id=run_id, storage_id=storage_id, timestamp=timestamp)


class Findings:
    """Collect the verdicts of a run.

    Attributes:
        partitions: The partitions of the run.
    """

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

    def results(self, gates: Iterable[str]) -> list[Found]:
        """Return the results of gates; a gate that was not evaluated fails, unless there was nothing to judge."""
        return [self._result(gate, partition) for gate in gates for partition in self.partitions]

    def _result(self, gate: str, partition: str | None) -> Found:
        verdicts = [verdict for verdict in self._verdicts.get(partition, ()) if verdict.name == gate]
        empty = partition in self._empty
        counts = {
            f"{name} ({number})" if number else name: value
            for number, verdict in enumerate(verdicts)
            for name, value in verdict.as_dict()["counts"].items()
        }
        said = "; ".join(verdict.message for verdict in verdicts) or (_NOTHING_NEW if empty else _NOT_EVALUATED)
        passed = all(verdict.passed for verdict in verdicts) if verdicts else empty
        return Found(self._asset, gate, partition, passed, said, counts, blocking=True)
