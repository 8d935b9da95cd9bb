"""Define the errors of dptext_etl, whose messages never contain an input value.

A message states the problem and the allowed values, and ends with a hint. Every error has an exit code of the command
line, so that the same failure means the same thing everywhere.
"""

from __future__ import annotations

import difflib
import errno
import re
import traceback
from functools import wraps
from inspect import isgeneratorfunction
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Self, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

P = ParamSpec("P")
R = TypeVar("R")

UNEXPECTED, USAGE, BUDGET, GATE, POLICY, UNAVAILABLE, DISK, UNCHANGED, INTERRUPTED = 1, 2, 3, 4, 5, 6, 7, 8, 130
EXIT_CODES = {
    0: "fine",
    UNEXPECTED: "unexpected: anything else; without a text of the failure, which could quote data",
    USAGE: "usage: an unknown option, or options that do not fit together",
    BUDGET: "budget: a cap does not allow it",
    GATE: "gate: a check of staged rows, of published rows, or of a plan failed",
    POLICY: "policy: the policy, a key, an input or the ledger does not allow it",
    UNAVAILABLE: "busy: a ledger, store, catalog, or token is unavailable, or another run works there; repeat the call",
    DISK: "disk: no space is left; free some, and repeat the call",
    UNCHANGED: "unchanged: `dptext forget` removed no row, or an id is unknown here",
    INTERRUPTED: "interrupted: stopped from the keyboard or by SIGTERM; repeat the call",
}
"""The exit codes of the command line: a name and a meaning each."""
EXIT_NAMES = ", ".join(f"{code} {meaning.partition(':')[0]}" for code, meaning in EXIT_CODES.items())
"""The exit codes in one line."""
TRANSIENT = frozenset({UNEXPECTED, UNAVAILABLE, DISK})
"""Exit codes of failures that may be gone when the same call is repeated; all others refuse again."""
DISK_HINT = "free some space and repeat the call: it continues, and charges are kept"


