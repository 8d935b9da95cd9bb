"""Share what steps in Dagster need: failures in our own words, progress, and files from one step to the next.

Dagster keeps the text of an exception, its causes, its context and its stack (source lines, no values) in the event
store for ever. The message of a library may quote a cell, so it must not leave a step. The files (a staged run and its
verdicts, as JSON) are next to the staged rows, in a folder that only its owner can read.
"""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING, Any, Self

import dagster as dg
from pydantic import BaseModel

from dptext_etl import keys
from dptext_etl.checks import Verdict
from dptext_etl.errors import DPTextError, GateError, InputError, PolicyError, seam
from dptext_etl.policy import Policy
from dptext_etl.runner import StagedRun
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener, Progress, throttled
from dptext_etl.runner.seals import opened, sealed, staging_key
from dptext_etl.runner.staged import from_json, to_json
from dptext_etl.storage import Storage

if TYPE_CHECKING:
    from types import TracebackType

UNKNOWN = "an error that dptext_etl did not foresee; its message is not shown, because it may quote a row"


class as_failure:  # noqa: N801  (reads as a statement: `with as_failure("staging"):`)
    """Turn every exception that leaves the block into a `dagster.Failure` with our words and without its causes.

    The failure forbids retries where a policy, a table, a cap or a gate refuses: they refuse again for the same reason,
    and a fired gate has revoked the release. What broke down (`DPTextError.transient`: a store, the lease of a run that
    was killed, a full disk, a machine) may be tried again where the code location asks for it: the next attempt goes on
    from what is committed.
    """

    def __init__(self, action: str, partition: str | None = None) -> None:
        self._action, self._partition = action, partition

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None or not issubclass(kind, Exception) or issubclass(kind, dg.Failure):
            return
        failure = _failure(self._action, exc, self._partition)
        try:
            raise failure
        except dg.Failure:
            failure.__context__ = failure.__cause__ = None
            raise


def _failure(action: str, exc: BaseException | None, partition: str | None) -> dg.Failure:
    if isinstance(exc, DPTextError):
        sentence, code = str(exc), exc.exit_code
    else:
        sentence, code = f"{action} failed ({type(exc).__name__}): {UNKNOWN}", DPTextError.exit_code
    if partition is not None:
        sentence = f"partition {partition}: {sentence}"
    again = getattr(exc, "transient", True)
    return dg.Failure(sentence, metadata={"exit_code": code, "error": type(exc).__name__}, allow_retries=again)


def progress_logger(log: logging.Logger, partition: str | None) -> Listener:
    """Return a listener that logs a line now and then, and one at the end of every phase."""
    where = f"{partition}: " if partition else ""

    def write(progress: Progress) -> None:
        took = f" in {progress.seconds:.1f} s" if progress.ended else ""
        log.info(f"{where}{progress.phase}: {progress}{took}")

    return throttled(write)


_RUN = "run.handover"
_VERDICTS = "verdicts.handover"
_AGAIN = "materialize the staged asset again"
NOTHING_STAGED = ("nothing is staged that could be checked or published", "materialize the staged asset first")


def save_run(staged: StagedRun) -> None:
    """Store a staged run for the gates; verdicts over an earlier one no longer count."""
    staged.layout.staging.delete(_VERDICTS)
    _write(staged.policy, staged.layout.staging, _RUN, {"policy": _hash(staged.policy), "run": to_json(staged)})


def save_empty(policy: Policy, partition: str | None) -> None:
    """Note that a partition has no rows: then nothing of it is judged or published."""
    storage = Layout.of(policy, partition).staging
    storage.delete(_VERDICTS)
    _write(policy, storage, _RUN, {"policy": _hash(policy), "run": None})


def is_empty(policy: Policy, partition: str | None) -> bool:
    """Return whether the last staging of a partition found no rows."""
    found = _read(policy, Layout.of(policy, partition).staging, _RUN)
    return found is not None and found["run"] is None


def is_staged(policy: Policy, partition: str | None) -> bool:
    return bool(Layout.of(policy, partition).staging.glob(_RUN))


def load_run(policy: Policy, partition: str | None) -> StagedRun:
    found = _read(policy, Layout.of(policy, partition).staging, _RUN)
    if found is None:
        raise InputError(*NOTHING_STAGED)
    if found["policy"] != _hash(policy):
        raise PolicyError("the policy changed since its rows were staged", _AGAIN)
    with seam("reading what the step before left", InputError, _AGAIN):
        return from_json(found["run"], policy)


def save_verdicts(staged: StagedRun, verdicts: tuple[Verdict, ...]) -> None:
    """Store the verdicts over a staged run for its publication; they count only for exactly these files."""
    facts = {"judged": _digests(staged), "verdicts": [verdict.as_dict() for verdict in verdicts]}
    _write(staged.policy, staged.layout.staging, _VERDICTS, facts)


def load_verdicts(staged: StagedRun) -> tuple[Verdict, ...]:
    found = _read(staged.policy, staged.layout.staging, _VERDICTS)
    if found is None or found["judged"] != _digests(staged):
        raise GateError(
            "the staged rows were not judged, so nothing is published", "run the gates on the staged asset first"
        )
    with seam("reading what the step before left", InputError, _AGAIN):
        return tuple(Verdict.from_dict(facts) for facts in found["verdicts"])


def remove_files(staged: StagedRun) -> None:
    staged.layout.staging.delete(_RUN, _VERDICTS)


def _hash(policy: Policy) -> str:
    columns = policy.charged_columns()
    configurations = [item.mechanism.cfg() for item in columns] + [item.chain for item in columns if item.chain]
    return hashlib.sha256("\0".join([as_json(policy), *configurations]).encode()).hexdigest()


def _digests(staged: StagedRun) -> list[str]:
    return [digest for shard in staged.shards for digest in (shard.sha256, str(shard.post.get("sha256", "")))]


def _write(policy: Policy, storage: Storage, name: str, facts: dict[str, Any]) -> None:
    storage.write(name, sealed(_key(policy, storage), name, facts), action="storing facts for the next step")


def _read(policy: Policy, storage: Storage, name: str) -> dict[str, Any] | None:
    content = storage.read(name)
    facts = opened(_key(policy, storage), name, content)
    if content is not None and facts is None:
        msg = f"the staged file {name} has changed since the step before wrote it, or the noise key has"
        raise InputError(msg, _AGAIN)
    return facts


def _key(policy: Policy, storage: Storage) -> bytes:
    return staging_key(keys.resolve(policy.key), policy.dataset, storage)


def as_json(model: BaseModel) -> str:
    """Write a model as JSON; sets are sorted, because their order differs between processes."""

    def plain(value: Any) -> Any:
        return sorted(value) if isinstance(value, (set, frozenset)) else str(value)

    return json.dumps(model.model_dump(), sort_keys=True, default=plain)
