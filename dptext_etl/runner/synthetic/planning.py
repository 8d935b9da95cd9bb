"""Forecast what a synthetic table would cost; nothing is summed, drawn, charged, or written."""

from __future__ import annotations

from functools import partial

import polars as pl

from dptext_etl.accounting import log10_odds
from dptext_etl.errors import DPTextError, counted, described
from dptext_etl.guarantee import MICRO
from dptext_etl.policy.synthetic import CLAIM
from dptext_etl.runner.amounts import at_most
from dptext_etl.runner.anchoring import require_same_ledger
from dptext_etl.runner.claims import policy_notes
from dptext_etl.runner.planning import PlanSummary, collect, facts_of_cap, summarize
from dptext_etl.runner.preflight import require_cap
from dptext_etl.runner.preview import ledger_of, preview_rows
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.source.examine import check_ids
from dptext_etl.runner.source.roles import Table
from dptext_etl.runner.synthetic.attempt import SyntheticAttempt
from dptext_etl.runner.synthetic.preflight import Counts, TablePreview, refuse_table, release_of
from dptext_etl.runner.synthetic.publishing import claim_of


def plan_table(attempt: SyntheticAttempt, table: Table[pl.LazyFrame], progress: Listener | None) -> PlanSummary:
    """Forecast a run: every record that counts is charged the same."""
    policy, spend, refusals = attempt.policy, attempt.statistic.charge(CLAIM), list[DPTextError]()
    total, nameless = check_ids(table, policy, attempt.layout.scratch)
    rows, wanted = attempt.who_counts(table.frame, total, nameless)
    with ledger_of(policy) as ledger:
        cap_facts = facts_of_cap(policy, ledger)
        same_ledger = partial(require_same_ledger, ledger, attempt.layout, policy, freezing=False)
        if ledger is not None:
            collect(refusals, same_ledger)
        collect(refusals, lambda: require_cap(attempt, ledger))
        try:
            ref = release_of(attempt, table.schema, table.id_type, ledger)
            preview = TablePreview(policy, attempt.key, ref, ledger, attempt.layout.scratch)
            found = preview_rows(preview, rows, Meter("plan", wanted, progress))
        except DPTextError as error:
            raise (refusals or [error])[0] from None
        counts = Counts(total, nameless, wanted)
        collect(refusals, lambda: refuse_table(attempt, counts, ledger, ref, found))
        if ledger is None:  # a run looks before it makes one
            collect(refusals, same_ledger)
    epsilon, delta = spend.eps_approx / MICRO, policy.statistic.delta
    most = attempt.synthetic.per_subject if policy.unit == "subject" else 1
    return summarize(
        policy,
        preview.forecast,
        cap_facts,
        _notes(attempt, most * epsilon, total - nameless - wanted, found.held),
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
        refusal=described(refusals[0]) if refusals else None,
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
