"""Reports inside the boundary: how many texts came back as they were, over a whole run, as counts only.

A count against raw texts must not decide about a publication, unless its false-alarm bound is part of the guarantee
(docs/spec/privacy.md#copy-gate): row r equals ANY reference text with probability at most q_r = p_max ** n_r, where n_r
draws were made for it and p_max is the law's largest probability. With a threshold t such that P[sum of the coins q_r >
t] <= beta, the decision costs 2 * beta of delta on every row, and the class becomes approximate. That is done only
where the policy sets `beta` beside a cap of measure "approx". Nothing here drops, redraws or marks a row.

Beside whole copies, rows are counted that share a run of words with their originals (`runs`); the two share beta.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from dptext_etl.checks.poisson_binomial import grouped_threshold
from dptext_etl.checks.reports.shared_ngrams import count_runs, run_chances, run_words
from dptext_etl.checks.verdict import Verdict
from dptext_etl.errors import InputError, seam
from dptext_etl.families.by_word import WordByWord, by_word
from dptext_etl.guarantee import MICRO
from dptext_etl.policy import Policy

NAME = "copies_within_chance"
CATCHES = "Texts that came back as they were more often than the mechanism can make them, anywhere in the run."
RUNS = "runs_within_chance"
RUNS_CATCHES = (
    "Stretches of original text inside releases, more often than the mechanism can make them, in the whole run."
)
REPORT_BETA = 1e-9
"""Bound that a report is compared with where the policy sets none."""


@dataclass(frozen=True)
class CopyCount:
    """Texts of one column that equal their normalised originals; adds up over shards. Stays inside the boundary.

    Attributes:
        copies: Rows of at least one draw whose release equals the original, lower-cased, its words joined by blanks.
        rows_by_draws: Rows by the number of draws made for them, rows without draws left out.
        words_kept: Words that stand at their original place in rows of equal length.
        words_compared: Words of those rows.
        runs: Rows that share a run of words with their originals, of the length that `runs.run_words` says.
    """

    copies: int = 0
    rows_by_draws: Mapping[int, int] = field(default_factory=dict)
    words_kept: int = 0
    words_compared: int = 0
    runs: int = 0

    def __add__(self, other: CopyCount) -> CopyCount:
        draws = {*self.rows_by_draws, *other.rows_by_draws}
        return CopyCount(
            self.copies + other.copies,
            {n: self.rows_by_draws.get(n, 0) + other.rows_by_draws.get(n, 0) for n in sorted(draws)},
            self.words_kept + other.words_kept,
            self.words_compared + other.words_compared,
            self.runs + other.runs,
        )

    def as_dict(self) -> dict[str, Any]:
        """The counts as JSON can hold them."""
        draws = {str(n): rows for n, rows in self.rows_by_draws.items()}
        return {
            "copies": self.copies,
            "rows_by_draws": draws,
            "words_kept": self.words_kept,
            "words_compared": self.words_compared,
            "runs": self.runs,
        }

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> CopyCount:
        """Read what `as_dict` wrote."""
        draws = {int(n): int(rows) for n, rows in facts["rows_by_draws"].items()}
        return cls(facts["copies"], draws, facts["words_kept"], facts["words_compared"], facts["runs"])


def count_copies(raw: pl.Series, released: pl.Series, draws: pl.Series, run: int | None = None) -> CopyCount:
    """Count the copies of a shard, without its canary rows.

    Args:
        raw: Original texts.
        released: Their releases, in the same order.
        draws: Draws made for each (`Released.positions`): a function of what is disclosed, not of the text otherwise.
        run: Length of the runs of words that are counted; None counts none.

    Raises:
        InputError: Lengths that differ.
    """
    if not len(raw) == len(released) == len(draws):
        raise InputError(f"{len(raw)} texts, {len(released)} releases, {len(draws)} numbers of draws: one each per row")
    with seam("counting copies"):
        rows = pl.DataFrame({"raw": raw, "released": released, "draws": draws}).filter(pl.col("draws") > 0).drop_nulls()
        rows = rows.with_columns(_words(pl.col("raw")), pl.col("released").str.split(" "))
        copies = rows.filter(pl.col("raw") == pl.col("released")).height
        aligned = rows.filter(pl.col("raw").list.len() == pl.col("released").list.len())
        words = aligned.select(pl.col("raw").explode(), pl.col("released").explode())
        by_draws = rows.group_by("draws").len().sort("draws").rows()
        kept = int(words.select((pl.col("raw") == pl.col("released")).sum()).item())
        reference = rows.select(pl.col("raw").list.head(pl.col("draws"))).to_series()
        shared = 0 if run is None else count_runs(reference, rows["released"], run)
        return CopyCount(copies, {int(n): int(count) for n, count in by_draws}, kept, words.height, shared)


@dataclass(frozen=True)
class CopyReport:
    """A whole-run count beside its bound.

    Attributes:
        name: What is counted: `NAME`, texts that equal their originals, or `RUNS`, those that share a run of words.
        column: The text column.
        rows: Rows with at least one draw.
        copies: Rows that were counted.
        expected: Upper bound of the expected number.
        threshold: What a correct run exceeds with probability at most `beta`; None if no number is such.
        beta: That probability.
        gating: Whether the policy lets the count decide about publication.
        run: Words of a run, for `RUNS`.
    """

    name: str
    column: str
    rows: int
    copies: int
    expected: float
    threshold: int | None
    beta: float
    gating: bool
    run: int | None = None

    @property
    def beyond_chance(self) -> bool:
        """Whether there are more than a correct run makes."""
        return self.threshold is not None and self.copies > self.threshold

    @property
    def catches(self) -> str:
        """What kind of defect shows in the count."""
        return CATCHES if self.run is None else RUNS_CATCHES

    def verdict(self) -> Verdict:
        """Return the report with its counts, for people inside the boundary; fails only where it gates."""
        what = "equal their originals" if self.run is None else f"share {self.run} words in a row with them"
        said = f"column {self.column!r}: {self.copies} of {self.rows} texts {what}, {self._allowed}"
        counts = {"rows": self.rows, "copies" if self.run is None else "runs": self.copies, "expected": self.expected}
        counts |= {"beta": self.beta} | ({} if self.threshold is None else {"threshold": self.threshold})
        return Verdict(self.name, self._passed, counts, said if self.gating else f"{said} (report only)", self.catches)

    def gate(self) -> Verdict:
        """Return the decision alone: how many texts were copied is an exact statistic of raw text and stays inside."""
        what = "copies" if self.run is None else "shared runs"
        said = f"column {self.column!r}: {'no' if self._passed else 'more'} {what} beyond chance, {self._allowed}"
        counts = {"rows": self.rows, "beyond_chance": int(not self._passed), "beta": self.beta}
        return Verdict(self.name, self._passed, counts, said, self.catches)

    @property
    def _passed(self) -> bool:
        return not (self.gating and self.beyond_chance)

    @property
    def _allowed(self) -> str:
        limit = "no number would be suspicious" if self.threshold is None else f"at most {self.threshold} allowed"
        return f"{limit} at beta {self.beta:g}"


def report(policy: Policy, copies: Mapping[str, CopyCount]) -> tuple[CopyReport, ...]:
    """Compare copy counts with their bounds, column by column; beta is shared by columns and kinds of counts.

    A column whose mechanism replaces no single words (no `p_max`) is not reported.
    """
    return tuple(
        _report(NAME, spec, counted, copy_chances(mechanism, _draws(counted)), policy)
        for spec, mechanism, counted in _counted(policy, copies)
    )


def run_report(policy: Policy, copies: Mapping[str, CopyCount]) -> tuple[CopyReport, ...]:
    """Compare the counts of shared runs with their bounds, likewise; columns without a length to count are left out."""
    return tuple(
        _report(RUNS, spec, counted, run_chances(mechanism, _draws(counted)), policy, words)
        for spec, mechanism, counted in _counted(policy, copies)
        if (words := run_words(mechanism)) is not None
    )


def copies_verdict(policy: Policy, copies: Mapping[str, CopyCount]) -> tuple[Verdict, ...]:
    """Return the verdicts of the counts: none unless the policy sets beta, and then two per text column.

    A column in which chance makes runs of any length has no verdict about them.

    Raises:
        InputError: The policy wants the gate, but a column was not counted, or its copies have no bound.
    """
    if policy.beta is None:
        return ()
    reports = report(policy, copies)
    unbounded = {item.name for item in policy.columns} - {item.column for item in reports}
    if unbounded:
        msg = f"the policy sets beta, but {len(unbounded)} columns have no copy count or no words that bound it"
        raise InputError(msg, "count while staging (leaks.count_copies), or leave beta out: the count is then a report")
    return tuple(item.gate() for item in (*reports, *run_report(policy, copies)))


def gate_delta(policy: Policy) -> int:
    """Return the delta that every row is charged for the copy gate: 2 * beta in millionths, rounded up, or 0."""
    return 0 if policy.beta is None else ceil(2 * Fraction(repr(policy.beta)) * MICRO)


def copy_chances(mechanism: WordByWord, draws: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Bound the chance that a row of so many draws equals any one given text.

    Where padding can vanish, a text of k words is what C(N, k) < 2^N outcomes of N draws read as; a noisy length can
    leave a single draw.
    """
    largest = mechanism.largest_probability()
    if getattr(mechanism, "length", None) == "noisy":
        draws = np.minimum(draws, 1)
    if mechanism.hides_length:
        largest = min(1.0, 2 * largest)
    return np.minimum(1.0, np.power(largest, draws) * (1 + 1e-12))


