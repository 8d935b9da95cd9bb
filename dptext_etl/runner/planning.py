"""Forecast the cost of a run. Positions are counted; nothing is drawn, charged or written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from pydantic import BaseModel

from dptext_etl.accounting import MEASURES, log10_odds, require_delta
from dptext_etl.arrays import to_arrow
from dptext_etl.checks.text_counts import gate_delta
from dptext_etl.column import spends
from dptext_etl.data_types import by_name
from dptext_etl.errors import DPTextError, InputError, PolicyError, bare, counted, described, seam, together
from dptext_etl.families.words import WordMechanism
from dptext_etl.guarantee import ADDITIVE, MICRO, PURE, Disclosure
from dptext_etl.key_providers import BUILT_IN
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.caps import LARGEST, limits
from dptext_etl.ledger.reports import quantiles
from dptext_etl.mechanism import worst_spend
from dptext_etl.object_stores import CATALOG, host_of, hosts, variable_of
from dptext_etl.policy import ColumnPolicy, Policy, PolicyLike, resolve
from dptext_etl.policy.synthetic import Synthetic
from dptext_etl.runner import table_check
from dptext_etl.runner.forecast import (
    DELTA,
    Amounts,
    Expected,
    Forecast,
    Preview,
    is_infinite,
    least_epsilon,
    ledger_of,
    preview_rows,
)
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.preflight import (
    LocalReader,
    planned_canaries,
    preflight,
    require_models,
    require_places,
    rows_by_outcome,
)
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.publish.manifest import claims, policy_notes, with_gate, worst_with_gate
from dptext_etl.runner.shard.attempt import Attempt
from dptext_etl.runner.shard.charging import Column, at_most
from dptext_etl.runner.source.examine import count, groups_of, persons_of
from dptext_etl.runner.source.roles import Table, wanted_columns
from dptext_etl.runner.source.table import READ_HINT, Files, naming_file

_PERSONS_AT_ONCE = 1 << 20
"""Persons who are looked up together: each look goes through the other scopes of the ledger."""


@dataclass(frozen=True)
class PlanSummary:
    """The worst-case cost of a run."""

    dataset: str
    release: str
    partition: str | None
    rows: int  # that the run would release
    already_published: int  # rows that an incremental run would leave out
    draws: int  # over all text columns: one of a word, a token or a text, as the mechanism draws
    columns: list[dict[str, Any]]  # the claims on each, and its table, its model's device, and disclosures in words
    component: str  # the component of `Spend` that `per_record` and `per_subject` count
    per_record: dict[str, float | str]  # quantiles of the worst case of a record
    per_subject: dict[str, float | str] | None  # of a subject, over this run; None where the unit is the record
    subjects: int | None
    together: dict[str, Any]  # the least epsilon over all records of one person: unit, epsilon, delta, rule
    cap: dict[str, Any] | None
    cap_change: dict[str, Any] | None  # the change to the pinned cap: scope, change, pinned, asked
    over_cap: dict[str, int]  # records that the run would leave out, and their units; charges in the ledger count
    excluded: dict[str, int]  # rows by reason: over the cap, without a person, with a changed text
    changed: int  # records whose texts changed since the release charged them
    log10_odds: dict[str, float | str]  # powers of ten by which odds can move: per word, record, subject, at the cap
    on_cap: str
    dropped: list[str]  # columns of the source that the policy does not name, by place: "column 3"
    hosts: list[str]  # the hosts that a run contacts, as "entry: host"
    refusal: dict[str, Any] | None  # the error of the run, if something is in its way: code, exit_code, message, hint
    refusals: list[dict[str, Any]]  # this error, and those that the run would meet after it
    table: dict[str, Any]  # facts about the table: `traceable`, `spellings`, `selection`, `scopes`
    notes: list[str]
    audiences: list[str]  # names of the audiences, whose tables cost nothing

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
    accept_fewer_rows: bool = False,
    progress: Listener | None = None,
    require: Callable[[Policy, Layout], object] | None = None,
) -> PlanSummary:
    """Forecast a run: collect all refusals, count draws, and add up worst cases. No budget is used.

    Args:
        policy: The policy, or the path of its file.
        partition: Name of the partition, if the policy has a place for one.
        delta: The delta of the statement about all records of one person.
        accept_lower_cap: Plan as if the pinned cap may be lowered to the policy's cap.
        accept_fewer_rows: Plan as if published rows may be excluded.
        progress: Called with counts, rate, and remaining time.
        require: Called with policy and layout first; raises if an engine cannot carry out the run.

    Returns:
        Counts, worst cases in units of epsilon, rho, or delta, and the refusals that the run would meet.

    Raises:
        PolicyError: Without this step, nothing can be counted: the source cannot be read, or its ids are not unique.
    """
    policy = resolve(policy)
    require_delta(delta)
    refusals, reader = list[DPTextError](), LocalReader()
    accepted = {"accept_lower_cap": accept_lower_cap, "accept_fewer_rows": accept_fewer_rows}
    attempt = Attempt.of(policy, partition, refusals=refusals, **accepted)
    if require is not None:
        require(policy, attempt.layout)
    table = reader.open(policy, attempt.layout)
    forecasts = list[Forecast]()  # of the rows of the run, then with published rows

    def look(columns: list[Column], ledger: Ledger | None, rows: pl.LazyFrame) -> Expected:
        every_row = rows is source.every_row
        preview = Preview(policy, columns, ledger, published=every_row, scratch=attempt.layout.scratch)
        forecasts.append(preview.forecast)
        meter = Meter("plan", None, None) if every_row else Meter("plan", source.wanted, progress)
        expected = preview_rows(preview, rows, meter)
        attempt.check(require_models, attempt.columns, expected)
        return expected

    try:
        attempt.check(require_places, attempt)
        with naming_file(partial(Files.find, attempt.layout), wanted_columns(policy)):
            source = reader.examine(table, policy, attempt.layout, progress)
            attempt.check(planned_canaries, attempt, source)
            previewed, over_all, checked = preflight(attempt, reader, source, look)
            cap_change, cap_notes = _add_facts_of_ledger(policy, table.frame, checked)
    except DPTextError as error:  # this step must succeed before anything can be counted
        refusals.append(error)
        if "counts" in error.fields and policy.keep:  # only the ids are wrong: kept columns can be judged all the same
            attempt.check(_judge_kept, policy, attempt.layout, table, error.fields["counts"]["rows"])
        raise together(refusals) from None
    rows, forecast = rows_by_outcome(policy, source, previewed), forecasts[0]
    subjects, refused = forecast.subjects(), [*map(described, refusals)]
    notes = _notes if policy.synthetic is None else partial(_notes_on_table, synthetic=policy.synthetic)
    return PlanSummary(
        dataset=policy.dataset,
        release=policy.release,
        partition=partition,
        rows=source.wanted,
        already_published=source.published,
        draws=previewed.words,
        columns=[_column_facts(claim, item) for claim, item in zip(claims(policy), attempt.columns, strict=True)],
        component=forecast.components[0],
        per_record=_quantiles(forecast.records),
        per_subject=None if subjects is None else _quantiles(subjects),
        subjects=None if subjects is None else subjects.total(),
        together=least_epsilon(forecast, policy, attempt.columns, delta),
        cap=None if policy.cap is None else policy.cap.model_dump(exclude_none=True),
        cap_change=cap_change,
        over_cap=forecast.over(),
        excluded={name: count for name, count in rows.items() if name != "released"},
        changed=over_all.changed,
        log10_odds=_odds(policy, attempt.columns, forecast),
        on_cap=policy.on_cap,
        dropped=list(table.dropped),
        hosts=contacted(policy),
        refusal=refused[0] if refused else None,
        refusals=refused,
        table={name: part for name, part in checked.items() if part},
        notes=[
            *cap_notes,
            *notes(policy, beyond=source.beyond, replayed=previewed.charged_before),
            *policy_notes(policy),
        ],
        audiences=[item.name for item in policy.audiences],
    )


def _judge_kept(policy: Policy, layout: Layout, table: Table[pl.LazyFrame], rows: int) -> None:
    """Refuse kept columns that single out rows, in a source whose ids are refused."""
    counts = count(table.frame, groups_of(policy.kept_columns))
    traced = table_check.of_source(policy, rows, counts, table.schema, table.frame)
    table_check.require_untraceable(policy, layout, traced, None, ())


def further(policy: PolicyLike) -> dict[str, Any]:
    """Count how many more releases of a policy fit into its cap, by the ledger. No text is read.

    A record costs as much as a plan would charge it by the positions that the ledger holds of its text; if these were
    counted by another configuration, or there are none, it costs as much as the longest text.

    Raises:
        LedgerError: A run with this cap would be refused.
        PolicyError: The policy has no cap.
    """
    policy = resolve(policy)
    if policy.cap is None:
        raise PolicyError("the policy sets no cap, so any number of releases fits", "set one: [cap]")
    scope, most, counters = Scope.of(policy), policy.records_per_subject, dict[str, Counter[int]]()
    costs = {item.named: partial(_cost, item, gate_delta(policy)) for item in policy.charged_columns()}
    with ledger_of(policy) as ledger:
        if ledger is not None:
            with ledger.rehearsal():
                ledger.agree_on_cap(scope, policy.cap)
            counters = ledger.reports.further(scope, policy.cap, costs, most)
    counted_units, records = any(counters.values()), most or 1
    facts = {"scope": str(scope), "unit": scope.unit, "from_ledger": counted_units, "records": None}
    if not counted_units:  # then of one whom nothing has been charged
        worst = [cost(None, np.zeros(1, np.int64)) for cost in costs.values()]
        cost_of_all = [records * sum(int(item[name][0]) for item in worst) for name in MEASURES[policy.cap.measure]]
        fitting = [limit // amount for limit, amount in zip(limits(policy.cap), cost_of_all, strict=True) if amount]
        facts["records"], counters = records, {"units": Counter([min(fitting)])}
    for kind, counts in counters.items():
        if counts:
            facts[kind] = {"count": counts.total(), "p99": _nearly_all(counts), "least": min(counts)}
    return facts


def _nearly_all(counts: Counter[int]) -> int:
    """Return the largest number that 99% of the units reach.

    >>> _nearly_all(Counter({0: 1, 3: 99})), _nearly_all(Counter({0: 2, 3: 98})), _nearly_all(Counter({2: 1}))
    (3, 0, 2)
    """
    ordered = sorted(counts)
    below = np.cumsum([counts[number] for number in ordered])
    return ordered[int(np.searchsorted(below, counts.total() // 100, side="right"))]


def _cost(column: ColumnPolicy, gate: int, facts: Mapping[str, Any] | None, positions: Amounts) -> dict[str, Amounts]:
    mechanism = column.mechanism
    pairs = [{} if facts is None else facts.get("configuration", {}), mechanism.configuration()]
    varying = {"epsilon", "table"}  # a table follows from epsilon
    before, now = ({name: value for name, value in settings.items() if name not in varying} for settings in pairs)
    if before == now:
        counts = np.minimum(positions, mechanism.most_positions).astype(np.uint32)
        return with_gate(spends(mechanism, to_arrow(counts)), gate)
    worst = worst_with_gate(mechanism, gate)
    return {name: np.full(len(positions), min(getattr(worst, name), LARGEST), np.int64) for name in ADDITIVE}


def _persons(policy: Policy, frame: pl.LazyFrame) -> Iterator[pa.Array]:
    """Iterate over the canonical ids of the persons of a source, each once."""
    with seam("reading the persons of the source", InputError, READ_HINT):
        named = frame.select(by_name(str(policy.subject))).drop_nulls().unique().collect(engine="streaming")
    persons = persons_of(named, policy).unique()
    for part in persons.to_frame().iter_slices(_PERSONS_AT_ONCE):
        yield part.to_series().to_arrow()


def _add_facts_of_ledger(
    policy: Policy, frame: pl.LazyFrame, checked: dict[str, Any]
) -> tuple[dict[str, Any] | None, list[str]]:
    """Add other scopes and units at the cap; return the change to the pinned cap, and notes on it."""
    scope, notes = Scope.of(policy), list[str]()
    checked["selection"] |= table_check.partitions(policy)
    with ledger_of(policy) as ledger:
        checked["scopes"] = table_check.of_persons(policy, ledger, _persons(policy, frame))
        if ledger is None:
            return None, notes
        if (change := ledger.cap_change(scope, policy.cap)) is not None:
            notes.append(str(change))
        if policy.cap is not None:
            used = ledger.remaining(scope)
            counts = {"units": used.units, "exhausted": used.exhausted, "unit": scope.unit}
            checked["at_cap"] = counts if used.units else {}
            if uncounted := ledger.reports.uncounted(scope):
                where = f"the cap of {scope} would not count charges in {' and '.join(uncounted)}"
                notes.append(f"{where}: a run is refused until `dptext ledger set-cap` opens the period by name")
    return None if change is None else change.as_dict(), notes


def _quantiles(amounts: Counter[int]) -> dict[str, float | str]:
    return {name: "inf" if is_infinite(amount) else amount / MICRO for name, amount in quantiles(amounts).items()}


def _column_facts(claim: dict[str, Any], column: ColumnPolicy) -> dict[str, Any]:
    mechanism = column.mechanism
    meanings = {item.value: item.meaning for item in sorted(mechanism.guarantee.disclosures)}
    facts = {**claim, "neighbors": mechanism.guarantee.neighbors, "meanings": meanings}
    if isinstance(mechanism, WordMechanism):
        bits = mechanism.described().get("table", {}).get("disclosed_bits_per_token", 0.0)
        facts |= {"epsilon_table": mechanism.epsilon_table, "disclosed_bits_per_token": float(bits)}
    if mechanism.computing is not None:
        facts["computing"] = mechanism.computing.as_dict()
    return facts


def _odds(policy: Policy, columns: list[ColumnPolicy], forecast: Forecast) -> dict[str, float | str]:
    amounts = {"per_word": max(item.mechanism.spend(1).eps_approx for item in columns)}
    if forecast.components[0] != "rho":  # else no epsilon, so no odds
        counts = {"largest_record": forecast.records, "largest_subject": forecast.subjects()}
        amounts |= {name: max(by_amount) for name, by_amount in counts.items() if by_amount}
        if policy.cap is not None and policy.cap.epsilon is not None:
            amounts["cap"] = policy.cap.epsilon * MICRO
    return {
        name: "inf" if name.startswith("largest") and is_infinite(int(amount)) else round(log10_odds(amount), 3)
        for name, amount in amounts.items()
    }


def _notes(policy: Policy, beyond: int, replayed: int) -> list[str]:
    columns, notes = policy.column_policies(), []
    if policy.shuffled is not None:
        cost = worst_spend(columns[0].mechanism)
        local, central = at_most(getattr(cost, PURE) / MICRO), at_most(cost.eps_approx / MICRO)
        among = f"{central} of a record among {policy.shuffled.rows:,}"
        notes.append(f"published shuffled: epsilon {local} of a draw is {among}")
        if policy.labels is not None:
            among = "is not protected; a record hides among the texts of its label"
            notes.append(f"the label in {policy.labels.column!r} {among}")
    if beyond:
        take = f"per_subject = {policy.records_per_subject} of a person count"
        notes.append(f"{counted(beyond, 'record')} excluded: {take}")
    if replayed:
        notes.append(f"the release holds {replayed:,} of these records already: the same texts again cost nothing")
    if not all(Disclosure.LENGTH in item.mechanism.guarantee.disclosures for item in columns):
        notes.append("where length is not disclosed, every record is charged for the longest text")
    for item in columns:
        for step in item.postprocess:
            note = f"column {item.column!r}: {step.name} rewrites the released texts, at no cost"
            other = step.training.mechanism not in {None, item.mechanism.cfg()}
            notes.append(note + (", and from releases of another mechanism or configuration" if other else ""))
    return notes


def _notes_on_table(policy: Policy, synthetic: Synthetic, beyond: int, replayed: int) -> list[str]:
    most = synthetic.per_subject
    notes = [
        f"published are {synthetic.rows:,} public texts that follow one noisy statistic; no record's text is released"
    ]
    (column,) = policy.charged_columns()
    person, who = at_most(most * worst_spend(column.mechanism).eps_approx / MICRO), f"one {policy.unit}"
    who += f" with {most} records, each of which is charged 1/{most} of it" if most > 1 else ""
    notes.append(f"epsilon {person} at delta {synthetic.mechanism.delta:g} holds for the whole table and {who}")
    notes.append("the guarantee is central: it trusts you, who hold the exact sums while the run is under way")
    if beyond:
        notes.append(f"{counted(beyond, 'record does', 'records do')} not count: per_subject = {most} of a person do")
    if replayed:
        notes.append(f"the release holds {replayed:,} of these records already: the same table again costs nothing")
    return notes


def contacted(policy: Policy) -> list[str]:
    """Return "entry: host" for every host or store that a run contacts; "env:NAME" where a variable names it."""
    synthetic = policy.synthetic
    corpora = {} if synthetic is None else {"corpus": synthetic.mechanism.corpus, "pool": synthetic.pool}
    places = {"source": policy.source, "sink": policy.sink, "staging": policy.staging, **corpora}
    places |= {f"audience {item.name}, sink": item.sink for item in policy.audiences}
    places["ledger.anchors"] = policy.ledger.anchors
    remote = {entry: place for entry, place in places.items() if place and is_remote(place.removeprefix("file://"))}
    contacts = [f"{entry}: {_store(place)}" for entry, place in remote.items()]
    contacts += [f"storage_options.{name}: {_host(url)}" for name, url in hosts(policy.storage_options).items()]
    catalogs = {"table.catalog": {} if policy.table is None else policy.table.catalog}
    for entry, properties in {**catalogs, "source_catalog": policy.source_catalog}.items():
        contacts += [f"{entry}.{name}: {_host(url)}" for name, url in hosts(properties, CATALOG).items()]
        if properties and "uri" not in properties:
            contacts.append(f"{entry}: {properties.get('type', 'the one')} of this environment")
    url = policy.ledger.url
    if variable_of(url) is not None or (not url.startswith("sqlite:") and "://" in url):
        contacts.append(f"ledger.url: {_host(url)}")
    for entry, reference in (("key", policy.key), ("ledger.id_key", policy.ledger.id_key)):
        scheme = (reference or "file:").partition(":")[0]
        if scheme not in BUILT_IN:
            contacts.append(f"{entry}: the installed plug-in {scheme}")
    for column in policy.columns:
        parts: list[BaseModel] = [column.mechanism, *column.postprocess]
        for name, value in (item for part in parts for item in _public_inputs(part)):
            contacts.append(f"column {column.name}, {name}: {value}")
    return contacts


def _store(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _host(url: str) -> str:
    """Return the host of a URL, or whatever is in its place, without the user."""
    if variable_of(url) is not None:
        return url
    return host_of(url) or url.partition("://")[2].partition("/")[0].rpartition("@")[2] or "the client's own setting"


def _public_inputs(part: BaseModel) -> Iterator[tuple[str, str]]:
    """Yield the public inputs of a mechanism that are fetched: from a store, or from a hub if they are not here."""
    hub: frozenset[str] = getattr(part, "hub_fields", frozenset())
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, BaseModel):
            yield from _public_inputs(value)
        elif isinstance(value, str) and is_remote(value.removeprefix("file://")):
            yield name, _store(value)
        elif name == "model" and name in hub and isinstance(value, str) and not Path(value).exists():
            yield name, f"huggingface.co, unless {value} is on this machine"
