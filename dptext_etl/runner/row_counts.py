"""Count what a run will find, before any row is charged: what all rows cost, and how the ledger would respond.

Nothing is drawn or charged, and the ledger is only read. What is counted depends on ids, counts, spends, and balances,
and on which texts changed; never on what a text says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.column import INFINITE
from dptext_etl.guarantee import Disclosure
from dptext_etl.ledger import Ledger, Outcome, Scope
from dptext_etl.ledger.storage.hashed_ids import SATURATED, plus
from dptext_etl.ledger.storage.opening import ledger_exists
from dptext_etl.ledger.storage.store import MissingLedgerError
from dptext_etl.ledger.types import LEFT_OUT, NEW
from dptext_etl.policy import Policy
from dptext_etl.runner.forecast import Forecast
from dptext_etl.runner.progress import Meter
from dptext_etl.runner.shard.charging import Charged, Column, by_label, charge, views_of
from dptext_etl.runner.source.column_types import period_of
from dptext_etl.runner.source.cutting import pieces
from dptext_etl.runner.source.guessing import Spelled

_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1 << 18, 32 << 20
_PUBLISHED_AT_ONCE = 1 << 20, 64 << 20
"""Rows and bytes of published rows that are looked at together: each look may go through the whole ledger."""
_OWN = "\0"
"""What the name of a unit begins with in a forecast without a ledger, where a record is its own person."""
_ADMITTED = ("RESERVED", "AGAIN", "PENDING", "COMMITTED")


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
    """What a run will find, in counts; they travel as JSON from an executor to the driver."""

    answers: Mapping[str, int] = field(default_factory=dict)  # records by what the ledger will answer (`Outcome`)
    unkept: int = 0  # changed records of which the release has no committed text to publish again
    drawn: int = 0  # records with a draw, without those that are left out
    charged: Mapping[str, int] = field(default_factory=dict)  # new records by text column
    words: int = 0  # draws over all text columns
    computed: int = 0  # records with a text that models must compute, because it is not committed yet
    moved: int = 0  # records that were charged to another person before
    kept: Sequence[int] = ()  # records that larger and smaller caps would keep, by `forecast.FACTORS`
    # rows by month or year, and those of them that are left out
    periods: Mapping[str, Sequence[int]] = field(default_factory=dict)
    spellings: Mapping[str, int] = field(default_factory=dict)  # of persons (`table_check.spellings`)
    # records with a draw by label of an unlinked release, without forgotten ones; those over the cap count
    labels: Mapping[str, int] = field(default_factory=dict)

    @property
    def over_cap(self) -> int:
        return self.answers.get(Outcome.OVER_CAP.name, 0)

    @property
    def changed(self) -> int:
        """Records whose texts changed since the release took them."""
        return self.answers.get(Outcome.CHANGED.name, 0) + self.answers.get(Outcome.AGAIN.name, 0)

    @property
    def held(self) -> int:
        """Records that the release holds with these texts."""
        return self.answers.get(Outcome.PENDING.name, 0) + self.answers.get(Outcome.COMMITTED.name, 0)

    @property
    def records(self) -> int:
        """Records that were looked at."""
        return sum(self.answers.values())

    @property
    def admitted(self) -> int:
        """Records that the release will hold, of those that were looked at."""
        return sum(self.answers.get(name, 0) for name in _ADMITTED)

    @classmethod
    def total(cls, parts: Iterable[Expected]) -> Expected:
        answers, charged, labels, listed = Counter[str](), Counter[str](), Counter[str](), list(parts)
        for part in listed:
            answers.update(part.answers)
            charged.update(part.charged)
            labels.update(part.labels)
        names = ("unkept", "drawn", "words", "computed", "moved")
        sums = {name: sum(getattr(part, name) for part in listed) for name in names}
        periods = dict[str, list[int]]()
        for name, counts in (item for part in listed for item in part.periods.items()):
            periods[name] = [sum(pair) for pair in zip(counts, periods.get(name, (0, 0)), strict=True)]
        return cls(
            answers=dict(answers),
            charged=dict(charged),
            kept=[sum(counts) for counts in zip(*(part.kept for part in listed if part.kept), strict=True)],
            periods=periods,
            # a person with spellings in several tasks would count several times
            spellings=listed[0].spellings if len(listed) == 1 else {},
            labels=dict(labels),
            **sums,
        )


class Preview:
    """Counts what a run will find, frame by frame in the order in which it will charge them.

    `on_changed` takes the ids of records whose texts changed, and hashes of their units; they stay inside the boundary.
    Of rows that are published (`published`), answers alone are counted. What does not fit into memory goes to the
    folder `scratch`. What other runs would charge `before` counts in the forecast.
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
        before: pl.DataFrame | None = None,
    ) -> None:
        self.published = published
        self.forecast = Forecast(policy, scratch, before)
        self._policy, self._columns, self._ledger, self._on_changed = policy, list(columns), ledger, on_changed
        self._answers, self._charged, self._labels = Counter[str](), Counter[str](), Counter[str]()
        self._numbers, self._rows, self._gone = dict[str, int](), Counter[int](), Counter[int]()  # of periods
        self._spelled = Spelled(policy.normalize, scratch)
        self._unkept = self._drawn = self._words = self._computed = self._moved = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Take the next rows, without canary rows. The ledger is read first: a call that it refused can be repeated."""
        held = any(item.ref.id != NEW for item in self._columns)  # else no text can have changed
        charged = charge(frame, self._columns, self._policy, identified=held, counted=not self.published)
        outcome, asking, kept, units, used, moved = self._answer(charged)
        self._moved += int(moved.sum())
        counts = np.bincount(outcome).tolist()
        self._answers.update({Outcome(kind).name: count for kind, count in enumerate(counts) if count})
        self._computed += int((~np.isin(outcome, (Outcome.COMMITTED, *LEFT_OUT))).sum()) or self._unwritten(charged)
        changed = np.isin(outcome, (Outcome.CHANGED, Outcome.AGAIN))
        if changed.any():
            self._list_changed(frame, charged, changed)
        person = self._policy.id_columns.get("subject")
        if person is not None:
            self._spelled.add(frame[person])
        if self.published:
            return
        worst = np.zeros((len(self.forecast.components), frame.height), np.int64)
        asked = worst.copy()
        draws = np.stack([np.asarray(item.n_worst) for item in charged.charges])
        for item, mine in zip(charged.charges, asking, strict=True):
            self._charged[item.ref.column] += int(mine.sum())
            for at, name in enumerate(self.forecast.components):
                amounts = np.asarray(item.spends[name])
                worst[at] = _plus(worst[at], amounts)
                asked[at] = _plus(asked[at], np.where(mine, amounts, 0))
        self.forecast.add(worst, asked, units, draws, used, self._periods(frame, outcome))
        self._unkept += int((~kept & (outcome == Outcome.CHANGED)).sum())
        drawn = (draws > 0).any(axis=0) & (outcome != Outcome.FORGOTTEN)
        self._drawn += int(drawn.sum())
        self._labels.update(by_label(frame, drawn, self._policy.labels) or {})
        self._words += sum(_draws(frame, *pair) for pair in zip(self._columns, draws, strict=True))

    def _periods(self, frame: pl.DataFrame, outcome: npt.NDArray[np.uint8]) -> Any:
        """Return the number of each row's period, and count rows and those that are left out for other than caps."""
        by = period_of(self._policy, frame.schema)
        if by is None:
            return 0
        names = frame.select(by[1]).to_series()
        for name in names.unique():
            self._numbers.setdefault(name, len(self._numbers))
        numbers = names.replace_strict(self._numbers, return_dtype=pl.Int64).to_numpy()
        left = (Outcome.FORGOTTEN, *([Outcome.CHANGED] if self._policy.on_changed == "quarantine" else []))
        for counts, some in ((self._rows, numbers), (self._gone, numbers[np.isin(outcome, left)])):
            counts.update(dict(enumerate(np.bincount(some).tolist())))
        return numbers

    def _list_changed(self, frame: pl.DataFrame, charged: Charged, changed: npt.NDArray[np.bool_]) -> None:
        theirs = None if charged.subjects is None else charged.subjects.filter(to_arrow(changed))
        units = None if theirs is None or self._ledger is None else self._ledger.people.unit_hashes(theirs)
        if self._on_changed is not None:
            self._on_changed(frame[[self._policy.id]].filter(pl.Series(changed)), units)

    def expected(self) -> Expected:
        judged = self.forecast.over()
        over = judged["records"]
        answers = Counter(self._answers)
        for name in (Outcome.RESERVED.name, Outcome.AGAIN.name):
            left = min(over - answers[Outcome.OVER_CAP.name], answers[name])
            answers.update({Outcome.OVER_CAP.name: left, name: -left})
        left = self._drawn - over
        counts = self._unkept, left, dict(self._charged), self._words, self._computed, self._moved
        kept = [] if self._policy.cap is None or self.published else [*self.forecast.kept().values()]
        periods = {
            name: [self._rows[number], self._gone[number] + judged[number]] for name, number in self._numbers.items()
        }
        facts: dict[str, Any] = {
            "kept": kept,
            "periods": periods,
            "spellings": self._spelled.counts(),
            "labels": dict(self._labels),
        }
        return Expected(dict(+answers), *counts, **facts)

    def _unwritten(self, charged: Charged) -> int:
        """Count the texts that are committed and not rewritten yet."""
        if self._ledger is None:
            return 0
        chains = [(item.ref, item.policy.chain) for item in self._columns if item.policy.chain is not None]
        found = (self._ledger.postprocessed(ref, chain, charged.ids).mask for ref, chain in chains if ref.id != NEW)
        return sum(int((~mask).sum()) for mask in found)

    def _answer(self, charged: Charged) -> Any:
        """Return what the ledger would answer: outcomes, charged columns, kept texts, units, their use, who moved."""
        units = charged.ids if charged.subjects is None else charged.subjects
        if self._ledger is None:
            fresh = np.ones((len(charged.charges), len(charged.ids)), np.bool_)
            own = _OWN + pl.Series(charged.ids, dtype=pl.String)  # a record without a subject is its own unit
            named = pl.Series(units, dtype=pl.String).fill_null(own).to_arrow()
            used = self.forecast.used_before(None, units)
            return np.full(len(own), Outcome.RESERVED), fresh, fresh[0], named, used, ~fresh[0]
        policy = self._policy
        ready = self._ledger.make_ready(
            policy.unit, charged.ids, charged.subjects, charged.charges, own=policy.on_null_subject == "own"
        )
        again = policy.on_changed == "release_again"
        answer = self._ledger.preview(Scope.of(policy), ready, again=again)
        # a scope without a cap pins no components: a first cap counts what units have used all the same
        used = answer.used
        if not (len(used) or self.published):
            used = self.forecast.used_before(self._ledger, units)
        return answer.outcome, answer.charged, answer.changes_committed, answer.units, used, answer.moved


def preview_rows(preview: Preview, rows: pl.LazyFrame, meter: Meter) -> Expected:
    """Take all rows of a table in bounded memory."""
    at_once = _PUBLISHED_AT_ONCE if preview.published else (_ROWS_AT_ONCE, _BYTES_AT_ONCE)
    for frame in pieces(rows, *at_once):
        preview.add(frame)
        meter.add(frame.height)
    return preview.expected()


def _draws(frame: pl.DataFrame, column: Column, charged: npt.NDArray[np.uint32]) -> int:
    """Return the draws that will be made; where the length is hidden, fewer than are charged."""
    mechanism = column.policy.mechanism
    if Disclosure.LENGTH in mechanism.guarantee.disclosures:
        return int(charged.sum())
    return int(to_numpy(mechanism.positions(views_of(frame, column.name))).sum())


def _plus(total: npt.NDArray[np.int64], amounts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    both = plus(total, amounts)
    return np.where(both >= SATURATED, INFINITE, both)
