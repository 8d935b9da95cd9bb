"""Record the outcome of a suite of Great Expectations positively: without a record, it failed.

Importing Great Expectations next to a bare pyspark can end the interpreter with exit code 0. So a gate asks for the
record (`VerdictRecord.read`), and never trusts only an exit code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from dptext_etl import files
from dptext_etl.errors import GateError, seam

FORMAT = "dptext-verdict/1"


@dataclass(frozen=True)
class ExpectationOutcome:
    """Holds the outcome of one expectation."""

    name: str  # its type, such as "expect_gate_to_pass"
    gate: str | None  # None where it evaluates no gate
    success: bool
    errored: bool  # whether it could not be evaluated
    counts: Mapping[str, int]  # how much was checked, and how many of each problem there are


@dataclass(frozen=True)
class VerdictRecord:
    """Holds the outcome of a suite."""

    suite: str  # its name
    expected: int  # how many expectations it has
    outcomes: tuple[ExpectationOutcome, ...]  # one per expectation that was evaluated

    @property
    def evaluated(self) -> int:
        return sum(not item.errored for item in self.outcomes)

    @property
    def success(self) -> bool:
        """Whether everything was evaluated, there was something to evaluate, and all of it held."""
        complete = self.evaluated == len(self.outcomes) == self.expected > 0
        return complete and all(item.success for item in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        return {"format": FORMAT, "success": self.success, "evaluated": self.evaluated, **asdict(self)}

    def write(self, path: Path) -> None:
        """Write the record; a reader sees all of it or nothing.

        Args:
            path: The file, which is replaced.

        Raises:
            GateError: The file cannot be written.
        """
        draft = files.draft_of(path)
        with seam("writing a verdict", GateError):
            with os.fdopen(files.create(draft), "w", encoding="ascii") as file:
                file.write(json.dumps(self.as_dict(), indent=1) + "\n")
            draft.replace(path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the record of a file.

        Args:
            path: The file.

        Raises:
            GateError: The file cannot be read, or has another format.
        """
        with seam("reading a verdict", GateError, "no record means that nothing was judged: validate again"):
            record = json.loads(path.read_text(encoding="ascii"))
            if record["format"] != FORMAT:
                msg = "another format"
                raise ValueError(msg)
            outcomes = tuple(ExpectationOutcome(**item) for item in record["outcomes"])
            return cls(record["suite"], record["expected"], outcomes)

    def require(self) -> None:
        """Continue only if the suite passed."""
        if not self.success:
            failed = [item for item in self.outcomes if not item.success]
            problems = [f"{item.name}{f' ({item.gate})' if item.gate else ''}: {_counted(item)}" for item in failed]
            msg = f"the suite {self.suite!r} did not hold: {self.evaluated} of {self.expected} expectations evaluated"
            raise GateError("; ".join([msg, *problems]), "find and fix the defect; charges remain")


def _counted(item: ExpectationOutcome) -> str:
    if item.errored:
        return "could not be evaluated"
    return ", ".join(f"{count:,} {name}" for name, count in item.counts.items()) or "failed"
