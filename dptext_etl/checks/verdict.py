"""Record what a gate says: a positive record with counts, never a value, an id or a quoted error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from dptext_etl import html_tables
from dptext_etl.errors import GateError


@dataclass(frozen=True)
class Verdict:
    """Holds the outcome of one gate.

    Attributes:
        name: The gate.
        passed: Whether publication may go on as far as this gate is concerned.
        counts: Whole numbers and bounds behind the outcome.
        message: One sentence for people; names of the policy's own columns and counts only.
        catches: The kind of defect that this gate finds, in a sentence.
    """

    name: str
    passed: bool
    counts: Mapping[str, int | float]
    message: str
    catches: str = field(repr=False)

    def __post_init__(self) -> None:
        """Freeze the counts."""
        object.__setattr__(self, "counts", MappingProxyType(dict(self.counts)))

    def __reduce__(self) -> tuple[type[Verdict], tuple[Any, ...]]:
        return type(self), (self.name, self.passed, dict(self.counts), self.message, self.catches)

    def __repr__(self) -> str:
        return f"Verdict({self.name!r}, {'passed' if self.passed else 'FAILED'}: {self.message})"

    def _repr_html_(self) -> str:
        """Show the outcome in a notebook."""
        said = "passed" if self.passed else "FAILED"
        return html_tables.facts(
            f"{self.name}: {said}", {"outcome": self.message, "counts": dict(self.counts), "catches": self.catches}
        )

    def as_dict(self) -> dict[str, Any]:
        """The same facts as JSON can hold them."""
        return {
            "name": self.name,
            "passed": self.passed,
            "counts": {key: _finite(value) for key, value in self.counts.items()},
            "message": self.message,
            "catches": self.catches,
        }

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Verdict:
        """Read what `as_dict` wrote."""
        counts = {key: float(value) if isinstance(value, str) else value for key, value in facts["counts"].items()}
        return cls(facts["name"], facts["passed"], counts, facts["message"], facts["catches"])


def _finite(value: float) -> int | float | str:
    return str(value) if value in {float("inf"), float("-inf")} or value != value else value  # noqa: PLR0124


def require(verdicts: Iterable[Verdict]) -> None:
    """Let a publication go on only if there are verdicts and all of them passed.

    A fired gate is a defect (docs/spec/privacy.md#fired-gate): the charge stays, nothing is drawn again, the release
    name is revoked.
    """
    verdicts = tuple(verdicts)
    if not verdicts:
        raise GateError("no gate was evaluated, so nothing can be published")
    failed = [verdict for verdict in verdicts if not verdict.passed]
    if failed:
        said = "; ".join(f"{verdict.name}: {verdict.message}" for verdict in failed)
        hint = "find the defect, mend it, and release under a new name: what is charged stays charged"
        raise GateError(f"{len(failed)} of {len(verdicts)} gates failed: {said}", hint)
