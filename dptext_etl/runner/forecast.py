"""Forecast a run before any row is charged: the cost of all rows, and the responses of the ledger.

`Preview` has the ledger judge all rows, as it will when they are charged, and counts its answers. `Forecast` adds up
worst cases per record and unit, and states the epsilon of one person. Nothing is drawn or charged, and the ledger is
only read. Counts depend on ids, spends, balances, and on which texts changed; never on the contents of a text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.accounting import MEASURES, PureDraws, joint, least, range_bounded, spend
from dptext_etl.arrays import starts, to_arrow, to_numpy
from dptext_etl.checks.comparison import Buckets, ByteRows
from dptext_etl.checks.text_counts import gate_delta
from dptext_etl.column import INFINITE, spends
from dptext_etl.guarantee import ADDITIVE, MICRO, PURE, Disclosure, Spend
from dptext_etl.keys import Normalization, normalized
from dptext_etl.ledger import Ledger, Outcome, Scope
from dptext_etl.ledger.caps import EarlierCharges, limits
from dptext_etl.ledger.charges import Decision
from dptext_etl.ledger.ledger import ledger_exists
from dptext_etl.ledger.storage.hashed_ids import SATURATED, add_at, plus
from dptext_etl.ledger.storage.store import MissingLedgerError
from dptext_etl.ledger.types import EXCLUDED, NEW, Mask
from dptext_etl.mechanism import Mechanism, worst_spend
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner.progress import Meter
from dptext_etl.runner.publish.manifest import guarantee_of, with_gate
from dptext_etl.runner.shard.charging import PAIRS, Charged, Column, by_label, charge, pieces, views_of
from dptext_etl.runner.source.column_types import HELD, period_of

Amounts = npt.NDArray[np.int64]
Counts = npt.NDArray[np.uint32]

DELTA = 1e-6
"""The delta of the statement about one person, unless the caller gives another."""
FACTORS = (0.5, *(factor * 2**power for power in range(8) for factor in (1.0, 1.4)))
"""Caps, as multiples of the policy's cap, for which kept rows are counted."""
_INFINITE = INFINITE // 8
"""The amount that counts as infinite in sums: far above any cap, and small enough that sums cannot overflow."""


