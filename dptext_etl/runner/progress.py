"""Report how far a run is: finished steps, counts, rate, and the time that is left; never texts or ids."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

log = logging.getLogger("dptext_etl.runner")

PHASES: Final = {"ids": 1, "reserve": 8, "release": 60, "gates": 25, "publish": 9}
"""The phases of a run in their order, and what a row costs in each of them, measured with a table mechanism (relative).

A model's release costs more; then what comes after it is small in comparison, in any unit.
"""
LOG_SECONDS = 30.0
"""Seconds between two lines in a log."""
Checkpoint = Callable[[str], None]
"""Called with the name of every finished step; tests stop the process there."""


def nothing(_: str) -> None:
    """Do nothing: the checkpoint of real runs."""


@dataclass(frozen=True)
class Progress:
    """One report of a run under way.

    Attributes:
        phase: One of `PHASES`, or "plan".
        rows_done: Rows that the phase has finished.
        rows_total: Rows of the whole phase; None while unknown.
        seconds: Seconds since the phase began.
        eta: Seconds that are left of the phase at the same rate; None while unknown.
        share: Share of the whole run that is done, from 0 to 1; of the phase, where there is no whole run. It is a
            share of time, and never falls.
        left: Seconds that are left of the whole run, estimated; None before its first rows are released.
    """

    phase: str
    rows_done: int
    rows_total: int | None
    seconds: float
    eta: float | None
    share: float = 0.0
    left: float | None = None

    @property
    def rows_per_second(self) -> float:
        """The rate of this phase; 0 at its start."""
        return self.rows_done / self.seconds if self.seconds > 0 else 0.0

    @property
    def ended(self) -> bool:
        """Whether the phase is over."""
        return self.rows_total is not None and self.rows_done >= self.rows_total

    def __str__(self) -> str:
        """Return a phrase for people, such as: 12,000 of 20,000 rows, 3,400 per second, 2 s left."""
        total = "" if self.rows_total is None else f" of {self.rows_total:,}"
        left = self.eta if self.left is None else self.left
        remaining = "" if left is None else f", {left:,.0f} s left"
        return f"{self.rows_done:,}{total} rows, {self.rows_per_second:,.0f} per second{remaining}"


Listener = Callable[[Progress], None]


class Meter:
    """Turns the counts of one phase into reports."""

    def __init__(self, phase: str, total: int | None, listener: Listener | None) -> None:
        self._phase = phase
        self._total = total
        self._listeners = [
            throttled(lambda report: log.info("%s: %s", report.phase, report)),
            *([] if listener is None else [listener]),
        ]
        self._began = time.monotonic()
        self._done = 0
        self._report()

    def add(self, rows: int) -> None:
        """Count finished rows and report."""
        self._done += rows
        self._report()

    def end(self) -> None:
        """Report that the phase is over, where its rows were not known before."""
        self._total = self._done
        self._report()

    def _report(self) -> None:
        seconds = time.monotonic() - self._began
        left, share = None, 0.0
        if self._total and self._done:
            left = max(0.0, (self._total - self._done) * seconds / self._done)
            share = min(1.0, self._done / self._total)
        report = Progress(self._phase, self._done, self._total, seconds, left, share)
        for listener in self._listeners:
            listener(report)


class WholeRun:
    """Adds to the reports of single phases what share of the whole run is done, and how long it will go on.

    What is left of a phase follows from its own rate. A phase to come is taken to cost what `PHASES` says, in the unit
    of the cheapest phase so far: a model makes the release slow, not what comes after it.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._began = time.monotonic()
        self._units: dict[str, float] = {}
        self._rows = 0
        self._share = 0.0

    def __call__(self, report: Progress) -> None:
        """Take the report of a phase."""
        if report.phase not in PHASES:
            self._listener(report)
            return
        if report.rows_done and report.seconds > 0:
            self._units[report.phase] = report.seconds / report.rows_done / PHASES[report.phase]
        self._rows = report.rows_total or self._rows
        names = list(PHASES)
        later = [name for name in names[names.index(report.phase) + 1 :] if name != "reserve"]
        left = None
        if report.eta is not None and "release" not in later:
            unit = min(self._units.values())
            left = report.eta + sum(PHASES[name] * unit * self._rows for name in later)
            spent = time.monotonic() - self._began
            self._share = max(self._share, spent / (spent + left) if spent + left else 0.0)
        self._listener(replace(report, share=self._share, left=left))


def throttled(listener: Listener, seconds: float = LOG_SECONDS) -> Listener:
    """Return a listener that passes on the end of a phase, and of other reports one in so many seconds."""
    last = time.monotonic()

    def listen(report: Progress) -> None:
        nonlocal last
        if report.ended or time.monotonic() - last >= seconds:
            last = time.monotonic()
            listener(report)

    return listen
