"""Print failures without quoting data: our own errors print their sentences, all others only their type.

The text of a library's error, the arguments of an exception and the locals of a frame may hold raw text or a key; none
of them is ever printed. Panics of compiled code are `BaseException`s, so these are caught as well.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from io import TextIOWrapper
from types import TracebackType
from typing import Any

import typer
from typer.core import TyperGroup

from dptext_etl import errors
from dptext_etl.cli import terminal
from dptext_etl.errors import DISK_HINT, INTERRUPTED, UNEXPECTED, DiskError, DPTextError, UsageError, is_full

_USAGE_ERROR: Any = typer.BadParameter.__base__  # Typer exports no name of this class
_HANDLED_BY_TYPER = (_USAGE_ERROR, typer.Exit, SystemExit, BrokenPipeError)
FULL = "no space is left on the disk"
STOPPED = "stopped before its end; the same call continues from there"
WHERE = "DPTEXT_TRACEBACK"
"""Environment variable: print file, line and function of every frame of an unexpected failure (no values, no texts)."""


class Boundary(TyperGroup):
    """Group all commands, and turn every exception into a sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        call = terminal.call(new=True)
        as_json = "--json" in ctx.args  # stdout then holds one object: from the command, or for its failure
        try:
            return super().invoke(ctx)
        except _HANDLED_BY_TYPER as error:
            if as_json and isinstance(error, _USAGE_ERROR):
                usage = UsageError(error.format_message(), "--help lists the options of the command")
                terminal.emit({"error": described(usage)})
            raise
        except BaseException as error:  # noqa: BLE001  (panics of compiled code are BaseExceptions)
            code = report(error)
            if as_json and not call.get(terminal.EMITTED):
                terminal.emit({"error": described(error)})
        raise typer.Exit(code)


def described(error: BaseException) -> dict[str, Any]:
    """Return a failure as JSON holds it: code, exit code, message, hint (null if there is none), and fields."""
    if isinstance(error, DPTextError):
        return errors.described(error)
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        facts = {"code": "interrupted", "exit_code": INTERRUPTED, "message": STOPPED}
    elif is_full(error):
        return errors.described(DiskError(FULL, DISK_HINT))
    else:
        facts = {"code": DPTextError.code, "exit_code": UNEXPECTED, "message": f"unexpected {_kind(error)}"}
    return {**facts, "hint": None, "fields": {}}


def report(error: BaseException) -> int:
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        note("Stopped.", logging.ERROR)
        return INTERRUPTED
    if is_full(error) and not isinstance(error, DPTextError):
        error = DiskError(FULL, DISK_HINT)
    if isinstance(error, DPTextError):
        note(f"Error: {error}", logging.ERROR)
        for line in error.fields.get("also", ()):
            note(f"Also: {line}", logging.ERROR)
        return error.exit_code
    note(f"Error: unexpected {_kind(error)}; its text is not shown because it could quote your data.", logging.ERROR)
    if os.environ.get(WHERE):
        for frame in traceback.extract_tb(error.__traceback__):
            note(f"  {frame.filename}:{frame.lineno} in {frame.name}", logging.ERROR)
    else:
        note(f"Hint: {WHERE}=1 shows where it happened, without values.", logging.ERROR)
    return UNEXPECTED


def install() -> None:
    """Keep texts out of messages outside commands, too: of threads, finalizers, warnings, and logs of libraries."""
    sys.excepthook = _hook
    threading.excepthook = lambda failed: _hook(failed.exc_type, failed.exc_value, failed.exc_traceback)
    sys.unraisablehook = lambda failed: _hook(failed.exc_type, failed.exc_value, failed.exc_traceback)
    warnings.showwarning = lambda *_: None
    logging.getLogger().addHandler(logging.NullHandler())
    _HANDLER.setLevel(logging.WARNING)
    logging.getLogger("dptext_etl").addHandler(_HANDLER)


class Output(TextIOWrapper):
    """Standard output or errors: once no one reads it, lines are dropped, and the command ends as it would have."""

    def __init__(self, stream: TextIOWrapper) -> None:
        how = {name: getattr(stream, name) for name in ("encoding", "errors", "line_buffering", "write_through")}
        super().__init__(stream.buffer, **how)
        self._stream = stream  # without a reference it would close the buffer

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            self._drop()
        return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        """Send all further lines, and those that wait in the buffer, to the null device."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)


def outlive_readers() -> None:
    """Let a command end with its own exit code where the reader of a pipe has ended, as in `dptext run … | head`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, TextIOWrapper):
            setattr(sys, name, Output(stream))
    _HANDLER.setStream(sys.stderr)


_HANDLER = logging.StreamHandler()
"""Writes the log of this package, and of no library, on stderr."""


def note(line: str, level: int = logging.INFO) -> None:
    """Print a line for people on stderr; a log in JSON gets it as one of its lines."""
    if isinstance(_HANDLER.formatter, _JsonLines):
        logging.getLogger("dptext_etl.cli").log(level, line)
    else:
        typer.echo(line, err=True)


def log_run(level: str | None, form: str, about: Mapping[str, str | None]) -> None:
    """Log on stderr from a level on; JSON lines also say `about`: dataset, release, partition.

    Without a level, warnings are logged, and without a terminal also the progress of a phase, every 30 seconds.
    """
    quiet = level is None and not sys.stderr.isatty()
    level = level or ("info" if quiet else "warning")
    logging.getLogger("dptext_etl").setLevel(level.upper())
    _HANDLER.setLevel(level.upper())

    def serious_or_slow(record: logging.LogRecord) -> bool:
        if (report := getattr(record, "progress", None)) is None:
            return record.levelno >= logging.WARNING
        from dptext_etl.runner.progress import LOG_SECONDS

        return bool(report.seconds >= LOG_SECONDS)

    _HANDLER.filters[:] = [serious_or_slow] if quiet else []
    _HANDLER.setFormatter(_JsonLines(about) if form == "json" else None)


class _JsonLines(logging.Formatter):
    def __init__(self, about: Mapping[str, str | None]) -> None:
        super().__init__()
        self._about = about

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower(), "message": record.getMessage(), **self._about}
        report = getattr(record, "progress", None)
        if report is not None:
            line |= {"phase": report.phase, "rows": report.rows_done, "rows_total": report.rows_total}
        return json.dumps(line)


def _hook(kind: type[BaseException], error: BaseException | None, _: TracebackType | None) -> None:
    if not issubclass(kind, SystemExit):
        report(kind() if error is None else error)


def _kind(error: BaseException) -> str:
    name = type(error).__name__
    return f"{name} ({os.strerror(error.errno)})" if isinstance(error, OSError) and error.errno else name
