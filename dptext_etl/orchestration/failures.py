"""Turn exceptions of steps into failures that hold our own sentences, and log the progress of steps in Dagster.

Dagster keeps the text of an exception, its causes, its context and its stack (source lines, no values) in the event
store for ever. The message of a library may quote a cell, so it must not leave a step.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

import dagster as dg

from dptext_etl.errors import DPTextError, UnavailableLedgerError
from dptext_etl.runner.progress import Listener, Progress, throttled

if TYPE_CHECKING:
    from types import TracebackType


UNKNOWN = "an error that dptext_etl did not foresee; its message is not shown, because it may quote a row"


class as_failure:  # noqa: N801  (reads as a statement: `with as_failure("staging"):`)
    """Turn every exception that leaves the block into a `dagster.Failure` with our words and without its causes.

    The failure forbids retries where a policy, a table, a cap or a gate refuses: they refuse again for the same reason,
    and a fired gate has revoked the release. What broke down (a ledger that was busy, memory, a machine) may be tried
    again where the code location asks for it: the next attempt goes on from what is committed.
    """

    def __init__(self, action: str) -> None:
        self._action = action

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None or not issubclass(kind, Exception) or issubclass(kind, dg.Failure):
            return
        failure = _failure(self._action, exc)
        try:
            raise failure
        except dg.Failure:
            failure.__context__ = failure.__cause__ = None
            raise


def _failure(action: str, exc: BaseException | None) -> dg.Failure:
    if isinstance(exc, DPTextError):
        sentence, code = str(exc), exc.exit_code
    else:
        sentence, code = f"{action} failed ({type(exc).__name__}): {UNKNOWN}", DPTextError.exit_code
    passing = code == DPTextError.exit_code or isinstance(exc, UnavailableLedgerError)
    return dg.Failure(sentence, metadata={"exit_code": code, "error": type(exc).__name__}, allow_retries=passing)


def progress_logger(log: logging.Logger, partition: str | None) -> Listener:
    """Return a listener that logs a line now and then, and one at the end of every phase."""
    where = f"{partition}: " if partition else ""

    def tell(seen: Progress) -> None:
        took = f" in {seen.seconds:.1f} s" if seen.ended else ""
        log.info(f"{where}{seen.phase}: {seen}{took}")

    return throttled(tell)
