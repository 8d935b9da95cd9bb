"""Bound what chance allows, and count unchanged texts and failures of models, for people inside the boundary.

Tails of Poisson-binomial distributions are rigorous in floating point. Probabilities are rounded up first (a larger
probability can only raise the tail), every later operation works on non-negative terms, and the result is widened by
all rounding there can be.

A count against raw texts must not decide about a publication, unless its false-alarm bound is part of the guarantee
(docs/spec/privacy.md#copy-gate). Row r equals ANY one reference text with probability at most q_r = p_max ** n_r, where
n_r draws were made for it and p_max is the largest probability of the output distribution. Take a threshold t such that
the Bernoulli trials q_r have more than t successes with probability at most beta. Then the decision costs 2 * beta of
delta on every row, and the class becomes approximate. It is made only where the policy sets beta, its entry
`copy_gate_false_alarm`, next to a cap of measure "approx" (`checks/gates/`); otherwise the counts are a report. Nothing
here drops, redraws or marks a row.

In addition to whole copies, rows are counted that share an n-gram with their originals: k words in a row, at any place.
The two share beta. A row of n draws shares k words in a row with any one reference text of n words with probability at
most n^2 * p^k: there are n^2 pairs of places, and k released words in a row are k given words with probability at most
p^k (`word_chance`). Only the configuration decides k.

Copies are counted once more in what post-processing made of released texts. No distribution of them is known, so
nothing bounds their chance, and gates and bounds stay with released texts
(docs/spec/privacy.md#post-gates). The texts on which a model fails depend on private data, so their count may neither
stop nor delay a run (docs/spec/privacy.md#fail-closed); probes with public texts show whether a model works
(docs/spec/privacy.md#probe).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.checks.verdict import Verdict
from dptext_etl.errors import InputError, counted, seam
from dptext_etl.families.words import WordByWord, by_word
from dptext_etl.guarantee import Disclosure, fine, float_above
from dptext_etl.mechanism import Mechanism, count_words
from dptext_etl.policy import Policy

FALSE_ALARM = 1e-9
"""Bound of the probability that a correct run fails a gate, over all its columns."""
ROUNDING = 1 + 1e-12
EXACT_LIMIT = 8_192
"""Trials up to which the tail is computed exactly; beyond, Chernoff's bound is used (valid, a little wider)."""
_FEW = 64
"""Successes among which the threshold of small chances is looked for first."""
_COARSE = 64
"""Steps of the fine grid from one of the coarse grid to the next."""

Floats = npt.NDArray[np.float64]
Trials = Counter[float]
"""How many Bernoulli trials there are of each success probability."""


def round_up(probability: Fraction | float) -> float:
    """Return a float that is at least `probability`, at most 1."""
    return min(float_above(probability), 1.0)


def upper_tail(probabilities: Sequence[float] | Floats, most: int | None = None) -> Floats:
    """Bound P[X >= t] for t = 0 … n, where X is the number of successes (Poisson-binomial), shape (n + 1,).

    S_t after one more trial is p * S_{t-1} + (1 - p) * S_t: three roundings per trial, so n trials lose less than
    a factor 1 + 4 n 2^-53, and what underflows is below n * 1e-300.
    """
    chances = np.asarray(probabilities, dtype=np.float64)
    n = len(chances)
    tail = to_numpy(pa.array(_kernel.upper_tail(to_arrow(chances), n if most is None else most)))
    slack = 1.0 + 4.0 * n * 2.0**-53
    return np.minimum(1.0, tail * slack + n * 1e-300)


def threshold(
    probabilities: Sequence[float] | Floats, counts: Sequence[int] | npt.NDArray[np.int64], alarm: float
) -> int:
    """Return the least t with P[X >= t] <= `alarm`; n + 1 where every count is too likely to be suspicious.

    X counts the successes of n trials: `counts[i]` of them succeed with probability `probabilities[i]`.
    """
    chances, repeats = np.asarray(probabilities, dtype=np.float64), np.asarray(counts, dtype=np.int64)
    trials = int(repeats.sum())
    if trials > EXACT_LIMIT:
        return _chernoff_threshold(chances, repeats, alarm)
    by_row = np.repeat(chances, repeats)
    for most in (_FEW, trials):
        allowed = np.flatnonzero(upper_tail(by_row, most) <= alarm)
        if len(allowed):
            return int(allowed[0])
    return trials + 1


