"""Bound privacy losses from below by counts, and hold the results of an audit.

If an event occurs k times in n draws under one input and k' times in n' under another, then with probability 1 - alpha

    ln(P[event | input] / P[event | other]) >= ln(low(k, n) / high(k', n'))

with each Clopper-Pearson limit at alpha / 2 (docs/spec/privacy.md#audit-bound).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from scipy.special import betainccinv, betaincinv

from dptext_etl_eval.auditing.certificate import Certificate

_WIDER = 1e-6
"""Relative margin of the limits, far above the error of the inverse of the incomplete beta function."""


def high(hits: int, draws: int, alpha: float) -> float:
    """Return the upper Clopper-Pearson limit of a share: the largest p with P[X <= hits] >= alpha.

    >>> round(high(0, 1000, 0.025) * 1000, 2)
    3.68
    """
    return 1.0 if hits >= draws else min(1.0, float(betainccinv(hits + 1, draws - hits, alpha)) * (1 + _WIDER))


def low(hits: int, draws: int, alpha: float) -> float:
    """Return the lower Clopper-Pearson limit of a share: the smallest p with P[X >= hits] >= alpha.

    >>> low(0, 1000, 0.025), round(low(1000, 1000, 0.025), 4)
    (0.0, 0.9963)
    """
    return 0.0 if hits <= 0 else float(betaincinv(hits, draws - hits + 1, alpha)) * (1 - _WIDER)


def log_ratio(  # noqa: PLR0917
    hits: int, draws: int, other_hits: int, other_draws: int, alpha: float, delta: float = 0.0
) -> float:
    """Return the lower bound of ln((P - delta) / P') at joint confidence 1 - alpha; -inf where an event never came.

    >>> round(log_ratio(1_000_000, 1_000_000, 0, 1_000_000, 0.05), 2)
    12.51
    """
    least = max(0.0, low(hits, draws, alpha / 2) - delta)
    return math.log(least / high(other_hits, other_draws, alpha / 2)) if least else -math.inf


def largest_loss(draws: int, alpha: float) -> float:
    """Return the largest loss that a number of draws can show, by an event that occurs always or never.

    >>> [round(largest_loss(10**power, 0.05), 2) for power in (4, 5, 6)]
    [7.9, 10.21, 12.51]
    """
    return log_ratio(draws, draws, 0, draws, alpha)


ROUNDING = 1e-9
"""Above the rounding error of computed losses."""

ALARM = 1e-6
"""Upper bound of the probability that all trials of an audit together refute a true claim."""

Finding = Literal["holds", "not refuted", "refuted", "cannot be refuted", "not applicable"]


@dataclass(frozen=True)
class Counts:
    """Counts of an event under two inputs; it should occur more often under the first one, if there is a difference."""

    trial: str  # the comparison, in words
    words: tuple[str, str]  # the two inputs, public texts; "" is the empty text, "(null)" a null
    event: str  # the event, in words
    hits: int  # under the first input
    draws: int  # under the first input
    other_hits: int  # under the second
    other_draws: int  # under the second
    delta: float = 0.0  # of the claim, that the bound leaves out

    def bound(self, alpha: float) -> float:
        """Return the lower bound of the log ratio at joint confidence 1 - alpha."""
        return log_ratio(self.hits, self.draws, self.other_hits, self.other_draws, alpha, self.delta)


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


def judge(counts: Counts, epsilon: float, claim: float, *, alarm: float, error: float) -> Trial:
    """Bound the loss by counts: with probability `error` it is lower, and with `alarm` a true claim is refuted."""
    refuted = counts.bound(alarm) > claim * (1 + ROUNDING)
    return Trial(counts, epsilon, claim, counts.bound(error), refuted)


@dataclass(frozen=True)
class Audit:
    """The result of the audit of one column.

    Attributes:
        column: Name of the column; empty for a mechanism by itself.
        mechanism: Its name.
        epsilon: Its parameter, as configured.
        unit: Unit of the claim: "word", "draw" or "record".
        delta: Declared delta of one unit.
        claim: Declared loss of one draw between any two words that the guarantee compares; None where none is finite.
        charged: The charge of the ledger's tight component, at most `claim`.
        stored: The exact parameter as the stored table states it; None where it states none.
        certificate: The epsilon that its integers realize; None where there is no finite table.
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
        certificate = self.certificate
        if certificate is None or self.claim is None or self.charged is None:
            return "not applicable"
        least = min(self.claim, self.charged, math.inf if self.stored is None else self.stored)
        if certificate.realized <= least * (1 + ROUNDING) + ROUNDING:
            return "holds"
        return "refuted" if certificate.exact else "not refuted"

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
