"""Hand the staged run and its verdicts from one step to the next, as JSON files inside the boundary.

The files are next to the staged rows, in a folder that only its owner can read. Neither an I/O manager nor Dagster's
storage sees them. Verdicts count only for exactly the files that were judged.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel

from dptext_etl.checks import Verdict
from dptext_etl.errors import GateError, InputError, KeyReferenceError, PolicyError, seam
from dptext_etl.ledger import ReleaseRef
from dptext_etl.policy import Policy
from dptext_etl.runner import StagedRun
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.staged import from_json, key_mark, to_json
from dptext_etl.runner.synthetic.attempt import StagedTable, SyntheticAttempt, read_staged
from dptext_etl.storage import Storage

_RUN = "run.handover"
_VERDICTS = "verdicts.handover"
_AGAIN = "materialize the staged asset again"
NOTHING = ("nothing is staged that could be checked or published", "materialize the staged asset first")
"""Message and hint if no staged run exists."""


def save_run(staged: StagedRun) -> None:
    """Store a staged run for the gates; verdicts over an earlier run no longer count."""
    storage = staged.layout.staging
    storage.delete(_VERDICTS)
    _write(storage, _RUN, {"policy": _stamp(staged.policy), "run": to_json(staged)})


def is_staged(policy: Policy, partition: str | None) -> bool:
    """Say whether a staged run of a partition exists."""
    return bool(Layout.of(policy, partition).staging.glob(_RUN))


def load_run(policy: Policy, partition: str | None) -> StagedRun:
    """Return the staged run."""
    found = _read(Layout.of(policy, partition).staging, _RUN)
    if found is None:
        raise InputError(*NOTHING)
    if found["policy"] != _stamp(policy):
        raise PolicyError("the policy changed since its rows were staged", _AGAIN)
    with seam("reading what the step before left", InputError, _AGAIN):
        return from_json(found["run"], policy)


def save_table(staged: StagedTable) -> None:
    """Store a staged synthetic table for the gates; its file holds the rows."""
    storage = staged.attempt.layout.staging
    storage.delete(_VERDICTS)
    said = ("records", "rows", "dropped", "origin", "seconds", "other")
    run = {"key": key_mark(staged.attempt.secret), "ref": asdict(staged.ref)}
    run |= {name: getattr(staged, name) for name in said}
    _write(storage, _RUN, {"policy": _stamp(staged.policy), "run": run})


def load_table(policy: Policy) -> StagedTable:
    """Return the staged synthetic table."""
    attempt = SyntheticAttempt.of(policy, None)
    found = _read(attempt.layout.staging, _RUN)
    if found is None:
        raise InputError(*NOTHING)
    if found["policy"] != _stamp(policy):
        raise PolicyError("the policy changed since its table was staged", _AGAIN)
    run = found["run"]
    if run.pop("key") != key_mark(attempt.secret):
        msg = "the noise key is not the key that the table was staged under"
        raise KeyReferenceError(msg, "give the key of the staging step, or stage again")
    drawn = read_staged(attempt, Staging(attempt.layout.staging), run["records"])
    if drawn is None:
        raise InputError("the staged table is gone, or has changed since it was staged", _AGAIN)
    ref, dropped = ReleaseRef(**run.pop("ref")), tuple(run.pop("dropped"))
    return StagedTable(attempt=attempt, ref=ref, drawn=drawn, dropped=dropped, **run)


def save_verdicts(staged: StagedRun | StagedTable, verdicts: tuple[Verdict, ...]) -> None:
    """Store the verdicts over a staged run for its publication."""
    facts = {"judged": _judged(staged), "verdicts": [verdict.as_dict() for verdict in verdicts]}
    _write(_storage(staged), _VERDICTS, facts)


def load_verdicts(staged: StagedRun | StagedTable) -> tuple[Verdict, ...]:
    """Return the verdicts over exactly these staged files."""
    found = _read(_storage(staged), _VERDICTS)
    if found is None or found["judged"] != _judged(staged):
        raise GateError(
            "the staged rows were not judged, so nothing is published", "run the gates on the staged asset first"
        )
    with seam("reading what the step before left", InputError, _AGAIN):
        return tuple(Verdict.from_dict(facts) for facts in found["verdicts"])


def clear(staged: StagedRun | StagedTable) -> None:
    """Remove the stored run and verdicts after the publication."""
    _storage(staged).delete(_RUN, _VERDICTS)


def _stamp(policy: Policy) -> str:
    """Return a hash of a policy and of the content of its references."""
    if policy.synthetic is not None:
        configurations = [policy.statistic.cfg()]
    else:
        columns = policy.column_policies()
        configurations = [item.mechanism.cfg() for item in columns] + [item.chain for item in columns if item.chain]
    return hashlib.sha256("\0".join([written(policy), *configurations]).encode()).hexdigest()


def _judged(staged: StagedRun | StagedTable) -> list[str]:
    if isinstance(staged, StagedTable):
        return [staged.drawn.digest]
    return [shard.sha256 for shard in staged.shards]


def _storage(staged: StagedRun | StagedTable) -> Storage:
    return (staged.attempt if isinstance(staged, StagedTable) else staged).layout.staging


def _write(storage: Storage, name: str, facts: dict[str, Any]) -> None:
    storage.write(name, json.dumps(facts).encode(), action="storing facts for the next step")


def _read(storage: Storage, name: str) -> dict[str, Any] | None:
    with seam("reading what the step before left", InputError, _AGAIN):
        facts: dict[str, Any] | None = json.loads(storage.read(name) or b"null")
        return facts


def written(model: BaseModel) -> str:
    """Write a model as JSON; sets are sorted, because their order differs between processes."""
    return json.dumps(model.model_dump(), sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)