def least_suspicious(trials: Trials, alarm: float) -> int:
    """Return the least number of successes that comes with probability at most `alarm`, in (0, 1).

    >>> least_suspicious(Counter({0.5: 10}), 0.01)
    10
    """
    return threshold(list(trials), list(trials.values()), alarm)


def _chernoff_threshold(chances: Floats, repeats: npt.NDArray[np.int64], alarm: float) -> int:
    """Return the least t with exp(K(s) - s t) <= alarm for some s > 0; K is the cumulant function, any s is valid.

    K is convex and K(0) = 0, so that the bound of t falls with s and then rises: around the least of a coarse grid lies
    the least of the fine one.
    """
    target = math.log(alarm)

    def bound(s: float) -> float:
        cumulant = float(np.dot(repeats, np.log1p(chances * math.expm1(s))))
        return (cumulant + 1e-12 * (abs(cumulant) + 1.0) - target) / s

    fine = np.geomspace(1e-6, 60.0, 4_000)
    least = _COARSE * int(np.argmin([bound(s) for s in fine[::_COARSE]]))
    around = fine[max(0, least - _COARSE) : least + _COARSE + 1]
    return max(1, min(int(repeats.sum()), *(math.floor(bound(s)) for s in around)) + 1)


def upper_bound(hits: int, trials: int, alarm: float) -> float:
    """Return a chance p such that under any larger one `hits` or fewer successes come with probability at most `alarm`.

    Chernoff: with h = hits / trials <= p, P[X <= hits] <= exp(-trials * KL(h || p)).

    >>> round(upper_bound(0, 100, 1e-3), 4), upper_bound(100, 100, 1e-3)
    (0.0667, 1.0)
    """
    share, wanted = hits / trials, -math.log(alarm) / trials
    low, high = share, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        parts = ((share, middle), (1.0 - share, 1.0 - middle))  # the KL divergence, in nats; infinite if only q is 0
        if sum(p * math.log(p / q) if q > 0 else math.inf for p, q in parts if p > 0) < wanted:
            low = middle
        else:
            high = middle
    return min(1.0, high * ROUNDING)


def word_chance(mechanism: WordByWord) -> float:
    """Return p such that k released words in a row are k given words with probability at most p^k.

    It is 1 where the mechanism releases words unchanged. Where padding vanishes, the k-th word that shows is the m-th
    draw for some m >= k, in one of C(m - 1, k - 1) ways; the sum of p^m over all of them is (p / (1 - p))^k.
    """
    if mechanism.mode == "faithful" or not set(mechanism.word_disclosures) <= {Disclosure.CLUSTER}:
        return 1.0
    largest = mechanism.largest_probability()
    if mechanism.length == "disclose":
        return largest
    return min(1.0, largest / (1 - largest)) if largest < 1 else 1.0


def powerless(columns: Iterable[str]) -> str:
    """Return the part of a message about columns in which the mechanism itself allows every count."""
    names = ", ".join(map(repr, columns))
    return f"; no count would be suspicious in {names}" if names else ""


def known_words(mechanism: WordByWord) -> Collection[str] | None:
    """Return the words that are not dropped before words are counted; None where none is."""
    return frozenset(mechanism.input_words()) if mechanism.input_policy()["oov"] == "drop" else None


