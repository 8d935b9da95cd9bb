"""Forecast what a run would cost. Positions are counted; nothing is drawn, charged or written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import polars as pl

from dptext_etl.accounting import log10_odds, require_delta
from dptext_etl.errors import DPTextError, bare, counted, described
from dptext_etl.families.words import WordMechanism
from dptext_etl.guarantee import MICRO, PURE, Disclosure
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.views import quantiles
from dptext_etl.mechanism import worst_spend
from dptext_etl.policy import ColumnPolicy, Policy, PolicyLike, resolve
from dptext_etl.policy.hosts import contacted
from dptext_etl.runner.amounts import at_most
from dptext_etl.runner.anchoring import require_same_ledger
from dptext_etl.runner.claims import claims, policy_notes
from dptext_etl.runner.forecast import DELTA, Forecast, extra_notes, is_infinite, least_epsilon
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.preflight import (
    columns_of,
    refuse,
    require_cap,
    require_models,
    require_places,
    rows_by_outcome,
)
from dptext_etl.runner.preview import Preview, ledger_of, preview_rows
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.shard.attempt import UNDER_WAY, Attempt, refuse_too_few
from dptext_etl.runner.shard.canaries import canary_sets, plan_canaries
from dptext_etl.runner.shard.replay import require_published_texts
from dptext_etl.runner.source.examine import examine, present
from dptext_etl.runner.source.roles import Table, open_table


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
    if policy.synthetic is not None:
        from dptext_etl.runner.synthetic.attempt import SyntheticAttempt
        from dptext_etl.runner.synthetic.preflight import plan_table

        whole = SyntheticAttempt.of(policy, partition, accept_lower_cap=accept_lower_cap)
        return plan_table(whole, _opened(whole, require), progress)
    attempt = Attempt.of(policy, partition, accept_lower_cap=accept_lower_cap)
    table = _opened(attempt, require)
    source = examine(table, policy, attempt.layout, progress)
    refuse_too_few(policy, source.wanted)
    sets = canary_sets(source.first, source.wanted, -(-source.wanted // policy.shard_rows))
    dtype = table.schema[policy.id]
    plan_canaries(policy, dtype, partial(present, source), attempt.secret, sets, attempt.partition)
    refusals = list[DPTextError]()
    with ledger_of(policy) as ledger:
        cap_facts = facts_of_cap(policy, ledger)
        same_ledger = partial(require_same_ledger, ledger, attempt.layout, policy, freezing=False)
        if ledger is not None:
            collect(refusals, same_ledger)
        collect(refusals, lambda: require_cap(attempt, ledger))
        try:
            columns = columns_of(attempt, ledger, source)
            preview = Preview(policy, columns, ledger, scratch=attempt.layout.scratch)
            found = preview_rows(preview, source.rows, Meter("plan", source.wanted, progress))
            known = found
            if source.known is not None:
                every = Preview(policy, columns, ledger, scratch=attempt.layout.scratch)
                known = preview_rows(every, source.known, Meter("plan", None, None))
        except DPTextError as error:
            raise (refusals or [error])[0] from None
        collect(refusals, lambda: require_models(attempt.columns, found))
        collect(refusals, lambda: refuse(attempt, source, columns, ledger, found, known))
        if found.changed and policy.on_changed == "keep":
            collect(refusals, lambda: require_published_texts(attempt.layout, policy, columns))
        if ledger is None:  # a run looks before it makes one
            collect(refusals, same_ledger)
    rows = rows_by_outcome(policy, source, found)
    return summarize(
        policy,
        preview.forecast,
        cap_facts,
        [*_unlinked_notes(policy, source.beyond), *_notes(policy, found.held)],
        partition=partition,
        rows=source.wanted,
        already_published=source.published,
        draws=found.words,
        columns=[_column_facts(claim, item) for claim, item in zip(claims(policy), attempt.columns, strict=True)],
        together=least_epsilon(preview.forecast, policy, attempt.columns, delta),
        left_out={name: count for name, count in rows.items() if name != "released"},
        changed=known.changed,
        log10_odds=_odds(policy, attempt.columns, preview.forecast),
        dropped=list(table.dropped),
        refusal=described(refusals[0]) if refusals else None,
    )


def _opened(attempt: Attempt, require: Callable[[Policy, Layout], object] | None) -> Table[pl.LazyFrame]:
    """Open the source, and refuse what a run refuses before it looks into it."""
    if require is not None:
        require(attempt.policy, attempt.layout)
    table = open_table(attempt.policy, attempt.layout)
    require_places(attempt)
    attempt.layout.staging.require_unlocked(UNDER_WAY)
    return table


def collect(refusals: list[DPTextError], step: Callable[[], object]) -> None:
    """Take a step, and collect its refusal instead of stopping there, so that the plan still has its counts."""
    try:
        step()
    except DPTextError as error:
        refusals.append(error)


def facts_of_cap(policy: Policy, ledger: Ledger | None) -> tuple[dict[str, Any] | None, list[str]]:
    """Return what a policy would change about the pinned cap, and notes on it."""
    if ledger is None:
        return None, []
    scope, notes = Scope.of(policy), list[str]()
    change = ledger.cap_change(scope, policy.cap)
    if change is not None:
        notes.append(str(change))
    uncounted = [] if policy.cap is None else ledger.uncounted(scope)
    if uncounted:
        where = f"the cap of {scope} would not count what was charged in {' and '.join(uncounted)}"
        notes.append(f"{where}: a run is refused until `dptext ledger set-cap` opens the period by name")
    return None if change is None else change.as_dict(), notes


def summarize(
    policy: Policy,
    forecast: Forecast,
    cap_facts: tuple[dict[str, Any] | None, list[str]],
    notes: list[str],
    **facts: Any,
) -> PlanSummary:
    """Make the summary of a plan from the facts that only one kind of run has, and those that all have."""
    subjects, (cap_change, cap_notes) = forecast.subjects(), cap_facts
    return PlanSummary(
        dataset=policy.dataset,
        release=policy.release,
        component=forecast.components[0],
        per_record=_quantiles(forecast.records()),
        per_subject=None if subjects is None else _quantiles(subjects),
        subjects=None if subjects is None else subjects.total(),
        cap=None if policy.cap is None else policy.cap.model_dump(exclude_none=True),
        cap_change=cap_change,
        over_cap=forecast.over_cap(),
        on_cap=policy.on_cap,
        hosts=contacted(policy),
        notes=[*cap_notes, *notes, *Layout.of(policy, facts["partition"]).notes],
        **facts,
    )


def _unlinked_notes(policy: Policy, beyond: int) -> list[str]:
    """Say what an unlinked release charges, and which records it leaves out."""
    if policy.unlinked is None:
        return []
    cost = worst_spend(policy.column_policies()[0].mechanism)
    local, central = at_most(getattr(cost, PURE) / MICRO), at_most(cost.eps_approx / MICRO)
    notes = [f"published unlinked: epsilon {local} of a draw is {central} of a record among {policy.unlinked.rows:,}"]
    if beyond:
        most = policy.unlinked.per_subject
        notes.append(f"{counted(beyond, 'record')} left out: per_subject = {most} of a person take part")
    return notes


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


def _notes(policy: Policy, held: int) -> list[str]:
    notes = []
    if held:
        notes.append(f"the release holds {held:,} of these records already: the same texts again cost nothing")
    notes += [*extra_notes(policy), *policy_notes(policy)]
    if not all(Disclosure.LENGTH in item.mechanism.guarantee.disclosures for item in policy.column_policies()):
        notes.append("where length is not disclosed, every record is charged for the longest text")
    for item in policy.column_policies():
        for step in item.postprocess:
            note = f"column {item.column!r}: {step.name} rewrites what was released, at no cost"
            other = step.learnt_for not in {None, item.mechanism.cfg()}
            notes.append(note + (", and from releases of another mechanism or configuration" if other else ""))
    return notes