class Forecast:
    """Adds up worst cases per record and unit in the components of the cap's measure, in bounded memory.

    Rows of subjects wait on the disk until all are there, dozens of bytes each, in the folder `scratch`.
    """

    def __init__(self, policy: Policy, scratch: Path | None = None) -> None:
        self._policy, self._scratch = policy, scratch
        whole = PURE if policy.synthetic is None else "eps_approx"
        self.components = MEASURES[policy.cap.measure] if policy.cap is not None else (whole,)
        self.records = Counter[int]()  # the records by their worst case in the first component
        self._over = Counter(records=0, units=0)
        self._fitting = np.zeros(len(FACTORS) + 1, np.int64)
        self._lengths: list[set[int]] = []  # positions that are charged in each column, where records are units
        self._rows: Buckets | None = None

    def add(  # noqa: PLR0917
        self, worst: Amounts, requests: Amounts, units: Amounts, charged: Counts, used: Amounts, over: Mask
    ) -> None:
        """Add a shard; units are hashes, with their use by component, and `over` marks the records over the cap."""
        worst, requests, used = (np.minimum(amounts, _INFINITE) for amounts in (worst[:1], requests, used))
        self.records.update(_histogram(worst[0]))
        self._over.update(records=int(over.sum()))
        if self._policy.unit == "record":  # each record is a unit: ids are checked
            self._lengths = self._lengths or [set() for _ in charged]
            for lengths, counts in zip(self._lengths, charged, strict=True):
                lengths.update(np.unique(counts).tolist())
            rows = worst.shape[1]
            self._over.update(units=int(over.sum()))
            self._fitting += self._fits(
                _Rows(np.arange(rows), np.arange(rows), worst[0], requests, used, over, charged)
            )
            return
        table = np.concatenate([units[None], worst, requests, used, over[None], charged.astype(np.int64)])
        self._rows = self._rows or Buckets(8 * len(table), self._scratch)
        self._rows.add(np.ascontiguousarray(table.T).view(np.uint8))

    def subjects(self) -> Counter[int] | None:
        """Count the subjects by their worst case in the first component; None where the unit is the record."""
        if self._policy.unit == "record":
            return None
        totals = Counter[int]()
        for rows in self._by_unit():
            totals.update(_histogram(rows.by_unit(rows.worst)))
        return totals

    def largest_totals(self, column: int, amounts: Callable[[Counts], Mapping[str, Amounts]]) -> dict[str, int]:
        """Return the largest sums of any unit, by name, of the costs of positions in a column; see `is_infinite`."""
        largest: Counter[str] = Counter()
        of_records = ((np.array(sorted(lengths), np.uint32), None) for lengths in self._lengths[column : column + 1])
        of_subjects = ((rows.charged[column].astype(np.uint32), rows) for rows in self._by_unit())
        for charged, rows in chain(of_records, of_subjects):
            for name, costs in amounts(charged).items():
                finite = np.minimum(costs, _INFINITE)
                totals = finite if rows is None else rows.by_unit(finite)
                largest[name] = max(largest[name], int(totals.max(initial=0)))
        return largest

    def over(self) -> dict[str, int]:
        """Count the records that do not fit, and their units."""
        return {"records": self._over["records"], "units": self._judged[0]}

    @cached_property
    def _judged(self) -> tuple[int, npt.NDArray[np.int64]]:
        """The units with records over the cap, and the counts of `_fits`, over all rows; none may be added later."""
        units, fitting = self._over["units"], self._fitting.copy()
        for rows in self._by_unit():
            units += len(np.unique(rows.where[rows.over > 0]))
            fitting += self._fits(rows)
        return units, fitting

    def kept(self) -> dict[float, int]:
        """Count the records that would fit if the first limit of the cap were multiplied, by the `FACTORS`.

        Where the records of a unit differ in cost, a run may keep some more: a later, cheaper one may fit.
        """
        return dict(zip(FACTORS, np.cumsum(self._judged[1]).tolist(), strict=False))

    def _fits(self, rows: _Rows) -> npt.NDArray[np.int64]:
        """Count records by the least of `FACTORS` with which they fit; at the end are those that fit with none."""
        if self._policy.cap is None:
            return np.zeros(len(FACTORS) + 1, np.int64)
        first, *others = limits(self._policy.cap)
        totals = rows.running() + rows.used
        least = np.searchsorted(first * np.array(FACTORS), totals[0])
        for total, limit in zip(totals[1:], others, strict=True):
            least[total > limit] = len(FACTORS)
        least[~(rows.requests > 0).any(axis=0)] = 0
        return np.bincount(least, minlength=len(FACTORS) + 1)

    def _by_unit(self) -> Iterator[_Rows]:
        """Iterate over the rows of subjects, all of a subject at once, in the order in which they were added."""
        measured = len(self.components)
        for cells in () if self._rows is None else self._rows.each():
            hashes, worst, requests, used, over, charged = np.split(
                cells.view(np.int64).T, np.cumsum([1, 1, measured, measured, 1])
            )
            units, where = np.unique(hashes[0], return_inverse=True)
            yield _Rows(units, where, worst[0], requests, used, over[0], charged)


class _Rows(NamedTuple):
    """All rows of some units, in their order."""

    hashes: Amounts  # a hash of each unit, int64, shape (units,)
    where: npt.NDArray[np.intp]  # the unit of each row, shape (rows,)
    worst: Amounts  # the worst case of each row in the first component, shape (rows,)
    requests: Amounts  # the requested charge of each row, shape (components, rows)
    used: Amounts  # the use of its unit, shape (components, rows)
    over: npt.NDArray[Any]  # whether the row is over the cap, shape (rows,)
    charged: npt.NDArray[Any]  # positions that are charged, shape (columns, rows)

    def running(self) -> Amounts:
        """Add up the requests of a unit row by row, shape (components, rows); sums saturate."""
        order = np.argsort(self.where, kind="stable")
        begins, requests = starts(self.where[order]), self.requests[:, order]
        exact = requests if len(order) * int(requests.max(initial=0)) < SATURATED else requests.astype(object)
        added = np.cumsum(exact, axis=1)
        added -= np.repeat((added - exact)[:, begins], np.diff(begins, append=len(order)), axis=1)
        totals = np.empty_like(requests)
        totals[:, order] = np.minimum(added, SATURATED)
        return totals

    def by_unit(self, amounts: Amounts) -> Amounts:
        """Add up per unit; a sum with an infinite part is infinite."""
        summed = np.zeros((1, len(self.hashes)), np.int64)
        add_at(summed, self.where, amounts[None])
        totals: Amounts = np.minimum(summed[0], _INFINITE)
        return totals


