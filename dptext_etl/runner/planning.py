"""Forecast what a run would cost. Positions are counted; nothing is drawn, charged or written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from dptext_etl.accounting import log10_odds, require_delta
from dptext_etl.errors import DPTextError, InputError, bare, counted, described, seam
from dptext_etl.families.words import WordMechanism
from dptext_etl.guarantee import MICRO, PURE, Disclosure
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.views import quantiles
from dptext_etl.mechanism import worst_spend
from dptext_etl.policy import ColumnPolicy, Policy, PolicyLike, resolve
from dptext_etl.policy.hosts import contacted
from dptext_etl.policy.synthetic import Synthetic
from dptext_etl.runner.amounts import at_most
from dptext_etl.runner.claims import claims, policy_notes
from dptext_etl.runner.forecast import DELTA, Forecast, is_infinite, least_epsilon
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.preflight import (
    collect,
    planned_canaries,
    preflight,
    require_models,
    require_places,
    rows_by_outcome,
)
from dptext_etl.runner.preview import Expected, Preview, ledger_of, preview_rows
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.shard.attempt import UNDER_WAY, Attempt
from dptext_etl.runner.shard.canaries import canary_sets
from dptext_etl.runner.shard.charging import Column
from dptext_etl.runner.shard.replay import require_published_texts
from dptext_etl.runner.source.examine import examine, present
from dptext_etl.runner.source.roles import open_table
from dptext_etl.runner.source.selection import persons_of
from dptext_etl.runner.source.table import READ_HINT
from dptext_etl.runner.table_check import scopes, selection, spellings, traceable

_PERSONS_AT_ONCE = 1 << 20
"""Persons who are looked up together: each look goes through the other scopes of the ledger."""


@dataclass(frozen=True)
class PlanSummary:
    """The worst-case cost of a run."""

    dataset: str
    release: str
    partition: str | None
    rows: int  # that the run would take
    already_published: int  # rows that an incremental run would leave out
    draws: int  # over all text columns: one of a word, a token or a text, as the mechanism draws
    columns: list[
        dict[str, Any]
    ]  # what is claimed of each, and its table, its model's device, and disclosures in words
    component: str  # what `per_record` and `per_subject` count, a component of `Spend`
    per_record: dict[str, float | str]  # quantiles of the worst case of a record
    per_subject: dict[str, float | str] | None  # of a subject, over this run; None where the unit is the record
    subjects: int | None
    together: dict[str, Any]  # the least epsilon over all records of one person: unit, epsilon, delta, rule
    cap: dict[str, Any] | None
    cap_change: dict[str, Any] | None  # what would change about the pinned cap: scope, change, pinned, asked
    over_cap: dict[str, int]  # records that the run would leave out, and their units; charges in the ledger count
    left_out: dict[str, int]  # rows by reason: over the cap, without a person, with a changed text
    changed: int  # records whose texts changed since the release took them
    log10_odds: dict[str, float | str]  # powers of ten by which odds can move: per word, record, subject, at the cap
    on_cap: str
    dropped: list[str]  # columns of the source that the policy does not name, by place: "column 3"
    hosts: list[str]  # what a run contacts, as "entry: host"
    refusal: dict[str, Any] | None  # the error of the run, if something is in its way: code, exit_code, message, hint
    refusals: list[dict[str, Any]]  # this error, and those that the run would meet after it
    table: dict[str, Any]  # what is known of the table: `traceable`, `spellings`, `selection`, `scopes`
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as JSON can hold them."""
        return asdict(self)


