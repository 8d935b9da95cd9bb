"""Look at all rows of a run before any of them is charged, and refuse a run that could not end.

Nothing is drawn or charged, and the ledger is only read. A plan asks the same functions, so it meets every refusal of a
run, in the same order: places, source, canary rows, what the ledger pins, and what it would answer to the rows.
Refusals depend on counts, spends, and balances, and on which texts changed; never on what a text says.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from dptext_etl import files
from dptext_etl.arrays import to_numpy
from dptext_etl.column import INFINITE
from dptext_etl.delta_policy import refuse_more_records
from dptext_etl.errors import InputError
from dptext_etl.guarantee import Disclosure
from dptext_etl.ledger import Ledger, Outcome, ReleaseRef, Scope
from dptext_etl.ledger.caps import limits
from dptext_etl.ledger.id_key import resolve_id_key
from dptext_etl.ledger.storage.store import MissingLedgerError, ledger_exists, require_writable
from dptext_etl.ledger.types import NEW
from dptext_etl.mechanism import stated_records
from dptext_etl.policy import Policy
from dptext_etl.runner.claims import register
from dptext_etl.runner.forecast import Forecast
from dptext_etl.runner.progress import Meter
from dptext_etl.runner.publish.publication import require_enough
from dptext_etl.runner.publish.versions import require_sink
from dptext_etl.runner.shard.attempt import Attempt, refuse_over_cap, refuse_too_few
from dptext_etl.runner.shard.charging import Charged, Column, charge, views_of
from dptext_etl.runner.shard.replay import require_earlier_texts
from dptext_etl.runner.source.cutting import pieces
from dptext_etl.runner.source.examine import Examined
from dptext_etl.runner.source.roles import forms_of

_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1 << 18, 32 << 20
_PUBLISHED_AT_ONCE = 1 << 20, 64 << 20
"""Rows and bytes of published rows that are looked at together: each look goes through the ledger's whole index."""
_OWN = "\0"
"""What the name of a unit begins with in a forecast without a ledger, where a record is its own person."""
_ROW_BYTES, _DRAW_BYTES = 256, 4
"""The least that a run writes for a record in a column, in ledger and staging together, and for a draw."""


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
class Expected:
    """What a run will find, in counts; they travel as JSON from an executor to the driver."""

    answers: Mapping[str, int] = field(default_factory=dict)  # records by what the ledger will answer (`Outcome`)
    unkept: int = 0  # changed records of which the release has no committed text to publish again
    drawn: int = 0  # records with a draw, without those that are left out
    charged: Mapping[str, int] = field(default_factory=dict)  # new records by text column
    words: int = 0  # draws over all text columns

    @property
    def over_cap(self) -> int:
        return self.answers.get(Outcome.OVER_CAP.name, 0)

    @property
    def changed(self) -> int:
        """Records whose texts changed since the release took them."""
        return self.answers.get(Outcome.CHANGED.name, 0) + self.answers.get(Outcome.AGAIN.name, 0)

    @classmethod
    def total(cls, parts: Iterable[Expected]) -> Expected:
        answers, charged, unkept, drawn, words = Counter[str](), Counter[str](), 0, 0, 0
        for part in parts:
            answers.update(part.answers)
            charged.update(part.charged)
            unkept, drawn, words = unkept + part.unkept, drawn + part.drawn, words + part.words
        return cls(dict(answers), unkept, drawn, dict(charged), words)