def _histogram(amounts: Amounts) -> Counter[int]:
    distinct, counts = np.unique(amounts, return_counts=True)
    return Counter(dict(zip(distinct.tolist(), counts.tolist(), strict=True)))


def is_infinite(amount: int) -> bool:
    """Return whether a forecast amount means that there is no bound."""
    return amount >= _INFINITE


def least_epsilon(forecast: Forecast, policy: Policy, columns: list[ColumnPolicy], delta: float) -> dict[str, Any]:
    """Return the least epsilon that holds at `delta` for every person, over all records of the run.

    The bound adds up, column by column, the largest total of any unit. So it holds for each unit, also where one has
    the most words in one column and another in the next (docs/spec/privacy.md#compose-records, #compose-mixture).
    """
    if policy.synthetic is not None:
        most = policy.synthetic.per_subject if policy.unit == "subject" else 1
        person = most * worst_spend(columns[0].mechanism).eps_approx / MICRO
        return {"unit": policy.unit, "epsilon": person, "delta": policy.synthetic.mechanism.delta, "rule": "gaussian"}
    gate, totals = gate_delta(policy), list[Spend]()
    drawn: list[PureDraws] | None = None if gate else []  # None unless all are range-bounded, and charged as such
    for at, mechanism in enumerate(column.mechanism for column in columns):
        largest = forecast.largest_totals(at, partial(_costs, mechanism, gate))
        finite: dict[str, Any] = {name: math.inf if is_infinite(largest[name]) else largest[name] for name in ADDITIVE}
        totals.append(Spend(guarantee_of(mechanism, gate).guarantee_class, **finite))
        if drawn is not None:
            most = forecast.largest_totals(at, lambda charged: {"draws": charged.astype(np.int64)})["draws"]
            event = mechanism.event(most)
            draws = range_bounded(event)
            same = draws is not None and mechanism.spend(most) == spend(mechanism.guarantee, event, most)
            drawn = [*drawn, *draws] if draws is not None and same else None
    bound = least(joint(totals, delta, draws=drawn))
    epsilon = "inf" if math.isinf(bound.epsilon) else bound.epsilon / MICRO
    return {"unit": policy.unit, "epsilon": epsilon, "delta": bound.delta / MICRO, "rule": bound.rule}


def _costs(mechanism: Mechanism, gate: int, charged: Counts) -> Mapping[str, Amounts]:
    return with_gate(spends(mechanism, to_arrow(charged)), gate)


_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1 << 18, 32 << 20
_PUBLISHED_AT_ONCE = 1 << 20, 64 << 20
"""Rows and bytes of published rows that are looked at together: each look may go through the whole ledger."""


@contextmanager
def ledger_of(policy: Policy, *, writing: bool = False) -> Iterator[Ledger | None]:
    """Open the ledger of a policy, by default to read it, or yield None; no ledger is made."""
    if not ledger_exists(policy.ledger.url):
        yield None
        return
    try:
        ledger = Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=not writing)
    except MissingLedgerError:  # making it was cut off before it held a charge; a run finishes it
        yield None
        return
    with ledger:
        yield ledger