class DPTextError(Exception):
    """Base of all errors that dptext_etl raises on purpose.

    A subclass names its code and exit code as arguments of the class; without them it inherits both.

    Args:
        message: States the problem and the allowed values. It never quotes a cell, a token, or a secret.
        hint: Says what to do next.
        fields: The figures and names of the message for programs, such as `{"rows": 24, "column": "user_id"}`. It holds
            nothing that the message could not hold.

    Attributes:
        code: Names the kind of failure in the JSON object of a command that fails under `--json`.
        exit_code: Exit code of the command line.
        transient: Whether a retry can help; it follows from the exit code. Dagster and Spark try such steps again.
    """

    code = "unexpected"
    exit_code = UNEXPECTED
    transient = True

    def __init_subclass__(cls, code: str | None = None, exit_code: int | None = None) -> None:
        super().__init_subclass__()
        cls.code = code or cls.code
        cls.exit_code = exit_code or cls.exit_code
        cls.transient = cls.exit_code in TRANSIENT

    def __init__(self, message: str, hint: str | None = None, fields: Mapping[str, Any] | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\nHint: {hint}")
        self.message, self.hint = message, hint
        self.fields = dict(fields or {})

    def __reduce__(self) -> tuple[type[DPTextError], tuple[str, str | None, dict[str, Any]]]:
        return type(self), (self.message, self.hint, self.fields)


def collect(problems: list[DPTextError] | None, step: Callable[[], R]) -> R | None:
    """Carry out a step; with a list, collect its refusal instead of stopping there, and return None."""
    try:
        return step()
    except DPTextError as error:
        if problems is None:
            raise
        if error.message not in {item.message for item in problems}:
            problems.append(error)
        return None


def together(problems: Sequence[DPTextError]) -> DPTextError:
    """Return the first of several problems; its field `also` lists the messages of the others."""
    first, *_ = problems
    lines = [line for item in problems for line in (item.message, *item.fields.pop("also", ()))]
    if len(lines) > 1:
        first.fields["also"] = [*dict.fromkeys(lines)][1:]
    return first


def described(error: DPTextError) -> dict[str, Any]:
    """Return a failure as JSON holds it: code, exit code, message, hint (null if there is none), and fields."""
    return {name: getattr(error, name) for name in ("code", "exit_code", "message", "hint", "fields")}


class PolicyError(DPTextError, code="policy", exit_code=POLICY):
    """A policy, a parameter or a command cannot be carried out as written."""


class UsageError(PolicyError, code="usage", exit_code=USAGE):
    """A command was given options that do not fit together, or an option that cannot be read."""


class DisclosureError(PolicyError, code="disclosure"):
    """A mechanism discloses something that the policy does not allow."""


class KeyReferenceError(PolicyError, code="key"):
    """A key reference cannot be resolved, or its key must not be used."""


class ArtifactError(PolicyError, code="artifact"):
    """A public input is missing or malformed, or has another hash than expected."""


class InputError(PolicyError, code="input"):
    """A table cannot be read, or cannot be privatized as it is."""


class UnknownIdError(InputError, code="unknown", exit_code=UNCHANGED):
    """A person or record that is unknown here; nothing was changed."""


class DiskError(InputError, code="disk", exit_code=DISK):
    """A disk has no space left."""


class UnavailableError(InputError, code="unavailable", exit_code=UNAVAILABLE):
    """A store, a catalog, or a source of tokens cannot be reached now, or answers that it cannot serve."""


class BusyError(PolicyError, code="busy", exit_code=UNAVAILABLE):
    """Another process works there: nothing was written, and the same call can be repeated."""


class LedgerError(PolicyError, code="ledger"):
    """A ledger is locked, frozen or of a newer version, or its records do not allow the request."""


class UnavailableLedgerError(LedgerError, UnavailableError, code="unavailable", exit_code=UNAVAILABLE):
    """A ledger that cannot be used now: nothing was written, and the same call can be repeated."""


class LockedLedgerError(UnavailableLedgerError, BusyError, code="busy"):
    """A ledger in which another writer is busy."""


class FullLedgerError(LedgerError, DiskError, code="disk", exit_code=DISK):
    """A ledger whose disk has no space left."""


class FrozenLedgerError(LedgerError, code="frozen"):
    """A dataset or group that is frozen, because its ledger was lost or restored."""


class BudgetError(DPTextError, code="budget", exit_code=BUDGET):
    """A release would exceed a cap."""


class GateError(DPTextError, code="gate", exit_code=GATE):
    """A gate stopped a publication."""


def refusal_of(failure: Mapping[str, Any]) -> DPTextError:
    """Return the failure that `described` wrote, to be raised again."""
    waiting = [DPTextError]
    for kind in waiting:  # it grows while it is walked
        if (kind.code, kind.exit_code) == (failure["code"], failure["exit_code"]):
            return kind(failure["message"], failure["hint"], failure["fields"])
        waiting += kind.__subclasses__()
    return DPTextError(failure["message"], failure["hint"], failure["fields"])


class seam:  # noqa: N801  (reads as a statement: `with seam("reading the source"):`)
    """Replace exceptions of libraries, which may quote cells, by our own errors.

    An exception that is not ours leaves the block as `error`, which names only the action (a gerund, such as "reading
    the source") and the type of the exception. Its cause, context and frames are dropped.
    """

    def __init__(self, action: str, error: type[DPTextError] = InputError, hint: str | None = None) -> None:
        self._action, self._error, self._hint = action, error, hint

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None or issubclass(kind, (DPTextError, KeyboardInterrupt, SystemExit, GeneratorExit)):
            return
        if is_full(exc):
            self.leave(DiskError(f"{self._action} failed: no space is left on the disk", DISK_HINT))
        if (why := unavailable(exc)) is not None:
            self.leave(UnavailableError(f"{self._action} failed: {why[0]}", why[1]))
        self.leave(self._error(f"{self._action} failed ({kind.__name__})", self._hint, {"exception": kind.__name__}))

    def leave(self, failure: DPTextError) -> NoReturn:
        """Raise `failure` without cause and context."""
        try:
            raise failure
        except DPTextError:
            failure.__context__ = failure.__cause__ = None
            raise


class without_panics(seam):  # noqa: N801
    """Raise an error in place of a panic of compiled code, which is not an `Exception` and may quote a text."""

    def __init__(self) -> None:
        super().__init__("calling compiled code", DPTextError)

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None and kind.__module__ == "pyo3_runtime":
            super().__exit__(kind, exc, tb)


def is_full(error: BaseException | None) -> bool:
    """Return whether an error of the system or of a library means that a disk has no space left."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in {errno.ENOSPC, errno.EDQUOT}
    messages = ("No space left on device", "os error 28", "Disk quota exceeded")
    return isinstance(error, Exception) and any(message in str(error) for message in messages)


def file_failure(error: OSError, problem: str, hint: str, kind: type[DPTextError] = InputError) -> DPTextError:
    """Return an error of the system about a file as an error of this library; a full disk has its kind and hint."""
    if is_full(error):
        kind, hint = FullLedgerError if issubclass(kind, LedgerError) else DiskError, DISK_HINT
    return kind(f"{problem} ({error.strerror or type(error).__name__})", hint)


_AWAY_TYPES = frozenset(
    {"ConnectionError", "TimeoutError", "Timeout", "ServiceUnavailableError", "ServerError", "TooManyRequestsError"}
)
"""Names of the exceptions that mean so in the standard library, requests, and pyiceberg."""
_AWAY = re.compile(
    r"Error performing .*(?:HTTP error(?!: builder)|status code.{0,40}\b(?:408|429|5\d\d) [A-Z])", re.DOTALL
)
"""The words for it in object_store, the library under obstore, Polars, and delta-rs."""
_EXPIRED = re.compile(r"<Code>(ExpiredToken|ExpiredTokenException|RequestExpired|TokenRefreshRequired)</Code>")
_SYSTEM = ("builtins", "socket", "ssl")
_STORES = ("obstore", "deltalake", "_internal", "pyiceberg", "requests")


def unavailable(error: BaseException | None) -> tuple[str, str] | None:
    """Return why a store, a catalog, or a source of tokens cannot be used now, with a hint, in our words; or None.

    Only errors of the system and of libraries of stores are looked at: the words of others may come from a cell.
    """
    home = type(error).__module__  # Great Expectations' error for a missing table is an OSError, too
    if not (home.startswith(_STORES) or (isinstance(error, OSError) and home in _SYSTEM)):
        return None
    names, text = {kind.__name__ for kind in type(error).__mro__}, str(error)
    expired = _EXPIRED.search(text)
    if expired is not None or "AuthorizationExpiredError" in names:
        code = "AuthorizationExpired" if expired is None else expired[1]
        hint = "renew the credentials and repeat the call: it continues, and charges are kept"
        return f"the store answers {code}", hint
    if names.isdisjoint(_AWAY_TYPES) and not _AWAY.search(text):
        return None
    hint = "repeat the call later: it continues from there"
    return f"it cannot be reached now, or cannot serve ({type(error).__name__})", hint


def counted(count: int, singular: str, several: str | None = None) -> str:
    """Write a count with its noun, in the singular for 1; without `several`, an "s" is added.

    >>> counted(1, "record"), counted(24, "row has", "rows have")
    ('1 record', '24 rows have')
    """
    return f"{count:,} {singular if count == 1 else several or f'{singular}s'}"


MOST_NAMES = 30  # names of columns that a hint lists, at most


def suggestion(name: str, among: Iterable[str], *, most: int = 1) -> str:
    """Ask whether one of the names that are closest to a wrong one is meant; empty if none is close.

    >>> suggestion("surogate", ["custext", "surrogate"])
    "did you mean 'surrogate'?"
    """
    close = difflib.get_close_matches(name, list(among), most)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""


_IDENTIFIER = re.compile(r"[^\W\d]\w{0,39}")
_AGAIN = re.compile(r"_duplicated_\d+$")  # what Polars appends to a name that a CSV file has twice


def unlike_names(names: Iterable[str]) -> str | None:
    """Say why the names of columns may be the cells of a first row; None if nothing about their form says so.

    >>> unlike_names(["id", "review"]), unlike_names(["id", "ID"])
    (None, 'two of them are equal')
    """
    names = list(names)
    if len({_AGAIN.sub("", name.casefold()) for name in names}) < len(names):
        return "two of them are equal"
    if not all(map(_IDENTIFIER.fullmatch, names)):
        return "not all begin with a letter and hold at most 40 letters, digits, and _"
    return None


def by_place(names: Iterable[str], among: Iterable[str], *, shown: bool = False) -> str:
    """Write columns for a message by their places, because names that no policy declares may be texts.

    `shown` says that they are none: `why_hidden` of the tables found nothing.

    >>> by_place(["a", "c"], ["a", "b", "c"])
    'column 1, column 3'
    """
    chosen = set(names)
    places = [(place, name) for place, name in enumerate(among, start=1) if name in chosen]
    return ", ".join(name if shown else f"column {place}" for place, name in places)


def meant(wrong: Iterable[str], among: Sequence[str], hidden: str | None) -> str:
    """Return a hint about names that are not columns: those that may be meant, or why it names none."""
    if hidden is not None:
        return f"The names of the columns are not shown: {hidden}, so they may be values."
    close = " ".join(filter(None, (suggestion(name, among) for name in wrong)))
    return close[:1].upper() + close[1:] or f"The columns: {', '.join(among[:MOST_NAMES])}."


def bare(function: Callable[P, R]) -> Callable[P, R]:
    """Let errors leave a function without the local variables of the frames that they came through.

    Tools that record failures (error trackers, debuggers' reports, rich tracebacks) print locals, and ours hold raw
    rows while they work. The frames keep their files, lines and names.

    Example:
        >>> @bare
        ... def read(rows):
        ...     return rows["missing"]
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            del args, kwargs
            clear_frames(error)
            raise

    @wraps(function)
    def flow(*args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
        try:
            yield from cast("Iterator[Any]", function(*args, **kwargs))
        except BaseException as error:
            del args, kwargs
            clear_frames(error)
            raise

    return cast("Callable[P, R]", flow) if isgeneratorfunction(function) else call


def clear_frames(error: BaseException) -> None:
    """Clear the frames of an error, and of all errors that led to it."""
    cleared: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        cause = waiting.pop()
        if cause is None or id(cause) in cleared:
            continue
        cleared.add(id(cause))
        traceback.clear_frames(cause.__traceback__)
        waiting += [cause.__cause__, cause.__context__]
        if isinstance(cause, BaseExceptionGroup):
            waiting += cause.exceptions
