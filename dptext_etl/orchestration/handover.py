"""What one step leaves for the next: the staged run and the verdicts over it, as files inside the boundary.

They stand beside the staged rows, in a folder that its owner alone can read, because they hold the canary rows' words;
so neither an I/O manager nor Dagster's storage sees them. Verdicts count only for the very files that were judged.
"""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any

from dptext_etl.checks import Verdict
from dptext_etl.errors import GateError, InputError, PolicyError, seam
from dptext_etl.orchestration.written import written
from dptext_etl.policy import Policy
from dptext_etl.runner import StagedRun, durable
from dptext_etl.runner.layout import Layout

_RUN = "run.handover"
_VERDICTS = "verdicts.handover"


def leave_run(staged: StagedRun) -> None:
    """Leave a staged run for the gates; verdicts over an earlier one no longer count."""
    folder = staged.layout.staging
    (folder / _VERDICTS).unlink(missing_ok=True)
    facts = {field.name: getattr(staged, field.name) for field in fields(staged) if field.name != "policy"}
    _write(folder / _RUN, (_stamp(staged.policy), facts))


def find_run(policy: Policy, partition: str | None) -> StagedRun:
    """Return the run that is staged.

    Raises:
        InputError: Nothing is staged.
        PolicyError: What is staged belongs to another policy: to judge it by this one would burn its name.
    """
    found = _read(Layout.of(policy, partition).staging / _RUN)
    if found is None:
        raise InputError("nothing is staged that could be checked or published", "materialise the staged asset first")
    if found[0] != _stamp(policy):
        raise PolicyError("the policy changed since its rows were staged", "materialise the staged asset again")
    return StagedRun(policy=policy, **found[1])


def leave_verdicts(staged: StagedRun, verdicts: tuple[Verdict, ...]) -> None:
    """Leave the verdicts over a staged run for its publication."""
    _write(staged.layout.staging / _VERDICTS, (_judged(staged), verdicts))


def find_verdicts(staged: StagedRun) -> tuple[Verdict, ...]:
    """Return what the gates said of exactly these staged files.

    Raises:
        GateError: They have not been judged.
    """
    found = _read(staged.layout.staging / _VERDICTS)
    if found is None or found[0] != _judged(staged):
        raise GateError(
            "the staged rows were not judged, so nothing is published", "run the gates on the staged asset first"
        )
    verdicts: tuple[Verdict, ...] = found[1]
    return verdicts


def clear(staged: StagedRun) -> None:
    """Remove what was left: the run is published."""
    for name in (_RUN, _VERDICTS):
        (staged.layout.staging / name).unlink(missing_ok=True)


def _stamp(policy: Policy) -> str:
    """Identify a policy and the content of what it refers to."""
    configurations = [column.mechanism.cfg() for column in policy.column_policies()]
    return hashlib.sha256("\0".join([written(policy), *configurations]).encode()).hexdigest()


def _judged(staged: StagedRun) -> tuple[str, ...]:
    return tuple(shard.sha256 for shard in staged.shards)


def _write(path: Path, value: Any) -> None:
    content = pickle.dumps(value)
    durable.write(path, lambda file: file.write(content), action="leaving word for the next step")


def _read(path: Path) -> Any:
    with seam("reading what the step before left", InputError, "materialise the staged asset again"):
        return pickle.loads(path.read_bytes()) if path.exists() else None  # noqa: S301  (our own file, readable by its owner alone)
