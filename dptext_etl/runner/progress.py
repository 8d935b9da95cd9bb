"""Report how far a run is, and the cost of its stages: steps, counts, times, and memory; never texts or ids."""

from __future__ import annotations

import logging
import resource
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

log = logging.getLogger("dptext_etl.runner")

PHASES: Final = {"ids": 1, "reserve": 8, "release": 60, "gates": 25, "publish": 9}
"""The phases of a run in order, and the relative cost of a row in each of them, measured with a table mechanism.

A model's release costs more; the phases after it are then small in comparison, in any unit.
"""
LOG_SECONDS = 30.0
"""Seconds between two lines in a log."""
_OTHER = "other"
"""The stage of the time between the stages."""
_KIB = 1 if sys.platform == "darwin" else 1024
Checkpoint = Callable[[str], None]
"""Called with the name of every finished step; tests stop the process there."""


def nothing(_: str) -> None:
    """Do nothing: the checkpoint of real runs."""


@dataclass(frozen=True)
class Progress:
    """One report of a run under way."""

    phase: str  # one of `PHASES`, or "plan"
    rows_done: int  # by this phase
    rows_total: int | None  # of the whole phase, if known
    seconds: float  # since the phase began
    eta: float | None  # seconds that are left of the phase at the same rate, if known
    share: float = 0.0  # of the time of the whole run (or of a single phase) that is over, from 0 to 1; never falls
    left: float | None = None  # estimated seconds that are left of the whole run; None before rows are released

    @property
    def rows_per_second(self) -> float:
        """The rate of this phase; 0 at its start."""
        return self.rows_done / self.seconds if self.seconds > 0 else 0.0

    @property
    def ended(self) -> bool:
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
        self._phase, self._total = phase, total
        logged = throttled(lambda report: log.info("%s: %s", report.phase, report, extra={"progress": report}))
        self._listeners = [logged] if listener is None else [logged, listener]
        self._began = time.monotonic()
        self._done = 0
        self.add(0)

    def add(self, rows: int, *, last: bool = False) -> None:
        """Report more rows; with the last ones, the phase is over, where its rows were not known before."""
        self._done += rows
        self._total = self._done if last else self._total
        seconds, total, done = time.monotonic() - self._began, self._total, self._done
        eta = max(0.0, (total - done) * seconds / done) if total and done else None
        share = min(1.0, done / total) if total else 0.0
        report = Progress(self._phase, done, total, seconds, eta, share)
        for listener in self._listeners:
            listener(report)


class WholeRun:
    """Adds to the reports of single phases the share of the whole run that is done, and the time that is left.

    The rest of a phase follows from its own rate. A later phase is estimated by `PHASES`, in the unit of the cheapest
    phase so far: a model slows the release, but not the phases after it.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._began = time.monotonic()
        self._units: dict[str, float] = {}
        self._rows = 0
        self._share = 0.0

    def __call__(self, report: Progress) -> None:
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
    """Return a listener that passes on the end of a phase, and other reports at most once in this many seconds."""
    last = time.monotonic()

    def listen(report: Progress) -> None:
        nonlocal last
        if report.ended or time.monotonic() - last >= seconds:
            last = time.monotonic()
            listener(report)

    return listen


@dataclass
class Cost:
    """The cost of one stage over all shards. Concurrent stages share time, so all stages add up to the run."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of this process
    rows: int = 0
    bytes: int = 0  # that it read or wrote
    peak_memory: int = 0  # the most bytes that the process had held when the stage last raised them, or began


class Profile:
    """Shares the time of a run among its stages, also if they run in several threads.

    Any thread may call its methods: `_lock` guards all counts, and only the stage of a thread is local to it.

    >>> profile = Profile()
    >>> with profile.stage("read"):
    ...     profile.count("read", rows=3, size=120)
    >>> [(cost["name"], cost["rows"]) for cost in profile.as_list()]
    [('read', 3), ('other', 0)]
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mine = threading.local()
        self._costs = defaultdict[str, Cost](Cost)
        self._active: list[str] = []
        self._seconds, self._cpu = time.monotonic(), time.process_time()
        self._peak = 0

    def __getstate__(self) -> dict[str, Cost]:
        """Hand over the counts: another process has other clocks."""
        with self._lock:
            self._settle()
            return dict(self._costs)

    def __setstate__(self, costs: dict[str, Cost]) -> None:
        self.__init__()  # type: ignore[misc]
        self._costs.update(costs)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the block for a stage. A stage inside another one of the same thread replaces it meanwhile."""
        outer: str | None = getattr(self._mine, "stage", None)
        self._switch(outer, name)
        try:
            yield
        finally:
            self._switch(name, outer)

    def count(self, name: str, *, rows: int = 0, size: int = 0) -> None:
        """Count the rows and bytes of a stage."""
        with self._lock:
            cost = self._costs[name]
            cost.rows += rows
            cost.bytes += size

    def as_list(self) -> list[dict[str, Any]]:
        """Return the stages in the order of their first use, "other" last, with times in whole milliseconds."""
        with self._lock:
            self._settle()
            costs = sorted(self._costs.items(), key=lambda item: item[0] == _OTHER)
            exact = [{"name": name, **vars(cost)} for name, cost in costs]
            return [{**cost, **{time: round(cost[time], 3) for time in ("seconds", "cpu_seconds")}} for cost in exact]

    def _switch(self, before: str | None, after: str | None) -> None:
        with self._lock:
            self._settle()
            if before is not None:
                self._active.remove(before)
            if after is not None:
                _ = self._costs[after]  # stages are listed in the order of their first use
                self._active.append(after)
            self._mine.stage = after

    def _settle(self) -> None:
        """Give the time since the last change to the stages that were under way."""
        seconds, cpu = time.monotonic(), time.process_time()
        active = self._active or [_OTHER]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
        for cost in (self._costs[name] for name in active):
            cost.seconds += (seconds - self._seconds) / len(active)
            cost.cpu_seconds += (cpu - self._cpu) / len(active)
            if peak > self._peak or not cost.peak_memory:
                cost.peak_memory = peak
        self._seconds, self._cpu, self._peak = seconds, cpu, peak
