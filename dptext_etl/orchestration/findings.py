"""What gates found, partition by partition, as results of asset checks: one per gate and run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import dagster as dg

from dptext_etl.checks import Verdict

_NOTHING_NEW = "nothing new is staged, so there was nothing to judge"
_NOT_EVALUATED = "not evaluated: another gate failed before it"


def selected(
    context: dg.AssetCheckExecutionContext, results: Iterable[dg.AssetCheckResult]
) -> Iterator[dg.AssetCheckResult]:
    """Return the results that a run asks for: all of them, unless somebody executes a check by itself."""
    asked = {(key.asset_key, key.name) for key in context.selected_asset_check_keys}
    return (result for result in results if (result.asset_key, result.check_name) in asked)


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

    def results(self, gates: Iterable[str]) -> Iterator[dg.AssetCheckResult]:
        """Return one result per gate; one that was not evaluated has not passed, unless there was nothing to judge."""
        for gate in gates:
            found = [self._result(gate, partition) for partition in self.partitions]
            yield dg.AssetCheckResult(
                asset_key=self._asset,
                check_name=gate,
                passed=all(passed for passed, _, _ in found),
                severity=dg.AssetCheckSeverity.ERROR,
                description="; ".join(dict.fromkeys(said for _, said, _ in found)),
                metadata={name: value for _, _, counts in found for name, value in counts.items()},
            )

    def _result(self, gate: str, partition: str | None) -> tuple[bool, str, dict[str, int | float | str]]:
        verdicts = [verdict for verdict in self._verdicts.get(partition, ()) if verdict.name == gate]
        if not verdicts:
            return partition in self._empty, _NOTHING_NEW if partition in self._empty else _NOT_EVALUATED, {}
        counts = {
            self._label(name, number, partition): value
            for number, verdict in enumerate(verdicts)
            for name, value in verdict.as_dict()["counts"].items()
        }
        return all(verdict.passed for verdict in verdicts), self._said(verdicts, partition), counts

    def _said(self, verdicts: Iterable[Verdict], partition: str | None) -> str:
        said = "; ".join(verdict.message for verdict in verdicts)
        return said if len(self.partitions) == 1 else f"{partition}: {said}"

    def _label(self, name: str, number: int, partition: str | None) -> str:
        name = f"{name} ({number})" if number else name
        return name if len(self.partitions) == 1 else f"{partition}: {name}"
