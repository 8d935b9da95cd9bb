"""Report how far a run is: counts, rate and the time that is left; never texts or ids."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger("dptext_etl.runner")


@dataclass(frozen=True)
class Progress:
    """One report of a run under way.

    Attributes:
        phase: "ids", "reserve", "release", "publish" or "plan".
        rows_done: Rows that the phase has finished.
        rows_total: Rows of the whole phase; None while unknown.
        seconds: Seconds since the phase began.
        eta: Seconds that are left at the same rate; None while unknown.
    """

    phase: str
    rows_done: int
    rows_total: int | None
    seconds: float
    eta: float | None

    @property
    def rows_per_second(self) -> float:
        """The rate of this phase; 0 at its start."""
        return self.rows_done / self.seconds if self.seconds > 0 else 0.0


Listener = Callable[[Progress], None]


class Meter:
    """Turn the counts of one phase into reports.

    Args:
        phase: Name of the phase.
        total: Rows of the whole phase, if known.
        listener: Called at the start and after every step; None to log only.
    """

    def __init__(self, phase: str, total: int | None, listener: Listener | None) -> None:
        self._phase = phase
        self._total = total
        self._listener = listener
        self._began = time.monotonic()
        self._done = 0
        self._report()

    def add(self, rows: int) -> None:
        """Count finished rows and report."""
        self._done += rows
        self._report()

    def _report(self) -> None:
        seconds = time.monotonic() - self._began
        left = None
        if self._total is not None and self._done:
            left = max(0.0, (self._total - self._done) * seconds / self._done)
        report = Progress(self._phase, self._done, self._total, seconds, left)
        log.debug(
            "%s: %d of %s rows", report.phase, report.rows_done, "?" if report.rows_total is None else report.rows_total
        )
        if self._listener is not None:
            self._listener(report)
