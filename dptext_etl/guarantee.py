"""Define guarantees and spends: the claim of a mechanism, and the cost of releasing one record once.

Specification: docs/spec/privacy.md#disclosures, docs/spec/privacy.md#classes, docs/spec/privacy.md#spend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

from dptext_etl.errors import InputError, counted

UNIQUE_IDS = "UNIQUE_IDS"
"""Assumption of releases without a ledger: no one checks that record ids are unique, and two rows of one id and
text are one release (docs/spec/privacy.md#unique-ids)."""
OWN_PERSONS = "OWN_PERSONS"
"""Assumption: records without a person are of persons with no other record (docs/spec/privacy.md#unknown-subject)."""
SCORES_LOCAL = "SCORES_LOCAL"
"""Assumption: the model computes a row of a batch only from its own numbers, whatever other rows hold. The bound of
each record does not need it; the parallel composition of releases of different subjects does
(docs/spec/privacy.md#scores-local)."""

MICRO = 1_000_000
Micro = int | float  # an amount in millionths: an integer that was rounded up, or `math.inf`
FINE = 10**15  # deltas count in steps of 10^-15: 10^-12 is a thousand of them. All other amounts count in millionths


class _Explained(StrEnum):
    """Names, each with a sentence for people."""

    meaning: str

    def __new__(cls, name: str, meaning: str = "") -> Self:
        """Return the member of this name."""
        member = str.__new__(cls, name)
        member._value_, member.meaning = name, meaning
        return member


class GuaranteeClass(_Explained):
    """The kind of theorem behind a release, from the strongest to none."""

    PURE_LDP = "PURE_LDP", "any two texts, epsilon"
    APPROX_LDP = "APPROX_LDP", "any two texts, (epsilon, delta)"
    SHUFFLED_APPROX = "SHUFFLED_APPROX", "any two texts of one record of a published multiset, (epsilon, delta)"
    CENTRAL_ZCDP = "CENTRAL_ZCDP", "any two texts and labels of one record of a summed table, rho; trusts the curator"
    COND_PURE = "COND_PURE", "any two texts with equal disclosures, epsilon"
    COND_APPROX = "COND_APPROX", "any two texts with equal disclosures, (epsilon, delta)"
    METRIC = "METRIC", "any two texts with equal disclosures, epsilon times their distance"
    UMLDP = "UMLDP", "protected outputs only; other outputs can be inverted"
    NONE = "NONE", "no theorem known; never publishable"


_STRENGTH = list(GuaranteeClass)


class Disclosure(_Explained):
    """A property of the input that a mechanism releases exactly (docs/spec/privacy.md#disclosures)."""

    LENGTH = "length", "the number of words"
    STOPWORDS = "stopwords", "which stopwords occur, and where"
    PUNCT = "punct", "punctuation and white space"
    OOV = "oov", "every word outside the vocabulary, unchanged"
    NUMBERS = "numbers", "every number outside the vocabulary, unchanged"
    OOV_FLAG = "oov_flag", "how many words are in the vocabulary"
    CASE = "case", "upper and lower case"
    CLUSTER = "cluster", "the output set of every word"
    SENS_CLASS = "sens_class", "which words count as sensitive"
    NULLNESS = "nullness", "which rows are null"
    SENTENCE_COUNT = "sentence_count", "the number of sentences"
    OTHER_COLUMNS = "other_columns", "the other published columns of the row"
    CHANGED = "changed", "which texts changed between two runs"


DEFAULT_ALLOWED = frozenset({Disclosure.LENGTH, Disclosure.NULLNESS, Disclosure.OTHER_COLUMNS})


def micro(amount: float | Fraction) -> Micro:
    """Return `amount` in millionths, rounded up exactly (a float counts as the decimal that `repr` prints).

    >>> micro(0.1), micro(1e-9), micro(math.inf)
    (100000, 1, inf)
    """
    if isinstance(amount, float) and math.isinf(amount):
        return math.inf
    return _rounded_up(exact(amount), MICRO)


def fine(delta: float | Fraction) -> int:
    """Return a delta in steps of 10^-15, rounded up exactly.

    >>> fine(1e-6), fine(1e-12), fine(1e-18)
    (1000000000, 1000, 1)
    """
    return _rounded_up(exact(delta), FINE)


def _rounded_up(amount: Fraction, steps_per_unit: int) -> int:
    return -(-amount.numerator * steps_per_unit // amount.denominator)  # exact, without reducing a product


def steps(component: str) -> int:
    """Return in how many steps the unit of a component is counted: `FINE` of delta, `MICRO` of any other."""
    return FINE if component == "delta" else MICRO


def millionths(component: str, amount: Micro) -> Micro:
    """Write a counted amount in millionths, as JSON has it: a delta may be a fraction of one.

    >>> millionths("delta", 5_000_000_000), millionths("delta", 1000), millionths("eps_pure", 7)
    (5, 1e-06, 7)
    """
    per_millionth = steps(component) // MICRO
    if isinstance(amount, float) or per_millionth == 1:
        return amount
    whole, rest = divmod(amount, per_millionth)
    return amount / per_millionth if rest else whole


def exact(amount: float | Fraction) -> Fraction:
    """Return `amount` as a fraction; a float counts as the decimal that `repr` prints.

    >>> exact(0.1)
    Fraction(1, 10)
    """
    return amount if isinstance(amount, Fraction) else _written(amount)


def log10_odds(epsilon: Micro) -> float:
    """Convert epsilon (in millionths) to powers of ten of the odds, rounded up to three decimals, so it stays a bound.

    >>> log10_odds(4_000_000), round(log10_odds(30_000_000))
    (1.738, 13)
    """
    exactly = epsilon / MICRO / math.log(10)
    return max(math.ceil(exactly * 1000), epsilon > 0) / 1000 if math.isfinite(exactly) else exactly


def float_above(amount: Fraction | float) -> float:
    """Return the least float that is not below an amount."""
    nearest = float(amount)
    return nearest if Fraction(nearest) >= amount else math.nextafter(nearest, math.inf)


@lru_cache(maxsize=1024)
def _written(amount: float) -> Fraction:
    return Fraction(repr(amount))


@dataclass(frozen=True)
class Guarantee:
    """The claim of a mechanism; every ledger row states its assumptions (docs/spec/privacy.md#assumptions)."""

    guarantee_class: GuaranteeClass  # the kind of theorem
    disclosures: frozenset[Disclosure]  # released exactly; the claim holds between texts that agree on them
    neighbors: str  # the two inputs that the claim compares, in words
    unit: str  # unit of the mechanism's `epsilon`: "word", "token" or "record"
    assumptions: frozenset[str] = frozenset({"PRF", "NO_CRASH_CHANNEL", "TRUSTED_IDS"})

    def without_ledger(self) -> Guarantee:
        """Return the claim of an expression or a SQL function that releases without a ledger, by ids as they are given.

        >>> claim = Guarantee(GuaranteeClass.PURE_LDP, frozenset(), "any two texts", "record")
        >>> sorted(claim.without_ledger().assumptions - claim.assumptions)
        ['UNIQUE_IDS']
        """
        return replace(self, assumptions=self.assumptions | {UNIQUE_IDS})


@dataclass(frozen=True)
class Spend:
    """The cost of a release (docs/spec/privacy.md#spend); `a + b` composes two releases of one unit.

    Amounts are in millionths, rounded up, but delta, which counts in steps of 10^-15 (`FINE`). A component that does
    not exist is infinite, never 0.
    """

    guarantee_class: GuaranteeClass = GuaranteeClass.PURE_LDP
    disclosures: frozenset[Disclosure] = frozenset()
    eps_pure: Micro = math.inf  # declared pure epsilon
    eps_tight: Micro = math.inf  # exact pure epsilon of the integers that the sampler uses
    eps_approx: Micro = math.inf  # epsilon of the declared (epsilon, delta) pair
    delta: Micro = 0  # delta of that pair, in steps of 10^-15
    rho: Micro = math.inf  # rho of zCDP
    mu2: Micro = math.inf  # (sensitivity / sigma) squared of Gaussian noise
    eps_metric: Micro = math.inf  # epsilon per unit of distance
    diameter: Micro = math.inf  # largest distance, if there is a metric claim
    metric_id: str | None = None  # name of that metric
    n_worst: int = 0  # number of positions that were charged
    assumptions: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def zero(cls) -> Spend:
        return cls(eps_pure=0, eps_tight=0, eps_approx=0, delta=0, rho=0, mu2=0, eps_metric=0, diameter=0)

    def __add__(self, other: Spend) -> Spend:
        """Compose two spends: add the amounts, unite the disclosures, and keep the weaker class.

        Epsilons per unit of distance add up only in one metric.
        """
        if not isinstance(other, Spend):
            return NotImplemented
        metrics = {spend.metric_id for spend in (self, other) if spend.eps_metric}
        sums = {name: getattr(self, name) + getattr(other, name) for name in ADDITIVE}
        if len(metrics) > 1:
            sums["eps_metric"] = math.inf
        return Spend(
            guarantee_class=max(self.guarantee_class, other.guarantee_class, key=_STRENGTH.index),
            disclosures=self.disclosures | other.disclosures,
            diameter=max(self.diameter, other.diameter),
            metric_id=metrics.pop() if len(metrics) == 1 else None,
            n_worst=self.n_worst + other.n_worst,
            assumptions=self.assumptions | other.assumptions,
            **sums,
        )

    @property
    def epsilon(self) -> float:
        """Return epsilon of the declared pair as a number, rounded up to a millionth."""
        return self.eps_approx / MICRO

    @property
    def log10_odds(self) -> float:
        """Return by how many powers of ten a release can change the odds of two texts; above 13 this says little."""
        return log10_odds(self.eps_approx)

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as plain data for JSON, amounts in millionths; infinite ones are the string "inf"."""
        facts: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, frozenset):
                value = sorted(value)
            elif isinstance(value, float) and math.isinf(value):
                value = "inf"
            elif item.name == "delta":
                value = millionths("delta", value)
            facts[item.name] = value
        return facts


PURE = "eps_pure"  # the component of declared pure epsilon, as ledgers and tables store it
ADDITIVE = (PURE, "eps_tight", "eps_approx", "delta", "rho", "mu2", "eps_metric")
"""The components of a spend that add up under composition."""


# The delta of strict mode is bounded per record, and over the public bound on the number of records, which a release
# then never exceeds (docs/spec/privacy.md#delta-policy).
LARGEST_DELTA = 1e-6  # delta of one record in strict mode, at most
LARGEST_SUM = Fraction(1, 100)  # delta summed over the public bound on records, at most


def delta_problem(delta: float, n_rec: int | None) -> str | None:
    """Return why strict mode refuses a delta, or None if strict mode allows it."""
    if not delta:
        return None
    if n_rec is None:
        return (
            "a delta needs a public bound on the number of records: write n_rec = 10_000 for at most 10,000 of them "
            "(delta is then 1e-6), or a larger number; never count it in the private table"
        )
    if delta > LARGEST_DELTA or exact(delta) * n_rec > LARGEST_SUM:
        return (
            f"delta is at most {LARGEST_DELTA} and n_rec * delta at most {float(LARGEST_SUM)} in strict mode; "
            f"for n_rec = {n_rec} give delta = {largest_delta(n_rec):g}, or a smaller one"
        )
    return None


def largest_delta(n_rec: int) -> float:
    """Return the largest delta that strict mode allows under a public bound on the number of records."""
    bound = LARGEST_SUM / n_rec
    delta = float(bound)
    while exact(delta) > bound:
        delta = math.nextafter(delta, 0.0)
    return min(LARGEST_DELTA, delta)


def refuse_more_records(records: int, n_rec: int | None, where: str) -> None:
    """Refuse more records than the delta of a release was stated for."""
    if n_rec is not None and records > n_rec:
        count = counted(records, "record")
        msg = f"{where} would hold {count} over all partitions; its delta was stated for n_rec = {n_rec}"
        raise InputError(msg, "state a public bound that holds, under a new release name; the noise grows with it")
