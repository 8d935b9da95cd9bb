"""Forecast what a run would cost. Positions are counted; nothing is drawn, charged or written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from dptext_etl.accounting import log10_odds, require_delta
from dptext_etl.errors import DPTextError, bare, described
from dptext_etl.families.words import WordMechanism
from dptext_etl.guarantee import MICRO, PURE, Disclosure
from dptext_etl.ledger import Scope
from dptext_etl.mechanism import worst_spend
from dptext_etl.policy import ColumnPolicy, Policy, PolicyLike, resolve
from dptext_etl.runner.anchoring import require_same_ledger
from dptext_etl.runner.balances import is_infinite
from dptext_etl.runner.claims import claims
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.outlook import Outlook, ledger_of, look
from dptext_etl.runner.person import DELTA, INSTALL, composable, installed, least_epsilon
from dptext_etl.runner.preflight import (
    columns_of,
    left_out,
    refuse,
    require_cap,
    require_idle,
    require_places,
    stale_rows,
)
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.shard.attempt import Attempt, refuse_too_few
from dptext_etl.runner.shard.canaries import canary_sets, plan_canaries
from dptext_etl.runner.source.arranging import forms_of
from dptext_etl.runner.source.examined import Examined, examine, present
from dptext_etl.runner.source.roles import Table, open_table
from dptext_etl.runner.statement.sections import at_most
from dptext_etl.runner.synthetic.planning import forecast as forecast_synthetic

QUANTILES = {"min": 0.0, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "max": 1.0}


@dataclass(frozen=True)
class PlanSummary:
    """The worst-case cost of a run.

    Attributes:
        dataset: Name of the dataset.
        release: Name of the release.
        partition: Name of the partition, or None.
        rows: Rows that the run would take.
        already_published: Rows that an incremental run would leave out.
        draws: Draws that the run would make, over all text columns: one of a word, a token or a text, as the mechanism
            draws.
        columns: Per text column: mechanism, epsilon and its unit, class, disclosures, assumptions, exact epsilon of a
            draw, disclosed bits per token, `largest_epsilon` whatever the text, and of a model `computing`: the device
            and dtype of this machine, and which of the two were left to `auto`.
        component: What `per_record` and `per_subject` count: a component of `Spend`.
        per_record: Quantiles of the worst case of a record.
        per_subject: Quantiles of the worst case of a subject, over this run; None where records stand for themselves.
        subjects: Number of subjects, or None.
        together: The least epsilon over all records of one person at one fixed delta: `unit` ("subject", or "record"
            where the unit is the record), `epsilon`, `delta` (0 for a pure statement) and the `rule` that gives it.
        cap: The policy's cap, or None.
        cap_change: What the policy would change about the pinned cap: scope, change, pinned, asked; None for nothing.
        over_cap: Records that the run would leave out, and their units; charges in the ledger count.
        left_out: Rows that the run would leave out, by reason: over the cap, without a person, with a changed text.
        changed: Records whose texts changed since the release took them.
        log10_odds: Powers of ten by which the odds between two texts can move: for one word, the largest record, the
            largest subject, and at the cap.
        on_cap: "quarantine" or "refuse": what the policy does with records over the cap.
        dropped: Columns of the source that the policy does not name, by place: "column 3".
        refusal: What the run would be refused for, as its error says it: code, exit_code, message, hint; None where
            nothing is known to be in its way.
        notes: Further facts, in sentences.
    """

    dataset: str
    release: str
    partition: str | None
    rows: int
    already_published: int
    draws: int
    columns: list[dict[str, Any]]
    component: str
    per_record: dict[str, float | str]
    per_subject: dict[str, float | str] | None
    subjects: int | None
    together: dict[str, Any]
    cap: dict[str, Any] | None
    cap_change: dict[str, Any] | None
    over_cap: dict[str, int]
    left_out: dict[str, int]
    changed: int
    log10_odds: dict[str, float | str]
    on_cap: str
    dropped: list[str]
    refusal: dict[str, Any] | None
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
) -> PlanSummary:
    """Forecast a run: look for all that it would be refused for, count draws, add up worst cases. Nothing is spent.

    Args:
        policy: The policy, or the path of its file.
        partition: Name of the partition, if the policy has a place for one.
        delta: Delta of the statement about all records of one person.
        accept_lower_cap: Whether the run would lower the pinned cap to that of the policy.
        progress: Called with counts, rate and remaining time.

    Returns:
        The forecast; `refusal` says what the run would be refused for.

    Raises:
        DPTextError: The run would be refused before its rows can be counted, for the same reason.
    """
    require_delta(delta)
    policy = resolve(policy)
    if policy.synthetic is not None:
        return _synthetic(policy, open_table(policy, Layout.of(policy, partition)), progress)
    attempt = Attempt.of(policy, partition, accept_lower_cap=accept_lower_cap)
    table = open_table(policy, attempt.layout)
    require_places(attempt)
    require_idle(attempt)
    source = examine(table, policy, attempt.layout, progress)
    refuse_too_few(policy, source.wanted)
    _require_canaries(attempt, source)
    columns, change, uncounted, refused = attempt.columns, None, list[str](), list[DPTextError]()
    with ledger_of(policy) as ledger:
        if ledger is not None:
            change = ledger.cap_change(Scope.of(policy), policy.cap)
            uncounted = [] if policy.cap is None else ledger.uncounted(Scope.of(policy))
        _noted(refused, lambda: require_cap(attempt, ledger))
        try:
            charged = columns_of(attempt, ledger, source)
            outlook = Outlook(policy, charged, ledger)
            found = look(outlook, source.rows, Meter("plan", source.wanted, progress))
            stale = stale_rows(policy, charged, ledger, source, found)
        except DPTextError as error:
            raise (refused or [error])[0] from None
        _noted(refused, lambda: refuse(attempt, source, charged, ledger, found, stale))
        _noted(refused, lambda: require_same_ledger(ledger, attempt.layout, policy, freezing=False))
    forecast = outlook.forecast
    per_record, per_subject = forecast.records(), forecast.subjects()
    held = found.answers.get("PENDING", 0) + found.answers.get("COMMITTED", 0)
    return PlanSummary(
        dataset=policy.dataset,
        release=policy.release,
        partition=partition,
        rows=source.wanted,
        already_published=source.published,
        draws=found.words,
        columns=[_described(claim, item) for claim, item in zip(claims(policy), columns, strict=True)],
        component=forecast.components[0],
        per_record=_quantiles(per_record),
        per_subject=None if per_subject is None else _quantiles(per_subject),
        subjects=None if per_subject is None else len(per_subject),
        together=least_epsilon(forecast, policy, columns, delta),
        cap=None if policy.cap is None else policy.cap.model_dump(exclude_none=True),
        cap_change=None if change is None else change.as_dict(),
        over_cap=forecast.over_cap(),
        left_out=left_out(policy, source, found),
        changed=found.changed + stale,
        log10_odds=_odds(policy, columns, per_record, per_subject, forecast.components[0]),
        on_cap=policy.on_cap,
        dropped=list(source.table.dropped),
        refusal=None if not refused else described(refused[0]),
        notes=[
            *([str(change)] if change else []),
            *_fresh(policy, uncounted),
            *_unlinked(policy, columns, source.beyond),
            *_notes(policy, held),
        ],
    )


def _noted(refused: list[DPTextError], step: Callable[[], object]) -> None:
    """Take a step, and note what it is refused for instead of stopping there: counts come all the same."""
    try:
        step()
    except DPTextError as error:
        refused.append(error)


def _require_canaries(attempt: Attempt, source: Examined[pl.LazyFrame]) -> None:
    """Plan the canary rows as a run in this process does, so that what is wrong with them shows itself."""
    policy = attempt.policy
    sets = canary_sets(source.first, source.wanted, -(-source.wanted // policy.shard_rows))
    dtype = source.table.schema[policy.id]
    plan_canaries(policy, dtype, partial(present, source), attempt.secret, sets, attempt.partition)


def _synthetic(policy: Policy, table: Table[pl.LazyFrame], progress: Listener | None) -> PlanSummary:
    """Forecast a synthetic table: every record that counts is charged the same."""
    change, uncounted = None, list[str]()
    with ledger_of(policy) as ledger:
        if ledger is not None:
            change = ledger.cap_change(Scope.of(policy), policy.cap)
            uncounted = [] if policy.cap is None else ledger.uncounted(Scope.of(policy))
            ledger.require_forms(Scope.of(policy), list(policy.text_columns), forms_of(table.schema, policy))
        found = forecast_synthetic(policy, table, ledger, progress)
        over = found.forecast.over_cap()
    records, subjects, component = found.forecast.records(), found.forecast.subjects(), found.forecast.components[0]
    odds: dict[str, float | str] = {"per_word": round(log10_odds(found.spend.eps_approx), 3)}
    most = policy.statistic.per_subject if policy.unit == "subject" else 1
    person = {"epsilon": most * found.spend.eps_approx / MICRO, "delta": policy.statistic.delta, "rule": "zcdp"}
    return PlanSummary(
        dataset=policy.dataset,
        release=policy.release,
        partition=None,
        rows=found.wanted,
        already_published=0,
        draws=0,
        columns=[found.column],
        component=component,
        per_record=_quantiles(records),
        per_subject=None if subjects is None else _quantiles(subjects),
        subjects=None if subjects is None else len(subjects),
        together={"unit": policy.unit, **person},
        cap=None if policy.cap is None else policy.cap.model_dump(exclude_none=True),
        cap_change=None if change is None else change.as_dict(),
        over_cap=over,
        left_out={"quarantined": over["records"], "without_subject": found.nameless},
        changed=0,
        log10_odds=odds,
        on_cap=policy.on_cap,
        dropped=list(table.dropped),
        refusal=None,
        notes=[*([str(change)] if change else []), *_fresh(policy, uncounted), *found.notes],
    )


def _fresh(policy: Policy, uncounted: list[str]) -> list[str]:
    """Say that the cap of a policy would start everyone at zero next to charges in other scopes."""
    if not uncounted:
        return []
    where = f"the cap of {Scope.of(policy)} would not count what was charged in {' and '.join(uncounted)}"
    return [f"{where}: a run is refused until `dptext ledger set-cap` opens the period by name"]


def _unlinked(policy: Policy, columns: list[ColumnPolicy], beyond: int) -> list[str]:
    """Say what an unlinked release charges, and which records it leaves out."""
    if policy.unlinked is None:
        return []
    cost = worst_spend(columns[0].mechanism)
    local, central = at_most(getattr(cost, PURE) / MICRO), at_most(cost.eps_approx / MICRO)
    notes = [f"published unlinked: epsilon {local} of a draw is {central} of a record among {policy.unlinked.rows:,}"]
    if beyond:
        most = policy.unlinked.per_subject
        notes.append(f"{beyond} records are left out: per_subject = {most} of a person take part")
    return notes


def _quantiles(amounts: npt.NDArray[np.int64]) -> dict[str, float | str]:
    if not len(amounts):
        return {}
    ordered = np.sort(amounts)
    places = {name: max(0, int(np.ceil(share * len(ordered))) - 1) for name, share in QUANTILES.items()}
    return {name: _shown(int(ordered[place])) for name, place in places.items()}


def _shown(amount: int) -> float | str:
    return "inf" if is_infinite(amount) else amount / MICRO


def _described(claim: dict[str, Any], column: ColumnPolicy) -> dict[str, Any]:
    mechanism = column.mechanism
    facts: dict[str, Any] = {}
    if isinstance(mechanism, WordMechanism):
        bits = mechanism.described().get("table", {}).get("disclosed_bits_per_token", 0.0)
        facts = {"epsilon_table": mechanism.epsilon_table, "disclosed_bits_per_token": float(bits)}
    if mechanism.computing is not None:
        facts["computing"] = mechanism.computing.as_dict()
    meanings = {item.value: item.meaning for item in sorted(mechanism.guarantee.disclosures)}
    return {**claim, "neighbours": mechanism.guarantee.neighbours, "meanings": meanings, **facts}


def _odds(
    policy: Policy,
    columns: list[ColumnPolicy],
    records: npt.NDArray[np.int64],
    subjects: npt.NDArray[np.int64] | None,
    component: str,
) -> dict[str, float | str]:
    odds: dict[str, float | str] = {
        "per_word": round(max(log10_odds(item.mechanism.spend(1).eps_approx) for item in columns), 3)
    }
    if component == "rho":  # no epsilon, so no odds
        return odds
    largest = {"largest_record": records, "largest_subject": subjects}
    for name, amounts in largest.items():
        if amounts is not None and len(amounts):
            top = int(amounts.max())
            odds[name] = "inf" if is_infinite(top) else round(log10_odds(top), 3)
    if policy.cap is not None and policy.cap.epsilon is not None:
        odds["cap"] = round(log10_odds(policy.cap.epsilon * MICRO), 3)
    return odds


def _notes(policy: Policy, held: int) -> list[str]:
    notes = []
    if held:
        notes.append(f"the release holds {held} of these records already: the same texts again cost nothing")
    if not installed() and all(composable(item.mechanism, 1) is not None for item in policy.column_policies()):
        notes.append(INSTALL)
    if policy.cap is None:
        notes.append("the policy sets no cap: what a unit can lose over several releases is not bounded")
    if policy.on_null_subject == "own":
        notes.append('on_null_subject = "own": a person with k records that name no person has k times the loss')
    if policy.unit == "record":
        notes.append('unit = "record": a person with k records has k times the loss')
    if not all(Disclosure.LENGTH in item.mechanism.guarantee.disclosures for item in policy.column_policies()):
        notes.append("where length is not disclosed, every record is charged for the longest text")
    for item in policy.column_policies():
        for step in item.postprocess:
            said = f"column {item.column!r}: {step.name} rewrites what was released, at no cost"
            other = step.learnt_for not in {None, item.mechanism.cfg()}
            notes.append(said + (", and from releases of another mechanism or configuration" if other else ""))
    return notes
