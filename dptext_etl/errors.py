"""What can go wrong, said once: a sentence, what is allowed, a hint; never an input value.

Every error carries the exit code of the command line, so that the same failure means the same thing everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Self

if TYPE_CHECKING:
    from types import TracebackType


class DPTextError(Exception):
    """Base of all errors that dptext_etl raises on purpose.

    Args:
        message: What was wrong, what was got, what is allowed. Never a cell, a token or a secret.
        hint: What to do next.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\nHint: {hint}")
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type[DPTextError], tuple[str, str | None]]:
        return type(self), (self.message, self.hint)


class PolicyError(DPTextError):
    """A policy, a parameter or a command that cannot be carried out as written."""

    exit_code = 2


class DisclosureError(PolicyError):
    """A mechanism discloses something that the policy does not allow."""


class KeyReferenceError(PolicyError):
    """A key reference that cannot be resolved, or a key that must not be used."""


class ArtifactError(PolicyError):
    """A public input that is missing, malformed or not the one that was hashed."""


class InputError(PolicyError):
    """A table that cannot be read or privatised as it is."""


class LedgerError(PolicyError):
    """A ledger that is locked, newer, frozen, or that contradicts what is asked of it."""


class BudgetError(DPTextError):
    """A cap that would be exceeded."""

    exit_code = 3


class GateError(DPTextError):
    """A gate that stopped a publication."""

    exit_code = 4


class seam:  # noqa: N801  (reads as a statement: `with seam("reading the source"):`)
    """Keep what a library says inside: its errors may quote cells.

    An exception that is not ours leaves the block as `error`, naming the action and the exception's type only;
    cause and context are dropped with the frames that hold them.

    Args:
        action: What was being done, as a gerund: "reading the source".
        error: The class to raise.
        hint: The hint to add.
    """

    def __init__(self, action: str, error: type[DPTextError] = InputError, hint: str | None = None) -> None:
        self._action = action
        self._error = error
        self._hint = hint

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None or issubclass(kind, (DPTextError, KeyboardInterrupt, SystemExit, GeneratorExit)):
            return
        self.leave(self._error(f"{self._action} failed ({kind.__name__})", self._hint))

    def leave(self, failure: DPTextError) -> NoReturn:
        """Raise `failure` without what led to it."""
        try:
            raise failure
        except DPTextError:
            failure.__context__ = failure.__cause__ = None
            raise