@dataclass(frozen=True)
class Expected:
    """The preview of a run, in counts; they travel as JSON from an executor to the driver."""

    answers: Mapping[str, int] = field(default_factory=dict)  # records by the ledger's future answer (`Outcome`)
    unkept: int = 0  # changed records of which the release has no committed text to publish again
    drawn: int = 0  # records with a draw, without those that are excluded
    charged: Mapping[str, int] = field(default_factory=dict)  # new records that fit, by text column
    words: int = 0  # draws over all text columns
    computed: int = 0  # records with a text that models must compute, because it is not committed yet
    moved: int = 0  # records that were charged to another person before
    kept: Sequence[int] = ()  # records that larger and smaller caps would keep, by `forecast.FACTORS`
    # rows by month or year, and how many of them are excluded
    periods: Mapping[str, Sequence[int]] = field(default_factory=dict)
    spellings: Mapping[str, int] = field(default_factory=dict)  # of persons (`table_check.spellings`)
    # records with a draw by label of a shuffled release, without those that are excluded
    labels: Mapping[str, int] = field(default_factory=dict)
    # sums of digests of records with their persons (`Charged.pairs`): on Spark by the number of the shard
    pairs: Mapping[str, int] = field(default_factory=dict)
    # of rows with the mark `column_types.HELD`: those that are excluded, and forgotten ones
    held: Sequence[int] = (0, 0)

    @property
    def over_cap(self) -> int:
        return self.answers.get(Outcome.OVER_CAP.name, 0)

    @property
    def changed(self) -> int:
        """Records whose texts changed since the release charged them."""
        return self.answers.get(Outcome.CHANGED.name, 0) + self.answers.get(Outcome.AGAIN.name, 0)

    @property
    def charged_before(self) -> int:
        """Records that the release holds with these texts."""
        return self.answers.get(Outcome.PENDING.name, 0) + self.answers.get(Outcome.COMMITTED.name, 0)

    @property
    def records(self) -> int:
        """Records that were looked at."""
        return sum(self.answers.values())

    @property
    def admitted(self) -> int:
        """Records that the release will hold, of those that were looked at."""
        return sum(self.answers.get(name, 0) for name in ("RESERVED", "AGAIN", "PENDING", "COMMITTED"))

    @classmethod
    def total(cls, parts: Iterable[Expected]) -> Expected:
        listed, periods = list(parts), dict[str, list[int]]()
        counters = {name: Counter[str]() for name in ("answers", "charged", "labels", "pairs")}
        for part, (name, counts) in product(listed, counters.items()):
            counts.update(getattr(part, name))
        sums: dict[str, Any] = {name: dict(counts) for name, counts in counters.items()}
        sums["pairs"] = {number: pairs % PAIRS for number, pairs in counters["pairs"].items()}
        sums["held"] = tuple(sum(part.held[at] for part in listed) for at in range(2))
        numbers = ("unkept", "drawn", "words", "computed", "moved")
        sums |= {name: sum(getattr(part, name) for part in listed) for name in numbers}
        for name, values in (item for part in listed for item in part.periods.items()):
            periods[name] = [sum(pair) for pair in zip(values, periods.get(name, (0, 0)), strict=True)]
        return cls(
            kept=[sum(counts) for counts in zip(*(part.kept for part in listed if part.kept), strict=True)],
            periods=periods,
            # a person with spellings in several tasks would count several times
            spellings=listed[0].spellings if len(listed) == 1 else {},
            **sums,
        )