@bare
def plan(
    policy: PolicyLike,
    *,
    partition: str | None = None,
    delta: float = DELTA,
    accept_lower_cap: bool = False,
    progress: Listener | None = None,
    require: Callable[[Policy, Layout], object] | None = None,
) -> PlanSummary:
    """Forecast a run: look for all that it would be refused for, count draws, add up worst cases. Nothing is spent."""
    require_delta(delta)
    policy = resolve(policy)
    attempt, refusals = Attempt.of(policy, partition, accept_lower_cap=accept_lower_cap), list[DPTextError]()
    if require is not None:
        require(policy, attempt.layout)
    table = open_table(policy, attempt.layout)
    forecasts = list[Forecast]()  # of the rows that the run takes, then of those that are published, too

    def look(columns: list[Column], ledger: Ledger | None, rows: pl.LazyFrame) -> Expected:
        known = rows is source.known
        preview = Preview(policy, columns, ledger, published=known, scratch=attempt.layout.scratch)
        forecasts.append(preview.forecast)
        meter = Meter("plan", None, None) if known else Meter("plan", source.wanted, progress)
        found = preview_rows(preview, rows, meter)
        collect(refusals, partial(require_models, attempt.columns, found))
        return found

    try:
        collect(refusals, partial(require_places, attempt))
        collect(refusals, partial(attempt.layout.staging.require_unlocked, UNDER_WAY))
        source = examine(table, policy, attempt.layout, progress)
        sets = canary_sets(source.first, source.wanted, -(-source.wanted // policy.shard_rows))
        collect(refusals, partial(planned_canaries, attempt, source, partial(present, source), sets))
        cap_facts, keep = _facts_of_cap(policy), partial(require_published_texts, attempt.layout, policy)
        traced = traceable.trace(source, policy)
        found, known = preflight(attempt, source, look, keep, refusals, traceable=traced)
    except DPTextError as error:  # without what it refuses, nothing can be counted
        raise (refusals or [error])[0] from None
    rows, forecast = rows_by_outcome(policy, source, found), forecasts[0]
    subjects, (cap_change, cap_notes), refused = forecast.subjects(), cap_facts, [*map(described, refusals)]
    notes = _notes if policy.synthetic is None else partial(_notes_on_table, synthetic=policy.synthetic)
    return PlanSummary(
        dataset=policy.dataset,
        release=policy.release,
        partition=partition,
        rows=source.wanted,
        already_published=source.published,
        draws=found.words,
        columns=[_column_facts(claim, item) for claim, item in zip(claims(policy), attempt.columns, strict=True)],
        component=forecast.components[0],
        per_record=_quantiles(forecast.records()),
        per_subject=None if subjects is None else _quantiles(subjects),
        subjects=None if subjects is None else subjects.total(),
        together=least_epsilon(forecast, policy, attempt.columns, delta),
        cap=None if policy.cap is None else policy.cap.model_dump(exclude_none=True),
        cap_change=cap_change,
        over_cap=forecast.over_cap(),
        left_out={name: count for name, count in rows.items() if name != "released"},
        changed=known.changed,
        log10_odds=_odds(policy, attempt.columns, forecast),
        on_cap=policy.on_cap,
        dropped=list(table.dropped),
        hosts=contacted(policy),
        refusal=refused[0] if refused else None,
        refusals=refused,
        table=_checked_table(policy, table.frame, forecast, attempt.layout.scratch, traced),
        notes=[
            *cap_notes,
            *notes(policy, beyond=source.beyond, held=found.held),
            *policy_notes(policy),
            *attempt.layout.notes,
        ],
    )


def _checked_table(
    policy: Policy, frame: pl.LazyFrame, forecast: Forecast, scratch: Path | None, traced: dict[str, Any]
) -> dict[str, Any]:
    """Return what is shown under "The table"."""
    person = policy.id_columns.get("subject")
    with ledger_of(policy) as ledger:
        charged = scopes.of_persons(policy, ledger, _persons(policy, frame))
    parts = {
        "traceable": traced,
        "spellings": {} if person is None else spellings.spellings(frame, person, policy.normalize, scratch),
        "selection": selection.caps(policy, forecast),
        "scopes": charged,
    }
    return {name: part for name, part in parts.items() if part}


def _persons(policy: Policy, frame: pl.LazyFrame) -> Iterator[pa.Array]:
    """Iterate over the canonical ids of the persons of a source, each once."""
    with seam("reading the persons of the source", InputError, READ_HINT):
        named = frame.select(str(policy.subject)).drop_nulls().unique().collect(engine="streaming")
    persons = persons_of(named, policy).unique()
    for part in persons.to_frame().iter_slices(_PERSONS_AT_ONCE):
        yield part.to_series().to_arrow()


def _facts_of_cap(policy: Policy) -> tuple[dict[str, Any] | None, list[str]]:
    """Return what a policy would change about the pinned cap, and notes on it."""
    with ledger_of(policy) as ledger:
        if ledger is None:
            return None, []
        scope, notes = Scope.of(policy), list[str]()
        change = ledger.cap_change(scope, policy.cap)
        uncounted = [] if policy.cap is None else ledger.reports.uncounted(scope)
    if change is not None:
        notes.append(str(change))
    if uncounted:
        where = f"the cap of {scope} would not count what was charged in {' and '.join(uncounted)}"
        notes.append(f"{where}: a run is refused until `dptext ledger set-cap` opens the period by name")
    return None if change is None else change.as_dict(), notes


def _quantiles(amounts: Counter[int]) -> dict[str, float | str]:
    return {name: "inf" if is_infinite(amount) else amount / MICRO for name, amount in quantiles(amounts).items()}


def _column_facts(claim: dict[str, Any], column: ColumnPolicy) -> dict[str, Any]:
    mechanism = column.mechanism
    facts: dict[str, Any] = {}
    if isinstance(mechanism, WordMechanism):
        bits = mechanism.described().get("table", {}).get("disclosed_bits_per_token", 0.0)
        facts = {"epsilon_table": mechanism.epsilon_table, "disclosed_bits_per_token": float(bits)}
    if mechanism.computing is not None:
        facts["computing"] = mechanism.computing.as_dict()
    meanings = {item.value: item.meaning for item in sorted(mechanism.guarantee.disclosures)}
    return {**claim, "neighbours": mechanism.guarantee.neighbours, "meanings": meanings, **facts}


def _odds(policy: Policy, columns: list[ColumnPolicy], forecast: Forecast) -> dict[str, float | str]:
    odds: dict[str, float | str] = {
        "per_word": round(max(log10_odds(item.mechanism.spend(1).eps_approx) for item in columns), 3)
    }
    if forecast.components[0] == "rho":  # no epsilon, so no odds
        return odds
    largest = {"largest_record": forecast.records(), "largest_subject": forecast.subjects()}
    for name, amounts in largest.items():
        if amounts:
            top = max(amounts)
            odds[name] = "inf" if is_infinite(top) else round(log10_odds(top), 3)
    if policy.cap is not None and policy.cap.epsilon is not None:
        odds["cap"] = round(log10_odds(policy.cap.epsilon * MICRO), 3)
    return odds


def _notes(policy: Policy, beyond: int, held: int) -> list[str]:
    columns, notes = policy.column_policies(), []
    if policy.unlinked is not None:
        cost = worst_spend(columns[0].mechanism)
        local, central = at_most(getattr(cost, PURE) / MICRO), at_most(cost.eps_approx / MICRO)
        among = f"{central} of a record among {policy.unlinked.rows:,}"
        notes.append(f"published unlinked: epsilon {local} of a draw is {among}")
        if policy.labels is not None:
            among = "is not protected; a record hides among the texts of its label"
            notes.append(f"the label in {policy.labels.column!r} {among}")
    if beyond:
        take = f"per_subject = {policy.records_per_subject} of a person take part"
        notes.append(f"{counted(beyond, 'record')} left out: {take}")
    if held:
        notes.append(f"the release holds {held:,} of these records already: the same texts again cost nothing")
    if not all(Disclosure.LENGTH in item.mechanism.guarantee.disclosures for item in columns):
        notes.append("where length is not disclosed, every record is charged for the longest text")
    for item in columns:
        for step in item.postprocess:
            note = f"column {item.column!r}: {step.name} rewrites what was released, at no cost"
            other = step.learnt_for not in {None, item.mechanism.cfg()}
            notes.append(note + (", and from releases of another mechanism or configuration" if other else ""))
    return notes


def _notes_on_table(policy: Policy, synthetic: Synthetic, beyond: int, held: int) -> list[str]:
    made, most = synthetic.mechanism, synthetic.per_subject
    notes = [
        f"published are {synthetic.rows:,} public texts that follow one noisy statistic; no record's text is released",
        f"epsilon {at_most(made.epsilon)} at delta {made.delta:g} is that of the whole table for one record",
    ]
    if policy.unit == "subject":
        (column,) = policy.charged_columns()
        person = at_most(most * worst_spend(column.mechanism).eps_approx / MICRO)
        bound = f"epsilon {person} in all, at delta {made.delta:g}"
        notes.append(f"a person has at most {counted(most, 'record')} in it: {bound}")
    notes.append("the guarantee is central: it trusts you, who hold the exact sums while the run is under way")
    if beyond:
        notes.append(f"{counted(beyond, 'record does', 'records do')} not count: per_subject = {most} of a person do")
    if held:
        notes.append(f"the release holds {held:,} of these records already: the same table again costs nothing")
    return notes
