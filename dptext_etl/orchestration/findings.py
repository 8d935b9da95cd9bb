"""What gates found, as results of asset checks: one per gate and partition."""

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
    """What a check found in a partition.

    Attributes:
        asset: Key of the asset that was judged.
        check: Name of the check.
        partition: The partition; None where the dataset has none.
        passed: Whether it passed.
        said: One sentence.
        counts: What was counted.
        blocking: Whether what follows waits for it; a check that does not block warns.
    """

    asset: str
    check: str
    partition: str | None
    passed: bool
    said: str
    counts: Mapping[str, Any]
    blocking: bool

    @property
    def facts(self) -> dict[str, Any]:
        """What every form of a result says."""
        return {
            "asset_key": dg.AssetKey(self.asset),
            "check_name": self.check,
            "passed": self.passed,
            "severity": dg.AssetCheckSeverity.ERROR if self.blocking else dg.AssetCheckSeverity.WARN,
            "description": self.said,
            "metadata": dict(self.counts),
        }


def specs_of(
    asset: str, checks: Mapping[str, str], partitions: dg.PartitionsDefinition | None, *, blocking: bool
) -> list[dg.AssetCheckSpec]:
    """Return checks of an asset, each with its partitions: what is found in one is kept beside the others.

    Args:
        asset: Key of the asset.
        checks: Name -> what it says.
        partitions: The asset's partitions, or None.
        blocking: Whether what follows waits for them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)  # partitions of checks are new in Dagster 1.13
        return [
            dg.AssetCheckSpec(name, asset=asset, blocking=blocking, description=said, partitions_def=partitions)
            for name, said in checks.items()
        ]


def told_to_dagster(context: dg.AssetCheckExecutionContext, results: Iterable[Found]) -> Iterator[Event]:
    """Return the events of the checks that a run asks for: all of them, unless somebody executes one by itself.

    A run of one partition says its result as Dagster has it. Where a run looks at several, each result is an event of
    its own partition: a good one never stands for a bad one, nor hides it later.

    Args:
        context: The step.
        results: What was found.
    """
    asked = {(key.asset_key, key.name) for key in context.selected_asset_check_keys}
    wanted = [item for item in results if (dg.AssetKey(item.asset), item.check) in asked]
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
    """The materialisation of a partition that was judged."""
    key, partition = dg.AssetKey(item.asset), str(item.partition)
    wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    found = context.instance.fetch_materializations(wanted, limit=1).records
    if not found:
        return None
    run_id, storage_id, timestamp = found[0].run_id, found[0].storage_id, found[0].timestamp
    return AssetCheckEvaluationTargetMaterializationData(run_id=run_id, storage_id=storage_id, timestamp=timestamp)


class Findings:
    """Collects the verdicts of a run.

    Args:
        asset: Key of the asset that is judged.
        partitions: The partitions of the run; None alone where the dataset has none.

    Attributes:
        partitions: The same.
    """

    def __init__(self, asset: str, partitions: Sequence[str | None]) -> None:
        self._asset = asset
        self.partitions = partitions
        self._verdicts: dict[str | None, tuple[Verdict, ...]] = {}
        self._empty: set[str | None] = set()

    def add(self, partition: str | None, verdicts: Sequence[Verdict], *, empty: bool = False) -> None:
        """Add the verdicts over a partition; `empty` says that there was nothing to judge."""
        self._verdicts[partition] = tuple(verdicts)
        if empty:
            self._empty.add(partition)

    @property
    def passed(self) -> bool:
        """Whether everything so far has passed."""
        return all(verdict.passed for verdicts in self._verdicts.values() for verdict in verdicts)

    def of(self, partition: str | None) -> tuple[Verdict, ...]:
        """Return the verdicts over a partition."""
        return self._verdicts[partition]

    def results(self, gates: Iterable[str]) -> list[Found]:
        """Return what each gate found; one that was not evaluated has not passed, unless there was nothing to judge."""
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