class Preview:
    """Previews a run, frame by frame in the order in which it will charge them.

    `on_changed` receives the ids of records whose texts changed, and hashes of their units; they stay inside the
    boundary. Of rows that are published (`published`), only answers are counted. Rows that do not fit into memory go to
    the folder `scratch`.
    """

    def __init__(
        self,
        policy: Policy,
        columns: Sequence[Column],
        ledger: Ledger | None,
        on_changed: Callable[[pl.DataFrame, pa.Array | None], object] | None = None,
        *,
        published: bool = False,
        scratch: Path | None = None,
    ) -> None:
        self.published = published
        self.forecast = Forecast(policy, scratch)
        self._ledger = ledger or Ledger.empty(policy.ledger.id_key)
        self._before = EarlierCharges()  # charges of the frames that were added
        self._policy, self._columns, self._on_changed = policy, list(columns), on_changed
        self._spelled, self._seen = Spelled(policy.normalize, scratch), Expected()

    def add(self, frame: pl.DataFrame, shard: str = "") -> None:
        """Add the next rows, without canary rows. The ledger is read first: a call that it refused can be repeated."""
        policy, released = self._policy, self._policy.on_changed == "release_again"
        pinned = any(item.ref.id != NEW for item in self._columns)  # else no text can have changed
        charged = charge(frame, self._columns, policy, identified=pinned, counted=not self.published)
        batch, own = (charged.ids, charged.subjects, charged.charges), policy.on_null_subject == "own"
        ready = self._ledger.make_ready(policy.unit, *batch, own=own)
        cap = None if self.published else policy.cap
        answer = self._ledger.judge(Scope.of(policy), cap, ready, again=released, before=self._before)
        outcome = answer.outcome
        computed = int((~np.isin(outcome, (Outcome.COMMITTED, *EXCLUDED))).sum())
        if not computed:  # texts that are committed and not rewritten yet
            chains = [(item.ref, item.policy.chain) for item in self._columns if item.policy.chain is not None]
            parts = [self._ledger.committed(ref, charged.ids, chain=name) for ref, name in chains if ref.id != NEW]
            computed = sum(int((~part.mask).sum()) for part in parts)
        if policy.unit == "subject":  # a record that is its own unit comes once
            self._before.add(ready.unit_ids, answer.admitted)
        answers = {Outcome(kind).name: count for kind, count in enumerate(np.bincount(outcome).tolist()) if count}
        moved, pairs = int(answer.moved.sum()), {shard: charged.pairs}
        seen = Expected(answers=answers, computed=computed, moved=moved, pairs=pairs)
        changed = np.isin(outcome, (Outcome.CHANGED, Outcome.AGAIN))
        if changed.any():
            subjects = None if charged.subjects is None else charged.subjects.filter(to_arrow(changed))
            units = None if subjects is None else self._ledger.people.unit_hashes(subjects)
            if self._on_changed is not None and HELD not in frame.columns:  # else they are listed already
                self._on_changed(frame[[self._policy.id]].filter(pl.Series(changed)), units)
        person = policy.id_columns.get("subject")
        if person is not None:
            self._spelled.add(frame[person])
        if not self.published:
            seen = self._counted(frame, charged, answer, ready.unit_ids.hi.view(np.int64), seen)
        self._seen = Expected.total([self._seen, seen])

    def _counted(
        self, frame: pl.DataFrame, charged: Charged, answer: Decision, units: Amounts, seen: Expected
    ) -> Expected:
        """Count draws, charges, and excluded rows, and add their cost to the forecast; `units` are hashes."""
        policy, outcome, over = self._policy, answer.outcome, answer.outcome == Outcome.OVER_CAP
        worst = np.zeros((len(self.forecast.components), frame.height), np.int64)
        requests, used = worst.copy(), answer.used if policy.cap is not None else worst
        draws = np.stack([np.asarray(item.n_worst) for item in charged.charges])
        new, words = dict[str, int](), 0
        for column, charges in zip(self._columns, draws, strict=True):
            mechanism = column.policy.mechanism
            hidden = Disclosure.LENGTH not in mechanism.guarantee.disclosures  # then fewer are drawn than are charged
            drawn_now = to_numpy(mechanism.positions(views_of(frame, column.name))) if hidden else charges
            words += int(drawn_now.sum())
        for item, asking in zip(charged.charges, answer.asking, strict=True):
            new[item.ref.column] = int((asking & ~over).sum())
            for at, name in enumerate(self.forecast.components):
                amounts = np.asarray(item.spends[name])
                worst[at] = _plus(worst[at], amounts)
                requests[at] = _plus(requests[at], np.where(asking, amounts, 0))
        self.forecast.add(worst, requests, units, draws, used, over)
        forgotten = outcome == Outcome.FORGOTTEN
        drawn = (draws > 0).any(axis=0) & ~over & ~forgotten
        gone = forgotten | over | ((outcome == Outcome.CHANGED) & (policy.on_changed == "quarantine"))
        periods, held = dict[str, list[int]](), (0, 0)
        if (by := period_of(policy, frame.schema)) is not None:
            rows = frame.select(by[1].alias("period"), pl.lit(pl.Series(gone)).alias("gone")).group_by("period")
            periods = {name: [*counts] for name, *counts in rows.agg(pl.len(), pl.col("gone").sum()).iter_rows()}
        if HELD in frame.columns:
            marks = frame[HELD].to_numpy()
            held = int((marks & gone & ~forgotten).sum()), int((marks & forgotten).sum())
        return replace(
            seen,
            unkept=int((~answer.changes_committed & (outcome == Outcome.CHANGED)).sum()),
            drawn=int(drawn.sum()),
            charged=new,
            words=words,
            labels=by_label(frame, drawn, policy.labels) or {},
            periods=periods,
            held=held,
        )

    def expected(self) -> Expected:
        """Return the counts of all rows, after the last frame."""
        kept = [] if self._policy.cap is None or self.published else [*self.forecast.kept().values()]
        return replace(self._seen, kept=kept, spellings=self._spelled.counts())


