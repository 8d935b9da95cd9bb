"""Hold the result of an audit: what was claimed, what the integers realize, what trials bound from below."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dptext_etl.families.certificate import Certificate
from dptext_etl_eval.auditing.trials import Counts

ROUNDING = 1e-9
"""Above the rounding error of computed losses."""

ALARM = 1e-6
"""Upper bound of the probability that all trials of an audit together refute a true claim."""

Finding = Literal["holds", "not refuted", "refuted", "cannot be refuted", "not applicable"]


@dataclass(frozen=True)
class Trial:
    """The result of one trial.

    Attributes:
        counts: Counts of the event under both inputs.
        epsilon: The mechanism's parameter in this trial.
        claim: The claimed upper bound of the loss.
        lower_bound: Lower bound of the loss, at the audit's joint confidence over all trials.
        refuted: True if the loss exceeds the claim, with a small false-alarm probability over all trials.
    """

    counts: Counts
    epsilon: float
    claim: float
    lower_bound: float
    refuted: bool


@dataclass(frozen=True)
class Audit:
    """The result of the audit of one column.

    Attributes:
        column: Name of the column; empty for a mechanism by itself.
        mechanism: Its name.
        epsilon: Its parameter, as configured.
        unit: What the claim is per: "word", "draw" or "record".
        delta: Declared delta of one unit.
        claim: Declared loss of one draw between any two words that the guarantee compares; None where none is finite.
        charged: What the ledger's tight component takes, at most `claim`.
        stored: The exact parameter as the stored table states it; None where it states none.
        certificate: What its integers realize; None where there is no finite table.
        trials: Bounds from below.
        largest: The largest loss that the trials can refute.
        note: Parts of the audit that do not apply or show nothing, with the reason.
    """

    column: str
    mechanism: str
    epsilon: float
    unit: str = "word"
    delta: float = 0.0
    claim: float | None = None
    charged: float | None = None
    stored: float | None = None
    certificate: Certificate | None = None
    trials: tuple[Trial, ...] = ()
    largest: float = 0.0
    note: str = ""

    @property
    def by_table(self) -> Finding:
        """Return the certificate's finding on the claim, on the charged amount, and on the table's own statement."""
        found = self.certificate
        if found is None or self.claim is None or self.charged is None:
            return "not applicable"
        least = min(self.claim, self.charged, math.inf if self.stored is None else self.stored)
        if found.realised <= least * (1 + ROUNDING) + ROUNDING:
            return "holds"
        return "refuted" if found.exact else "not refuted"

    @property
    def by_trials(self) -> Finding:
        """Return the trials' finding on the claim."""
        if not self.trials:
            return "not applicable"
        return "refuted" if any(trial.refuted for trial in self.trials) else "not refuted"

    @property
    def refuted(self) -> bool:
        """Return True if the claim is false."""
        return "refuted" in (self.by_table, self.by_trials)

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as plain data for JSON."""
        return {**asdict(self), "by_table": self.by_table, "by_trials": self.by_trials, "refuted": self.refuted}