def _counted(policy: Policy, copies: Mapping[str, CopyCount]) -> list[tuple[str, WordByWord, CopyCount]]:
    """Return the columns that were counted and whose words are drawn one by one."""
    found = ((column.column or "", by_word(column.mechanism)) for column in policy.column_policies())
    return [(name, mechanism, copies[name]) for name, mechanism in found if name in copies and mechanism is not None]


def _draws(count: CopyCount) -> npt.NDArray[np.int64]:
    return np.array(list(count.rows_by_draws), dtype=np.int64)


def _report(  # noqa: PLR0917
    name: str,
    column: str,
    count: CopyCount,
    chances: npt.NDArray[np.float64],
    policy: Policy,
    run: int | None = None,
) -> CopyReport:
    rows = np.array(list(count.rows_by_draws.values()), dtype=np.int64)
    beta = (policy.beta or REPORT_BETA) / 2 / max(1, len(policy.columns))
    total = int(rows.sum())
    least = grouped_threshold(chances, rows, beta)
    allowed = least - 1 if least <= total else None
    found, gating = count.copies if run is None else count.runs, policy.beta is not None
    return CopyReport(name, column, total, found, float(np.dot(chances, rows)), allowed, beta, gating, run)


def _words(texts: pl.Expr) -> pl.Expr:
    """Lower-cased words. Any one reference per row is sound; one that differs from the mechanism's words finds less."""
    return texts.str.to_lowercase().str.replace_all("\u2019", "'", literal=True).str.extract_all(r"[\p{L}\p{M}\p{N}']+")
