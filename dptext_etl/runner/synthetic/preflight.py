"""Look at all records of a synthetic table before any is charged: refuse a run that could not end, and forecast one.

Nothing is summed, drawn, or charged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.accounting import log10_odds
from dptext_etl.column import INFINITE
from dptext_etl.errors import DPTextError, InputError, counted
from dptext_etl.guarantee import ADDITIVE, MICRO, refuse_more_records
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Charge, Ledger, Outcome, ReleaseRef, Scope
from dptext_etl.ledger.id_key import resolve_id_key
from dptext_etl.ledger.identities import refuse_other_units
from dptext_etl.ledger.types import NEW
from dptext_etl.policy import Policy
from dptext_etl.policy.synthetic import CLAIM
from dptext_etl.runner.amounts import at_most
from dptext_etl.runner.anchoring import require_same_ledger
from dptext_etl.runner.claims import policy_notes
from dptext_etl.runner.planning import PlanSummary, facts_of_cap, summarize
from dptext_etl.runner.preflight import collect, refuse_unproven_key, require_cap, require_whole_table
from dptext_etl.runner.preview import Expected, Preview, ledger_of, preview_rows
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.publish.publication import require_enough
from dptext_etl.runner.shard.attempt import refuse_over_cap
from dptext_etl.runner.shard.charging import Charged, subjects_of
from dptext_etl.runner.source.examine import check_ids
from dptext_etl.runner.source.roles import Table, forms_of
from dptext_etl.runner.synthetic.attempt import SyntheticAttempt
from dptext_etl.runner.synthetic.publishing import claim_of


class Counts(NamedTuple):
    """Rows of the source of a synthetic table, by what becomes of them before the ledger is asked."""

    total: int  # rows of the source
    nameless: int  # rows that are left out because they have no subject
    wanted: int  # records that count


class TablePreview(Preview):
    """Counts what a run will find; no record draws anything of its own."""

    def __init__(
        self,
        policy: Policy,
        key: _kernel.ReleaseKey,
        ref: ReleaseRef,
        ledger: Ledger | None,
        scratch: Path | None = None,
    ) -> None:
        super().__init__(policy, [], ledger, scratch=scratch)
        if policy.cap is None:
            self.forecast.components = ("eps_approx",)
        self._key, self._ref = key, ref

    def _charge(self, frame: pl.DataFrame) -> Charged:
        return charge_of(self._policy, self._key, self._ref, frame)

    def _draws(self, frame: pl.DataFrame, charged: npt.NDArray[np.uint32]) -> int:  # noqa: ARG002
        return 0


def charge_of(policy: Policy, key: _kernel.ReleaseKey, ref: ReleaseRef, frame: pl.DataFrame) -> Charged:
    """Return what the records of a frame are charged: the same for all."""
    ids, spend = canonical_ids(frame[policy.id].to_arrow()), policy.statistic.charge(CLAIM)
    amounts = {name: getattr(spend, name) for name in ADDITIVE}
    spends = {
        name: np.full(frame.height, INFINITE if amount == float("inf") else min(amount, INFINITE))
        for name, amount in amounts.items()
    }
    asked = Charge(ref, identities_of(policy, key, ids, frame), np.ones(frame.height, np.uint32), spends)
    return Charged(ids, subjects_of(frame, policy), (asked,), forms_of(frame.schema, policy))


def preflight_table(  # noqa: PLR0917
    attempt: SyntheticAttempt,
    schema: pl.Schema,
    id_type: str,
    counts: Counts,
    look: Callable[[ReleaseRef, Ledger | None], Expected],
    refusals: list[DPTextError] | None = None,
) -> Expected:
    """Refuse a run that could not end, before it charges anything; `look` counts what the records hold.

    A plan gives a list that collects the refusals.
    """
    policy, planning = attempt.policy, refusals is not None
    same_ledger = partial(require_same_ledger, layout=attempt.layout, policy=policy, freezing=not planning)
    with ledger_of(policy, writing=not planning) as ledger:
        if ledger is not None:
            collect(refusals, partial(same_ledger, ledger))
    with ledger_of(policy) as ledger:
        collect(refusals, partial(require_cap, attempt, ledger))
        ref = release_of(attempt, schema, id_type, ledger)
        found = look(ref, ledger)
        collect(refusals, partial(refuse_table, attempt, counts, ledger, ref, found))
        if ledger is None and planning:
            collect(refusals, partial(same_ledger, None))
    return found


def release_of(attempt: SyntheticAttempt, schema: pl.Schema, id_type: str, ledger: Ledger | None) -> ReleaseRef:
    """Return the release of the table, and refuse what the ledger would not pin. Nothing is pinned."""
    policy, synthetic = attempt.policy, attempt.synthetic
    if ledger is None:
        if policy.ledger.id_key is not None:
            resolve_id_key(policy.ledger.id_key)
        return ReleaseRef(NEW, policy.dataset, synthetic.column, policy.release, attempt.statistic.cfg())
    ref = attempt.pin(ledger, id_type, pin=False)
    ledger.require_forms(Scope.of(policy), list(policy.text_columns), forms_of(schema, policy))
    return ref


def refuse_table(
    attempt: SyntheticAttempt, counts: Counts, ledger: Ledger | None, ref: ReleaseRef, found: Expected
) -> None:
    """Refuse a run by what it will find; a table that is charged is refused by the same rules."""
    refuse_unproven_key(ledger, [ref], found)
    refuse_other_units(Scope.of(attempt.policy), found.moved, found.records)
    if found.changed:
        refuse_changed(found.changed)
    if ledger is not None and ref.id != NEW:
        held, new = ledger.records(ref), found.answers.get(Outcome.RESERVED.name, 0)
        refuse_more_records(held + new, attempt.synthetic.n_rec, str(ref))
    refuse_unpublishable(attempt.policy, counts.nameless, found.admitted, found.over_cap)
    require_whole_table(ledger, ref, found)


def refuse_changed(changed: int) -> None:
    held = "since this release took them; it holds one table, whole"
    msg = f"the texts or labels of {counted(changed, 'record')} changed {held}"
    hint = "nothing was drawn; changed data, or another key, go under a new name, at full spend"
    raise InputError(msg, hint, {"records": changed})


def refuse_unpublishable(policy: Policy, nameless: int, released: int, over: int) -> None:
    """Refuse a table of which the cap, or forgotten people, leave too little."""
    if policy.on_cap == "refuse":
        refuse_over_cap(over)
    require_enough(policy, {"released": released, "quarantined": over, "without_subject": nameless})
    if not released:
        raise InputError("all records of the source were forgotten or are over the cap", "this run spent nothing")


def identities_of(policy: Policy, key: _kernel.ReleaseKey, ids: pa.Array, frame: pl.DataFrame) -> pa.Array:
    """Return the identities of records, fixed-size binary (32): they cover text and label, whatever is null."""
    synthetic, nothing = policy.synthetic, pl.lit("n")
    assert synthetic is not None  # noqa: S101  (an attempt has none without it)
    text = pl.col(synthetic.column)
    label = pl.lit(None, pl.String) if synthetic.labels is None else pl.col(synthetic.labels.column)
    length = label.str.len_bytes().cast(pl.String)
    parts = (
        pl.when(label.is_null()).then(nothing).otherwise(pl.concat_str(length, pl.lit(":"), label)),
        pl.when(text.is_null()).then(nothing).otherwise(pl.concat_str(pl.lit("t"), text)),
    )
    both = frame.select(pl.concat_str(*parts)).to_series().to_arrow()
    return pa.array(_kernel.idem_keys(key, ids, both))


def plan_table(attempt: SyntheticAttempt, table: Table[pl.LazyFrame], progress: Listener | None) -> PlanSummary:
    """Forecast a run: every record that counts is charged the same."""
    policy, spend, refusals = attempt.policy, attempt.statistic.charge(CLAIM), list[DPTextError]()
    total, nameless = check_ids(table, policy, attempt.layout.scratch)
    rows, wanted = attempt.who_counts(table.frame, total, nameless)
    previews = list[TablePreview]()

    def look(ref: ReleaseRef, ledger: Ledger | None) -> Expected:
        previews.append(TablePreview(policy, attempt.key, ref, ledger, attempt.layout.scratch))
        return preview_rows(previews[0], rows, Meter("plan", wanted, progress))

    try:
        cap_facts = facts_of_cap(policy)
        counts = Counts(total, nameless, wanted)
        found = preflight_table(attempt, table.schema, table.id_type, counts, look, refusals)
    except DPTextError as error:
        raise (refusals or [error])[0] from None
    epsilon, delta = spend.eps_approx / MICRO, policy.statistic.delta
    most = attempt.synthetic.per_subject if policy.unit == "subject" else 1
    return summarize(
        policy,
        previews[0].forecast,
        cap_facts,
        _notes(attempt, most * epsilon, total - nameless - wanted, found.held),
        refusals,
        partition=attempt.layout.partition,
        rows=wanted,
        already_published=0,
        draws=0,
        columns=[{**claim_of(attempt), "neighbours": CLAIM.neighbours, "meanings": {}}],
        together={"unit": policy.unit, "epsilon": most * epsilon, "delta": delta, "rule": "zcdp"},
        left_out={"quarantined": found.over_cap, "without_subject": nameless},
        changed=found.changed,
        log10_odds={"per_word": round(log10_odds(spend.eps_approx), 3)},
        dropped=list(table.dropped),
    )


def _notes(attempt: SyntheticAttempt, person: float, beyond: int, held: int) -> list[str]:
    synthetic, policy = attempt.synthetic, attempt.policy
    made, most = synthetic.mechanism, synthetic.per_subject
    notes = [
        f"published are {synthetic.rows:,} public texts that follow one noisy statistic; no record's text is released",
        f"epsilon {at_most(made.epsilon)} at delta {made.delta:g} is that of the whole table for one record",
    ]
    if policy.unit == "subject":
        bound = f"epsilon {at_most(person)} in all, at delta {made.delta:g}"
        notes.append(f"a person has at most {counted(most, 'record')} in it: {bound}")
    notes.append("the guarantee is central: it trusts you, who hold the exact sums while the run is under way")
    if beyond:
        notes.append(f"{counted(beyond, 'record does', 'records do')} not count: per_subject = {most} of a person do")
    if held:
        notes.append(f"the release holds {held:,} of these records already: the same table again costs nothing")
    return notes + policy_notes(policy)
