"""Hold the outcomes of gates and of suites of Great Expectations, and continue only if all passed.

Importing Great Expectations next to a bare pyspark can end the interpreter with exit code 0. So a gate asks for the
record of a suite (`VerdictRecord.read`), and never trusts only an exit code: without a record, it failed.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from dptext_etl import files
from dptext_etl.errors import GateError, seam


@dataclass(frozen=True)
class Verdict:
    """Holds the outcome of one gate."""

    name: str  # the gate
    passed: bool  # whether publication may continue as far as this gate is concerned
    counts: Mapping[str, int | float]  # whole numbers and bounds behind the outcome
    message: str  # one sentence for people; names of the policy's own columns and counts only
    catches: str = field(repr=False)  # the kind of defect that this gate finds, in a sentence
    applicable: bool = True  # False if it has nothing to judge in a release of this policy; it then does not fail

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", MappingProxyType(dict(self.counts)))

    def __reduce__(self) -> tuple[type[Verdict], tuple[Any, ...]]:
        return type(self), (self.name, self.passed, dict(self.counts), self.message, self.catches, self.applicable)

    def __repr__(self) -> str:
        return f"Verdict({self.name!r}, {status(vars(self))}: {self.message})"

    def _repr_html_(self) -> str:
        from dptext_etl import markup

        about = {"outcome": self.message, "counts": dict(self.counts), "catches": self.catches}
        return markup.facts(f"{self.name}: {status(vars(self))}", about)

    def as_dict(self) -> dict[str, Any]:
        counts = {key: value if math.isfinite(value) else str(value) for key, value in self.counts.items()}
        return {**vars(self), "counts": counts}

    @classmethod
    def from_dict(cls, verdict: Mapping[str, Any]) -> Verdict:
        counts = {key: float(value) if isinstance(value, str) else value for key, value in verdict["counts"].items()}
        return cls(**{**verdict, "counts": counts})


FILES = "published_files"  # the gate that compares the published files with the ledger
PASSED, FAILED, NOT_APPLICABLE = "passed", "FAILED", "not applicable"


def status(verdict: Mapping[str, Any]) -> str:
    """Return the outcome of a verdict as plain data, in a word or two."""
    if not verdict["passed"]:
        return FAILED
    return PASSED if verdict["applicable"] else NOT_APPLICABLE


def tally(verdicts: Iterable[Mapping[str, Any]]) -> str:
    """Count verdicts as plain data by outcome: "8 passed, 1 not applicable"."""
    outcomes = Counter(map(status, verdicts))
    parts = [f"{outcomes[PASSED]} passed"]
    parts += [f"{outcomes[name]} {name}" for name in (FAILED, NOT_APPLICABLE) if outcomes[name]]
    return ", ".join(parts)


def catches(defects: str) -> str:
    """State the defects that a gate or a report catches, so that its description is not read as a finding.

    >>> catches("Raw text that got past the mechanism.")
    'Catches raw text that got past the mechanism.'
    """
    return f"Catches {defects[0].lower()}{defects[1:]}"


def require(verdicts: Iterable[Verdict]) -> None:
    """Let a publication continue only if there are verdicts and all of them passed.

    A fired gate is a defect (docs/spec/privacy.md#fired-gate): the charge stays, nothing is drawn again, the release
    name is revoked.
    """
    verdicts = tuple(verdicts)
    if not verdicts:
        raise GateError("no gate was evaluated, so nothing can be published")
    if failed := [verdict for verdict in verdicts if not verdict.passed]:
        messages = "; ".join(f"{verdict.name}: {verdict.message}" for verdict in failed)
        hint = "find and fix the defect, and release under a new name: charges remain"
        if {verdict.name for verdict in failed} == {FILES}:
            hint = "run the same policy again: it writes changed files again, at no cost"
        fields = {"failed": [verdict.name for verdict in failed], "gates": len(verdicts)}
        raise GateError(f"{len(failed)} of {len(verdicts)} gates failed: {messages}", hint, fields)


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
            msg = f"the suite {self.suite!r} did not hold: {self.evaluated} of {self.expected} expectations evaluated"
            for item in failed:
                counts = ", ".join(f"{count:,} {name}" for name, count in item.counts.items()) or "failed"
                outcome = "could not be evaluated" if item.errored else counts
                msg += f"; {item.name}{f' ({item.gate})' if item.gate else ''}: {outcome}"
            raise GateError(msg, "find and fix the defect; charges remain")