def drawn_and_released(
    mechanism: WordByWord, vocabulary: Collection[str] | None, words: Sequence[str], text: Any
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    drawn = tuple(word for word in words[: mechanism.n_max] if vocabulary is None or word in vocabulary)
    return drawn, tuple(text.split(" ")) if isinstance(text, str) and text else ()


COPIES, NGRAMS = "copies_within_chance", "ngrams_within_chance"
COPIES_PUBLISHED, REWRITING_FAILURES, MODEL_FAILURES = "copies_published", "rewriting_failures", "model_failures"
CATCHES = {
    COPIES: "Texts that came back as they were more often than the mechanism can make them, anywhere in the run.",
    NGRAMS: (
        "Stretches of original text inside releases, more often than the mechanism can make them, in the whole run."
    ),
    COPIES_PUBLISHED: "A rewriter that brings originals back, in the texts that readers see.",
    REWRITING_FAILURES: "A rewriter that fails on some texts, which then stay as the mechanism released them.",
    MODEL_FAILURES: "A model that fails on some texts, whose releases are then random at the same spend.",
}
REPORT_BETA = 1e-9
"""False-alarm bound of a report, where the policy sets none."""
SAMPLE_ROWS = 512
"""Rows of every shard that a report looks at, unless the policy asks for all (`reports = ["copies"]`)."""
SAMPLED = f" (a sample: at most {SAMPLE_ROWS} of every shard)"
TEXT = 200
CHANCE = 1e-3
LEAST = 3
"""An n-gram is long enough that at most one text of 200 words in a thousand shares one by chance; at least 3."""


def word_columns(policy: Policy) -> dict[str, WordByWord]:
    """Return the mechanisms of the text columns whose words are drawn one by one."""
    columns = ((item.column or "", by_word(item.mechanism)) for item in policy.column_policies())
    return {name: mechanism for name, mechanism in columns if mechanism is not None}


@dataclass(frozen=True)
class CopyCount:
    """Counts the texts of one column that equal their normalized originals.

    It adds up over shards and stays inside the boundary.
    """

    # rows of at least one draw whose release equals the original, lower-cased, its words joined by blanks
    copies: int = 0
    # number of draws -> rows with this number of draws, without those that had none
    rows_by_draws: Mapping[int, int] = field(default_factory=dict)
    words_kept: int = 0  # words at their original place in rows of equal length
    words_compared: int = 0  # words of those rows
    shared_ngrams: int = 0  # rows that share an n-gram with their originals (`ngram_words`)

    def __add__(self, other: CopyCount) -> CopyCount:
        draws = Counter(self.rows_by_draws) + Counter(other.rows_by_draws)
        sums = {name: count + getattr(other, name) for name, count in vars(self).items() if name != "rows_by_draws"}
        return CopyCount(**sums, rows_by_draws=dict(sorted(draws.items())))

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "rows_by_draws": {str(n): rows for n, rows in self.rows_by_draws.items()}}

    @classmethod
    def from_dict(cls, counts: Mapping[str, Any]) -> CopyCount:
        return cls(**{**counts, "rows_by_draws": {int(n): rows for n, rows in counts["rows_by_draws"].items()}})


def counts_all(policy: Policy) -> bool:
    """Return whether copies are counted in all rows: where the policy asks for the report, or the count decides."""
    return "copies" in policy.reports or policy.copy_gate_false_alarm is not None