def preview_rows(preview: Preview, rows: pl.LazyFrame, meter: Meter) -> Expected:
    """Preview all rows of a table in bounded memory."""
    at_once = _PUBLISHED_AT_ONCE if preview.published else (_ROWS_AT_ONCE, _BYTES_AT_ONCE)
    for frame in pieces(rows, *at_once):
        preview.add(frame)
        meter.add(frame.height)
    return preview.expected()


def _plus(total: npt.NDArray[np.int64], amounts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    both = plus(total, amounts)
    return np.where(both >= SATURATED, INFINITE, both)


_PLAIN = r"^[!-@\[-~]([ -@\[-~]*[!-@\[-~])?$"
"""Matches ASCII without capital letters and outer blanks."""
EVERY_STEP: tuple[Normalization, ...] = get_args(Normalization)
SPELLINGS = ("persons", "alike", "folded")
"""Counts of persons: as the policy spells them, with every step, and without punctuation and accents."""


_FOLDED = r"^[0-9a-z]+$"
"""Matches names that `_folded` does not change."""


def _folded(names: pl.Series) -> pl.Series:
    """Return names without accents, other forms of letters, blanks, and punctuation; it stays between two digits."""
    cell, digits = pl.col("name"), r"(\p{N})[^\p{L}\p{N}]+(\p{N})"
    bare = cell.str.to_lowercase().str.normalize("NFKD").str.replace_all(r"\p{M}+", "").str.to_lowercase()
    for _ in range(2):  # of "1-2-3", a pass finds every other pair
        bare = bare.str.replace_all(digits, "${1}\u0001${2}")
    bare = bare.str.replace_all(r"[^\p{L}\p{N}\x01]+", "")
    return names.to_frame("name").select(pl.when(bare == "").then(cell).otherwise(bare)).to_series()


class Spelled:
    """Count persons in bounded memory, by hashes of 64 bits in the folder `scratch`, batch by batch."""

    def __init__(self, how: Sequence[Normalization] = (), scratch: Path | None = None) -> None:
        self._steps, self._hashes = (how, EVERY_STEP), [Buckets(8, scratch) for _ in SPELLINGS]

    def add(self, persons: pl.Series) -> None:
        """Take persons as the source has them; nulls do not count, nor persons that are not strings."""
        if persons.dtype == pl.String:
            names = persons.alias("person").drop_nulls().unique()
            plain = names.str.contains(_PLAIN)  # no step changes them
            *by_steps, folded = self._hashes
            for steps, hashes in zip(self._steps, by_steps, strict=True):
                hashes.add(_hashes(names.filter(plain)))
                hashes.add(_hashes(normalized(names.filter(~plain).to_arrow(), steps)))
            letters = names.str.contains(_FOLDED)
            folded.add(_hashes(names.filter(letters)))
            other = pl.Series(normalized(names.filter(~letters).to_arrow(), EVERY_STEP), dtype=pl.String)
            folded.add(_hashes(_folded(other)))

    def drained(self) -> Iterator[ByteRows]:
        """Yield the hashes for the counts of `counts`, in that order, for others to count with hashes of more rows."""
        for hashes in self._hashes:
            yield np.concatenate([*hashes.drain()])

    def counts(self) -> dict[str, int]:
        """Return the distinct `persons` as `how` spells them, `alike` with every step, and `folded` (`_folded`).

        Nothing without persons.
        """
        counts = {name: hashes.distinct() for name, hashes in zip(SPELLINGS, self._hashes, strict=True)}
        for hashes in self._hashes:
            hashes.close()
        return counts if counts["persons"] else {}


def _hashes(names: pa.Array | pl.Series) -> Any:
    return pl.Series(names, dtype=pl.String).unique().hash().to_numpy().view(np.uint8).reshape(-1, 8)


def spelling_lines(part: dict[str, int]) -> list[str]:
    """Say how many persons have several variants of their id."""
    persons, alike = f"{part['persons']:,} persons", f"{part['alike']:,} without case and blanks"
    more = part["alike"] - part["folded"]
    folded = f"{more:,} more would join without punctuation and accents: write these alike in the source"
    steps = ", ".join(f'"{step}"' for step in EVERY_STEP)
    way = f"every variant of an id has a separate cap; set normalize = [{steps}] before the first run"
    first = persons if part["alike"] == part["persons"] else f"{persons}; {alike}: {way}"
    return [first, folded] if more else [first]
