"""Look at all rows of a run before any of them is charged: what they cost, and what the ledger would answer.

Nothing is drawn or charged, and the ledger is only read. A plan and a run decide by the same counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.arrays import to_numpy
from dptext_etl.column import INFINITE
from dptext_etl.guarantee import Disclosure
from dptext_etl.ledger import Charge, Ledger, Outcome, Scope
from dptext_etl.ledger.storage.store import MissingLedgerError, ledger_exists
from dptext_etl.policy import Policy
from dptext_etl.runner.balances import Forecast
from dptext_etl.runner.progress import Meter
from dptext_etl.runner.shard.charging import Charged, Column, charge, views_of
from dptext_etl.runner.source.cutting import pieces

ROWS_AT_ONCE, BYTES_AT_ONCE = 1 << 18, 32 << 20
OWN = "\0"
"""What the name of a unit begins with in a forecast without a ledger, where a record is its own person."""

Listed = Callable[[pl.DataFrame], object]
"""Takes the ids of records whose texts changed; they stay inside the boundary."""


@contextmanager
def ledger_of(policy: Policy) -> Iterator[Ledger | None]:
    """Open the ledger of a policy to read it, or yield None; a plan makes no ledger."""
    if not ledger_exists(policy.ledger.url):
        yield None
        return
    try:
        ledger = Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True)
    except MissingLedgerError:  # making it was cut off before it held a charge; a run finishes it
        yield None
        return
    with ledger:
        yield ledger


@dataclass(frozen=True)
class Foreseen:
    """What a run will find, in counts; they travel as JSON from an executor to the driver.

    Attributes:
        answers: Records by what the ledger will answer (`Outcome`).
        unkept: Changed records of which the release has no committed text to publish again.
        drawn: Records with a draw, without those that are left out.
        charged: New draws of records by text column.
        words: Draws over all text columns.
    """

    answers: Mapping[str, int] = field(default_factory=dict)
    unkept: int = 0
    drawn: int = 0
    charged: Mapping[str, int] = field(default_factory=dict)
    words: int = 0

    @property
    def over_cap(self) -> int:
        """Records that will be over the cap."""
        return self.answers.get(Outcome.OVER_CAP.name, 0)

    @property
    def changed(self) -> int:
        """Records whose texts changed since the release took them."""
        return self.answers.get(Outcome.CHANGED.name, 0) + self.answers.get(Outcome.AGAIN.name, 0)

    @classmethod
    def together(cls, parts: Iterable[Foreseen]) -> Foreseen:
        """Add up what was found in parts of a table."""
        answers, charged, unkept, drawn, words = Counter[str](), Counter[str](), 0, 0, 0
        for part in parts:
            answers.update(part.answers)
            charged.update(part.charged)
            unkept, drawn, words = unkept + part.unkept, drawn + part.drawn, words + part.words
        return cls(dict(answers), unkept, drawn, dict(charged), words)


class Outlook:
    """Count what a run will find, frame by frame in the order in which it will charge them.

    Attributes:
        forecast: The worst cases of records and units.
    """

    def __init__(
        self, policy: Policy, columns: Sequence[Column], ledger: Ledger | None, listed: Listed | None = None
    ) -> None:
        self.forecast = Forecast(policy, ledger)
        self._policy, self._columns, self._ledger, self._listed = policy, list(columns), ledger, listed
        self._again = policy.on_changed == "release_again"
        self._answers, self._charged = Counter[str](), Counter[str]()
        self._unkept = self._drawn = self._words = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Take the next rows, without canary rows. The ledger is read first: a call that it refused can be repeated."""
        charged = charge(frame, self._columns, self._policy)
        worst = np.zeros((len(self.forecast.components), frame.height), np.int64)
        asked = worst.copy()
        draws = np.stack([np.asarray(item.n_worst) for item in charged.charges])
        outcome, asking, kept, units, used = self._foretold(charged)
        for item, mine in zip(charged.charges, asking, strict=True):
            for at, name in enumerate(self.forecast.components):
                amounts = np.asarray(item.spends[name])
                worst[at] = _plus(worst[at], amounts)
                asked[at] = _plus(asked[at], np.where(mine, amounts, 0))
        self.forecast.add(worst, asked, units, draws, used)
        self._answers.update({Outcome(kind).name: int((outcome == kind).sum()) for kind in np.unique(outcome)})
        self._charged.update({item.ref.column: int(mine.sum()) for item, mine in _pairs(charged.charges, asking)})
        self._unkept += int((~kept & (outcome == Outcome.CHANGED)).sum())
        self._drawn += int(((draws > 0).any(axis=0) & (outcome != Outcome.FORGOTTEN)).sum())
        self._words += sum(self._draws(frame, *pair) for pair in zip(self._columns, draws, strict=True))
        changed = np.isin(outcome, (Outcome.CHANGED, Outcome.AGAIN))
        if self._listed is not None and changed.any():
            self._listed(frame[[self._policy.id]].filter(pl.Series(changed)))

    def found(self) -> Foreseen:
        """Return the counts so far."""
        over = self.forecast.over_cap()["records"]
        answers = Counter(self._answers)
        for name in (Outcome.RESERVED.name, Outcome.AGAIN.name):
            left = min(over - answers[Outcome.OVER_CAP.name], answers[name])
            answers.update({Outcome.OVER_CAP.name: left, name: -left})
        return Foreseen(dict(+answers), self._unkept, self._drawn - over, dict(self._charged), self._words)

    def _foretold(self, charged: Charged) -> Any:
        rows = len(charged.ids)
        if self._ledger is None:
            fresh = np.ones((len(charged.charges), rows), np.bool_)
            used = np.zeros((len(self.forecast.components), rows), np.int64)
            return np.full(rows, Outcome.RESERVED), fresh, fresh[0], _units(charged), used
        own = self._policy.on_null_subject == "own"
        ready = self._ledger.make_ready(self._policy.unit, charged.ids, charged.subjects, charged.charges, own=own)
        expected = self._ledger.preview(Scope.of(self._policy), ready, again=self._again)
        used = expected.used if len(expected.used) else self._used_without_cap(charged)
        return expected.outcome, expected.charged, expected.changes_committed, expected.units, used

    def _used_without_cap(self, charged: Charged) -> npt.NDArray[np.int64]:
        """Return what units have used in a scope that has no cap yet: a first cap counts it."""
        units = charged.ids if charged.subjects is None else charged.subjects
        used = np.zeros((len(self.forecast.components), len(units)), np.int64)
        if self._ledger is not None and self._policy.cap is not None:
            known = to_numpy(units.is_valid())
            found = self._ledger.used(Scope.of(self._policy), units.filter(units.is_valid()))
            for at, name in enumerate(self.forecast.components):
                used[at, known] = found.get(name, 0)
        return used

    def _draws(self, frame: pl.DataFrame, column: Column, charged: npt.NDArray[np.uint32]) -> int:
        """Return the draws that will be made; where the length is hidden, fewer than are charged."""
        mechanism = column.policy.mechanism
        if Disclosure.LENGTH in mechanism.guarantee.disclosures:
            return int(charged.sum())
        return int(to_numpy(mechanism.positions(views_of(frame, column.name))).sum())


def look(outlook: Outlook, rows: pl.LazyFrame, meter: Meter) -> Foreseen:
    """Take all rows of a table in bounded memory."""
    for frame in pieces(rows, ROWS_AT_ONCE, BYTES_AT_ONCE):
        outlook.add(frame)
        meter.add(frame.height)
    return outlook.found()


def _pairs(charges: Sequence[Charge], asking: npt.NDArray[np.bool_]) -> Iterator[tuple[Charge, npt.NDArray[np.bool_]]]:
    return zip(charges, asking, strict=True)


def _units(charged: Charged) -> pa.Array:
    """Return canonical ids of the units; a record without a subject is its own."""
    if charged.subjects is None:
        return charged.ids
    names = pl.Series(charged.subjects, dtype=pl.String)
    if not names.null_count():
        return charged.subjects
    own = OWN + pl.Series(charged.ids, dtype=pl.String)
    return names.fill_null(own).to_arrow()


def _plus(total: npt.NDArray[np.int64], amounts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    endless = (amounts == INFINITE) | (total == INFINITE)
    return np.where(endless, INFINITE, total + np.where(endless, 0, amounts))