def sample(places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return at most `SAMPLE_ROWS` places of rows of a shard, evenly spaced, whatever is in them."""
    if len(places) <= SAMPLE_ROWS:
        return places
    return places[np.arange(SAMPLE_ROWS) * len(places) // SAMPLE_ROWS]


def count_copies(raw: pl.Series, released: pl.Series, draws: pl.Series, ngram: int | None = None) -> CopyCount:
    """Count the copies of a shard, without its canary rows.

    The kernel splits originals into words: runs of letters, marks, numbers and "'", lower-cased. Where the mechanism
    splits otherwise, less is found, and the bound holds.
    """
    if not len(raw) == len(released) == len(draws):
        raise InputError(f"{len(raw)} texts, {len(released)} releases, {len(draws)} numbers of draws: one each per row")
    with seam("counting copies"):
        rows = pl.DataFrame({"raw": raw, "released": released, "draws": draws})
        if any(column.null_count() for column in rows) or not (rows["draws"].to_numpy() > 0).all():
            rows = rows.filter(pl.col("draws") > 0).drop_nulls()
        by_draws = dict(rows["draws"].value_counts().sort("draws").iter_rows())
        before, after = (rows[name].to_arrow(compat_level=pl.CompatLevel.newest()) for name in ("raw", "released"))
        numbers = rows["draws"].cast(pl.UInt32).to_arrow()
        copies, kept, compared, shared = _kernel.count_copies(before, after, numbers, ngram)
        return CopyCount(copies, by_draws, kept, compared, shared)


@dataclass(frozen=True)
class CopyReport:
    """Holds a whole-run count next to its bound."""

    name: str  # the counted kind: `COPIES`, texts that equal their originals; `NGRAMS`, that share an n-gram
    column: str
    rows: int  # with at least one draw
    copies: int  # how many rows are copies, or share an n-gram
    expected: float  # upper bound of the expected number
    threshold: int | None  # a correct run exceeds it with probability at most `beta`; None if there is none
    beta: float
    gating: bool  # whether the policy lets the count decide about publication
    ngram: int | None = None  # words of an n-gram, for `NGRAMS`
    sampled: bool = False  # whether the rows are a sample of every shard's

    @property
    def beyond_chance(self) -> bool:
        """Whether there are more than a correct run makes by chance."""
        return self.threshold is not None and self.copies > self.threshold

    def verdict(self) -> Verdict:
        """Return the report with its counts, for people inside the boundary; a report decides nothing."""
        what = "equal their originals" if self.ngram is None else f"share {self.ngram} words in a row with them"
        rows = f"{self.rows:,} texts{SAMPLED if self.sampled else ''}"
        message = f"column {self.column!r}: {self.copies:,} of {rows} {what}, {self._allowed}"
        message += "" if self.gating else " (report only)"
        kind = "copies" if self.ngram is None else "shared_ngrams"
        counts = {"rows": self.rows, kind: self.copies, "expected": self.expected, "beta": self.beta}
        counts |= {} if self.threshold is None else {"threshold": self.threshold}
        return Verdict(self.name, not self.beyond_chance, counts, message, CATCHES[self.name])

    def gate(self) -> Verdict:
        """Return only the decision: the count is an exact statistic of raw text and stays inside the boundary."""
        what = "copies" if self.ngram is None else "shared n-grams"
        more = "more" if self.beyond_chance else "no"
        message = f"column {self.column!r}: {more} {what} beyond chance, {self._allowed}"
        counts = {"rows": self.rows, "beyond_chance": int(self.beyond_chance), "beta": self.beta}
        return Verdict(self.name, not self.beyond_chance, counts, message, CATCHES[self.name])

    @property
    def _allowed(self) -> str:
        limit = "no number would be suspicious" if self.threshold is None else f"at most {self.threshold:,} allowed"
        return f"{limit} at beta {self.beta:g}"


def copy_reports(policy: Policy, copies: Mapping[str, CopyCount], *, ngrams: bool = False) -> tuple[CopyReport, ...]:
    """Compare counts of copies, or of shared n-grams, with their bounds, column by column.

    Columns and kinds of counts share beta. A column whose mechanism does not replace words one by one, or for which no
    n-gram is long enough, has no bound and no report.
    """
    beta = (policy.copy_gate_false_alarm or REPORT_BETA) / 2 / max(1, len(policy.columns))
    reports = []
    for column, mechanism in word_columns(policy).items():
        ngram = ngram_words(mechanism) if ngrams else None
        if column not in copies or (ngrams and ngram is None):
            continue
        count = copies[column]
        draws = np.array(list(count.rows_by_draws), dtype=np.int64)
        rows = np.array(list(count.rows_by_draws.values()), dtype=np.int64)
        chances = (ngram_chances if ngrams else copy_chances)(mechanism, draws)
        total, least = int(rows.sum()), threshold(chances, rows, beta)
        reports.append(
            CopyReport(
                name=NGRAMS if ngrams else COPIES,
                column=column,
                rows=total,
                copies=count.shared_ngrams if ngrams else count.copies,
                expected=float(np.dot(chances, rows)),
                threshold=least - 1 if least <= total else None,
                beta=beta,
                gating=policy.copy_gate_false_alarm is not None,
                ngram=ngram,
                sampled=not counts_all(policy),
            )
        )
    return tuple(reports)


def gate_delta(policy: Policy) -> int:
    """Return the delta that every row is charged for the copy gate: 2 * beta in steps of 10^-15, rounded up, or 0."""
    beta = policy.copy_gate_false_alarm
    return 0 if beta is None else fine(2 * Fraction(repr(beta)))


def copy_chances(mechanism: WordByWord, draws: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Bound the chance that a row of `draws` draws equals any one given text.

    Where padding can vanish, C(N, k) < 2^N outcomes of N draws read as the same text of k words. A noisy length can
    leave a single draw.
    """
    largest = mechanism.largest_probability()
    if mechanism.length == "noisy":
        draws = np.minimum(draws, 1)
    if mechanism.length != "disclose":
        largest = min(1.0, 2 * largest)
    return np.minimum(1.0, np.power(largest, draws) * (1 + 1e-12))


def ngram_words(mechanism: WordByWord) -> int | None:
    """Return how many words an n-gram of a column has; None where chance makes shared n-grams of any length."""
    largest = word_chance(mechanism)
    if largest >= 1:
        return None
    words = max(LEAST, math.ceil(math.log(CHANCE / TEXT**2) / math.log(largest)))
    return words if words <= mechanism.n_max else None


def ngram_chances(mechanism: WordByWord, draws: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Bound the chance that a row of some draws shares an n-gram with any one reference text of as many words."""
    words = ngram_words(mechanism)
    if words is None:
        return np.ones(len(draws))
    bound = draws.astype(np.float64) ** 2 * word_chance(mechanism) ** words * (1 + 1e-12)
    return np.where(draws < words, 0.0, np.minimum(1.0, bound))


def count_reading(mechanism: Mechanism, column: pl.Series, *, every: bool = False) -> dict[str, int]:
    """Count texts with words, texts and words that are cut, and texts of which less than half of the words is known.

    For known words a sample is looked at, unless `every` text is. The counts are functions of texts. They go into the
    report in the staging folder, and nowhere else.
    """
    texts = column.to_arrow(compat_level=pl.CompatLevel.newest())
    words = count_words(texts)
    read = np.minimum(mechanism.count_read_words(texts, words), words)
    cut, places = words - read, np.flatnonzero(words)
    counts = {"texts": len(places), "cut": int((cut > 0).sum()), "cut_words": int(cut.sum(dtype=np.int64))}
    looked = places if every else sample(places)
    sampled = column.gather(pl.Series(to_arrow(looked)))
    known_words = mechanism.count_known_words(sampled.to_arrow(compat_level=pl.CompatLevel.newest()))
    if known_words is None:
        return counts
    return {**counts, "looked": len(looked), "unknown": int((2 * known_words.astype(np.int64) < read[looked]).sum())}


def reading_page(shards: Iterable[Mapping[str, Mapping[str, int]]]) -> str:
    """Write the report on the texts of a run, from the counts of its shards by text column."""
    lines = ["These numbers follow from the texts: keep them in this folder."]
    for column, counts in _totals(shards).items():
        cut = f"{counts['cut']:,} ({counts['cut'] / max(1, counts['texts']):.1%})"
        remark = "known words are not counted: a model reads every word in pieces"
        if "unknown" in counts:
            few = f"{counts['unknown']:,} ({counts['unknown'] / max(1, counts['looked']):.1%})"
            few += f" of {counts['looked']:,} that were looked at" * (counts["looked"] < counts["texts"])
            remark = f"texts of which fewer than half of the words are known: {few}; their draws are nearly random"
        lines += ["", f"column {column!r}", f"texts with words: {counts['texts']:,}", remark]
        lines.append(f"texts that are cut: {cut}; they lose {counted(counts['cut_words'], 'word')}")
    return "\n".join(lines) + "\n"


def _totals(shards: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, Counter[str]]:
    """Add up the counts of shards by text column."""
    total: dict[str, Counter[str]] = {}
    for column, counts in chain.from_iterable(shard.items() for shard in shards):
        total.setdefault(column, Counter()).update(counts)
    return total


def total_copies(shards: Iterable[Mapping[str, Mapping[str, Any]]]) -> dict[str, CopyCount]:
    total: dict[str, CopyCount] = {}
    for column, counts in chain.from_iterable(shard.items() for shard in shards):
        total[column] = total.get(column, CopyCount()) + CopyCount.from_dict(counts)
    return total


def rewriting_reports(policy: Policy, shards: Iterable[Mapping[str, Mapping[str, Any]]]) -> list[Verdict]:
    """Report the copies of every rewritten column, and how many texts its models failed on, where they failed.

    A shard holds its `copies` and `failed`, by text column.
    """
    shards, sampled = list(shards), "" if counts_all(policy) else SAMPLED
    reports = []
    for column, count in total_copies(shard.get("copies", {}) for shard in shards).items():
        rows = sum(count.rows_by_draws.values())
        message = f"column {column!r}, as it is published: {count.copies:,} of {rows:,} rewritten texts{sampled} equal "
        message += "their originals; nothing says what chance makes"
        reports.append(_reported(COPIES_PUBLISHED, {"rows": rows, "copies": count.copies}, message))
    failures: Counter[str] = Counter()
    for shard in shards:
        failures.update(shard.get("failed", {}))
    for column, texts in failures.items():
        message = f"column {column!r}: a rewriter failed on {counted(texts, 'text')}; released texts stay there"
        reports.append(_reported(REWRITING_FAILURES, {"texts": texts}, message))
    return reports


def model_failures(shards: Iterable[Mapping[str, Mapping[str, int]]]) -> list[Verdict]:
    """Report the `texts` on which a model failed and their uniform `draws`, for each column with failures."""
    reports = []
    for column, counts in _totals(shards).items():
        texts, draws = counted(counts["texts"], "text"), counted(counts["draws"], "uniform draw")
        message = f"column {column!r}: the model failed on {texts}, with {draws} at the same spend"
        reports.append(_reported(MODEL_FAILURES, counts, message))
    return reports


def _reported(name: str, counts: Mapping[str, int], message: str) -> Verdict:
    return Verdict(name, passed=True, counts=counts, message=f"{message} (report only)", catches=CATCHES[name])
