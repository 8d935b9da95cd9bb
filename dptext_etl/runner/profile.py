"""Profile a run by stages: seconds, CPU-seconds, rows, bytes and memory; numbers alone, never texts or ids."""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

Stage = Literal[
    "open",
    "examine",
    "read",
    "reserve",
    "compute",
    "reports",
    "stage",
    "commit",
    "postprocess",
    "gates",
    "publish",
    "other",
]
"""A stage of a run; "other" is what lies between the stages."""

_KIB = 1 if sys.platform == "darwin" else 1024


@dataclass
class Cost:
    """Holds what one stage took, over all shards.

    Attributes:
        name: The stage.
        seconds: Seconds by the clock. Stages that run side by side share them, so that all stages add up to the run.
        cpu_seconds: CPU-seconds of this process, shared in the same way.
        rows: Rows that went through the stage.
        bytes: Bytes that it took in, or wrote.
        peak_memory: The most bytes of memory that the process had held when the stage last raised them, or began.
    """

    name: Stage
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    rows: int = 0
    bytes: int = 0
    peak_memory: int = 0

    def rounded(self) -> dict[str, float]:
        """Return the times in whole milliseconds."""
        return {"seconds": round(self.seconds, 3), "cpu_seconds": round(self.cpu_seconds, 3)}


class Profile:
    """Share the time of a run among its stages, in the one that threads they run.

    Example:
        >>> profile = Profile()
        >>> with profile.stage("read"):
        ...     profile.count("read", rows=3, size=120)
        >>> [(cost["name"], cost["rows"]) for cost in profile.as_list()]
        [('read', 3), ('other', 0)]
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mine = threading.local()
        self._costs: dict[Stage, Cost] = {}
        self._active: list[Stage] = []
        self._seconds, self._cpu = time.monotonic(), time.process_time()
        self._peak = 0

    def __getstate__(self) -> dict[Stage, Cost]:
        """Hand over what was counted; the clocks of another process are others."""
        with self._lock:
            self._settle()
            return dict(self._costs)

    def __setstate__(self, costs: dict[Stage, Cost]) -> None:
        """Go on from what another process counted."""
        self.__init__()  # type: ignore[misc]
        self._costs = costs

    @contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        """Count the block for a stage. A stage inside another one of the same thread takes its place meanwhile."""
        outer: Stage | None = getattr(self._mine, "stage", None)
        self._turn(outer, name)
        self._mine.stage = name
        try:
            yield
        finally:
            self._mine.stage = outer
            self._turn(name, outer)

    def count(self, name: Stage, *, rows: int = 0, size: int = 0) -> None:
        """Count what went through a stage."""
        with self._lock:
            cost = self._cost(name)
            cost.rows += rows
            cost.bytes += size

    def seconds(self, name: Stage) -> float:
        """Return the seconds of a stage so far; 0 before its first end."""
        with self._lock:
            return self._costs[name].seconds if name in self._costs else 0.0

    def as_list(self) -> list[dict[str, Any]]:
        """Return the stages in the order of their first use, "other" last, as JSON can hold them."""
        with self._lock:
            self._settle()
            costs = sorted(self._costs.values(), key=lambda cost: cost.name == "other")
            return [{**asdict(cost), **cost.rounded()} for cost in costs]

    def _turn(self, before: Stage | None, after: Stage | None) -> None:
        with self._lock:
            self._settle()
            if before is not None:
                self._active.remove(before)
            if after is not None:
                self._cost(after)
                self._active.append(after)

    def _settle(self) -> None:
        """Give the time since the last change to the stages that were under way."""
        seconds, cpu = time.monotonic(), time.process_time()
        under_way: list[Stage] = self._active or ["other"]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
        for name in under_way:
            cost = self._cost(name)
            cost.seconds += (seconds - self._seconds) / len(under_way)
            cost.cpu_seconds += (cpu - self._cpu) / len(under_way)
            if peak > self._peak or not cost.peak_memory:
                cost.peak_memory = peak
        self._seconds, self._cpu, self._peak = seconds, cpu, peak

    def _cost(self, name: Stage) -> Cost:
        return self._costs.setdefault(name, Cost(name))