class Preview:
    """Counts what a run will find, frame by frame in the order in which it will charge them.

    `on_changed` takes the ids of records whose texts changed; they stay inside the boundary. Of rows that are published
    (`published`), answers alone are counted.
    """

    def __init__(
        self,
        policy: Policy,
        columns: Sequence[Column],
        ledger: Ledger | None,
        on_changed: Callable[[pl.DataFrame], object] | None = None,
        *,
        published: bool = False,
    ) -> None:
        self.published = published
        self.forecast = Forecast(policy)
        self._policy, self._columns, self._ledger, self._on_changed = policy, list(columns), ledger, on_changed
        self._answers, self._charged = Counter[str](), Counter[str]()
        self._unkept = self._drawn = self._words = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Take the next rows, without canary rows. The ledger is read first: a call that it refused can be repeated."""
        charged = charge(frame, self._columns, self._policy)
        outcome, asking, kept, units, used = self._answer(charged)
        self._answers.update({Outcome(kind).name: int((outcome == kind).sum()) for kind in np.unique(outcome)})
        changed = np.isin(outcome, (Outcome.CHANGED, Outcome.AGAIN))
        if self._on_changed is not None and changed.any():
            self._on_changed(frame[[self._policy.id]].filter(pl.Series(changed)))
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
        self.forecast.add(worst, asked, units, draws, used)
        self._unkept += int((~kept & (outcome == Outcome.CHANGED)).sum())
        self._drawn += int(((draws > 0).any(axis=0) & (outcome != Outcome.FORGOTTEN)).sum())
        self._words += sum(_draws(frame, *pair) for pair in zip(self._columns, draws, strict=True))

    def expected(self) -> Expected:
        over = self.forecast.over_cap()["records"]
        answers = Counter(self._answers)
        for name in (Outcome.RESERVED.name, Outcome.AGAIN.name):
            left = min(over - answers[Outcome.OVER_CAP.name], answers[name])
            answers.update({Outcome.OVER_CAP.name: left, name: -left})
        return Expected(dict(+answers), self._unkept, self._drawn - over, dict(self._charged), self._words)

    def _answer(self, charged: Charged) -> Any:
        """Return what the ledger would answer: outcomes, charged columns, kept texts, units, and what these used."""
        units = charged.ids if charged.subjects is None else charged.subjects
        if self._ledger is None:
            fresh = np.ones((len(charged.charges), len(charged.ids)), np.bool_)
            own = _OWN + pl.Series(charged.ids, dtype=pl.String)  # a record without a subject is its own unit
            named = pl.Series(units, dtype=pl.String).fill_null(own).to_arrow()
            return np.full(len(own), Outcome.RESERVED), fresh, fresh[0], named, self.forecast.used_before(None, units)
        policy = self._policy
        ready = self._ledger.make_ready(
            policy.unit, charged.ids, charged.subjects, charged.charges, own=policy.on_null_subject == "own"
        )
        again = policy.on_changed == "release_again"
        answer = self._ledger.preview(Scope.of(policy), ready, again=again, balances=not self.published)
        # a scope without a cap pins no components: a first cap counts what units have used all the same
        used = answer.used
        if not (len(used) or self.published):
            used = self.forecast.used_before(self._ledger, units)
        return answer.outcome, answer.charged, answer.changes_committed, answer.units, used


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
    infinite = (amounts == INFINITE) | (total == INFINITE)
    return np.where(infinite, INFINITE, total + np.where(infinite, 0, amounts))


def require_places(attempt: Attempt) -> None:
    """Refuse places that cannot be written to. Nothing is made."""
    layout = attempt.layout
    if not layout.staging.remote:
        files.require_own(layout.staging.folder)
    require_sink(layout, making=False)
    require_writable(attempt.policy.ledger.url)


def require_cap(attempt: Attempt, ledger: Ledger | None) -> None:
    """Refuse a cap that the ledger would not pin. Nothing is pinned."""
    policy = attempt.policy
    if ledger is not None:
        ledger.require_cap(Scope.of(policy), policy.cap, lowering=attempt.accept_lower_cap)
    elif policy.cap is not None:
        limits(policy.cap)


def columns_of(attempt: Attempt, ledger: Ledger | None, source: Examined[Any]) -> list[Column]:
    """Return the text columns with their releases, and refuse what the ledger would not pin. Nothing is pinned."""
    policy = attempt.policy
    if ledger is None:
        if policy.ledger.id_key is not None:
            resolve_id_key(policy.ledger.id_key)
        names = [(item.dataset, item.column or "", item.release, item.mechanism.cfg()) for item in attempt.columns]
        refs = [ReleaseRef(NEW, *name) for name in names]
    else:
        refs = [register(ledger, policy, item, source.table.id_type, pin=False) for item in attempt.columns]
        forms = forms_of(source.table.schema, policy)
        ledger.require_forms(Scope.of(policy), [item.name for item in policy.columns], forms)
    return [Column(item, ref, item.release_key()) for item, ref in zip(attempt.columns, refs, strict=True)]


def preflight(
    attempt: Attempt,
    source: Examined[Any],
    preview: Callable[[list[Column], Ledger | None, Any], Expected],
    keep: Callable[[list[Column], Ledger], object],
) -> int:
    """Refuse a run that could not end, before it charges anything; return how many published texts changed since.

    `preview` counts what some rows of the source hold; `keep` collects the earlier released texts of changed records.
    """
    with ledger_of(attempt.policy) as ledger:
        require_cap(attempt, ledger)
        columns = columns_of(attempt, ledger, source)
        new = ledger is None and attempt.policy.cap is None  # nothing is released, and nothing can be over a cap
        found = Expected() if new else preview(columns, ledger, source.rows)
        stale = 0 if source.known is None else preview(columns, ledger, source.known).changed - found.changed
        refuse(attempt, source, columns, ledger, found, stale)
        if ledger is not None and found.changed and attempt.policy.on_changed == "keep":
            keep(columns, ledger)
        return stale


def refuse(  # noqa: PLR0917
    attempt: Attempt,
    source: Examined[Any],
    columns: list[Column],
    ledger: Ledger | None,
    found: Expected,
    stale: int,
) -> None:
    """Refuse a run by what it will find; `stale` rows changed that an incremental run leaves as they are."""
    policy, layout = attempt.policy, attempt.layout
    _refuse_changed(policy, found.changed + stale, found.unkept)
    if found.changed and policy.on_changed == "keep":
        require_earlier_texts(layout, policy)
    if attempt.refusing:
        refuse_over_cap(found.over_cap)
    for item in columns:
        bound = stated_records(item.policy.mechanism)
        if bound is not None:
            held = 0 if ledger is None or item.ref.id == NEW else ledger.records(item.ref)
            refuse_more_records(held + found.charged.get(item.name, 0), bound, str(item.ref))
    if policy.unlinked is not None and found.answers:
        refuse_too_few(policy, found.drawn)
    if policy.publish:
        require_enough(policy, rows_by_outcome(policy, source, found), source.held)
    _require_space(attempt, len(columns) * source.wanted * _ROW_BYTES + found.words * _DRAW_BYTES)


def rows_by_outcome(policy: Policy, source: Examined[Any], found: Expected) -> dict[str, int]:
    """Count the rows that will be released and left out, as the summary of the run will."""
    changed = found.changed if policy.on_changed == "quarantine" else 0
    gone = found.answers.get("FORGOTTEN", 0)
    rows = {
        "released": source.wanted - found.over_cap - changed - gone,
        "quarantined": found.over_cap,
        "without_subject": source.nameless,
        "changed_left_out": changed,
    }
    return {name: count for name, count in rows.items() if count or name in {"released", "quarantined"}}


def _refuse_changed(policy: Policy, changed: int, unkept: int) -> None:
    """Refuse records whose texts changed, unless the policy says what becomes of them."""
    listed = "Nothing was charged; a run lists their ids in its staging folder alone"
    if changed and policy.on_changed == "refuse":
        msg = f"the texts of {changed} records changed since this release took them; it holds one text per record id"
        hint = (
            'on_changed = "keep" publishes their earlier released texts again; "quarantine" leaves them out, and '
            '"release_again" charges their new texts: both show which texts changed, so a release takes them from its '
            f"first run on. Changed data, or another key, also goes under a new name, at full spend. {listed}"
        )
        raise InputError(msg, hint, {"records": changed})
    if unkept and policy.on_changed == "keep":
        msg = f"the texts of {unkept} of {changed} changed records were never released: there is nothing to keep"
        hint = f"bring their texts back, or take a new release name. {listed}"
        raise InputError(msg, hint, {"records": unkept})


def _require_space(attempt: Attempt, least: int) -> None:
    staging = attempt.layout.staging
    if staging.remote:
        return
    folder = staging.folder.absolute()
    place = next(path for path in (folder, *folder.parents) if path.exists())
    if shutil.disk_usage(place).free < least:
        msg = f"the run writes {least / 2**20:.1f} MiB at least, and there is less room in {staging.url}"
        raise InputError(msg, "make room, or name another place as staging; nothing was charged")
