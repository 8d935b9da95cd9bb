"""What may be said in an event log: our sentences, never a library's.

Dagster keeps the text of an exception, its causes, its context and its stack (source lines, no values) in the event
store for ever. A library's sentence may quote a cell, so it must not reach a step's boundary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import dagster as dg

from dptext_etl.errors import DPTextError

if TYPE_CHECKING:
    from types import TracebackType

UNKNOWN = "an error that dptext_etl did not foresee; its text stays inside, because it may quote a row"


class told:  # noqa: N801  (reads as a statement: `with told("staging"):`)
    """Turn whatever leaves the block into a `dagster.Failure` that holds our words and no chain.

    Retries are refused: a policy, a cap or a gate fails again for the same reason, and a crash is resumed by a new run.

    Args:
        action: What was being done, as a gerund: "staging".
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
    return dg.Failure(sentence, metadata={"exit_code": code, "error": type(exc).__name__}, allow_retries=False)
