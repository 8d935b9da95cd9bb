"""Results of parts, each with date, machine, load, commit, and command; one is measured again without the others."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from measuring import HERE, Row


@dataclass(frozen=True)
class Origin:
    """Where figures come from.

    Attributes:
        script: The script below `studies/benchmarks/` that measures.
        machine: Processor, threads, and version of Python.
        before: Load of the machine when the run began.
    """

    script: str
    machine: str
    before: float

    @classmethod
    def here(cls, script: str, device: str = "") -> Origin:
        """Describe this machine before a run; `device` names its GPU, if that is measured."""
        machine = f"{device}{processor()}, {os.cpu_count()} threads, Python {platform.python_version()}"
        return cls(script, machine, os.getloadavg()[0])

    def facts(self, part: str) -> dict[str, str]:
        """Return date, machine, load, commit, and command of a part that was just measured."""
        return {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": self.machine,
            "load": f"{self.before:.1f} at the start, {os.getloadavg()[0]:.1f} at the end",
            "commit": commit(),
            "command": f"python studies/benchmarks/{self.script} {part}",
        }


def commit() -> str:
    """Return the commit of this tree, with a plus sign if the tree differs from it; "unknown" outside of Git."""
    git = ["git", "-C", str(HERE), "describe", "--always", "--exclude=*", "--dirty=+"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def processor() -> str:
    """Name the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


@dataclass
class Results:
    """What `results.json` holds, in the order in which parts are shown.

    Attributes:
        path: The file.
        order: Names of all parts.
        parts: Figures of each: the fields of `Origin`, and rows.
    """

    path: Path
    order: tuple[str, ...]
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, order: tuple[str, ...]) -> Results:
        """Read earlier figures; a file that knows no parts, or none at all, holds nothing."""
        parts = json.loads(path.read_text(encoding="utf-8")).get("parts", {}) if path.exists() else {}
        return cls(path, order, {name: part for name, part in parts.items() if name in order})

    def put(self, name: str, rows: list[Row], origin: Origin) -> None:
        """Replace the figures of a part; a part that was skipped keeps its older rows."""
        if rows:
            self.parts[name] = {**origin.facts(name), "rows": [row.cells() for row in rows]}

    def write(self) -> None:
        """Write the file."""
        parts = {name: self.parts[name] for name in self.order if name in self.parts}
        self.path.write_text(json.dumps({"parts": parts}, indent=2) + "\n", encoding="utf-8")
