"""Forecast what a synthetic table would cost; nothing is summed, drawn, charged, or written."""

from __future__ import annotations

import numpy as np

from dptext_etl.accounting import log10_odds
from dptext_etl.column import INFINITE
from dptext_etl.guarantee import MICRO
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Scope
from dptext_etl.policy import Policy
from dptext_etl.policy.synthetic import CLAIM
from dptext_etl.runner.amounts import at_most
from dptext_etl.runner.claims import policy_notes
from dptext_etl.runner.forecast import Forecast
from dptext_etl.runner.planning import PlanSummary, facts_of_cap, summarize
from dptext_etl.runner.preflight import ledger_of
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.publish.publication import require_enough
from dptext_etl.runner.shard.attempt import refuse_over_cap
from dptext_etl.runner.shard.charging import subjects_of
from dptext_etl.runner.source.examine import check_ids
from dptext_etl.runner.source.roles import forms_of, open_table
from dptext_etl.runner.source.table import batches
from dptext_etl.runner.synthetic.attempt import SyntheticAttempt
from dptext_etl.runner.synthetic.publishing import claim_of

_ROWS_AT_ONCE = 1 << 18


def plan_table(policy: Policy, partition: str | None, progress: Listener | None) -> PlanSummary:
    """Forecast a run: every record that counts is charged the same."""
    attempt = SyntheticAttempt.of(policy, partition)
    table = open_table(policy, attempt.layout)
    spend, scope, forecast = attempt.statistic.charge(CLAIM), Scope.of(policy), Forecast(policy)
    if policy.cap is None:
        forecast.components = ("eps_approx",)
    each = [getattr(spend, name) for name in forecast.components]
    costs = np.array([INFINITE if amount == float("inf") else amount for amount in each], np.int64)[:, None]
    held = 0
    with ledger_of(policy) as ledger:
        cap_facts = facts_of_cap(policy, ledger)
        if ledger is not None:
            ledger.require_forms(scope, list(policy.text_columns), forms_of(table.schema, policy))
        total, nameless = check_ids(table, policy)
        rows, wanted = attempt.who_counts(table.frame, total, nameless)
        ref = None if ledger is None else ledger.find_all(policy).get(attempt.synthetic.column)
        meter = Meter("plan", wanted, progress)
        for frame in batches(rows.select(filter(None, (policy.id, policy.subject))), _ROWS_AT_ONCE):
            ids, subjects = canonical_ids(frame[policy.id].to_arrow()), subjects_of(frame, policy)
            known = np.zeros(frame.height, bool) if ledger is None or ref is None else ledger.known(ref, ids)
            held += int(known.sum())
            worst, units = np.repeat(costs, frame.height, axis=1), ids if subjects is None else subjects
            draws, used = np.ones((1, frame.height), np.uint32), forecast.used_before(ledger, units)
            forecast.add(worst, np.where(known, 0, worst), units, draws, used)
            meter.add(frame.height)
    over = forecast.over_cap()["records"]
    if policy.on_cap == "refuse":
        refuse_over_cap(over)
    require_enough(policy, {"released": wanted - over, "quarantined": over, "without_subject": nameless})
    epsilon, delta = spend.eps_approx / MICRO, policy.statistic.delta
    most = attempt.synthetic.per_subject if policy.unit == "subject" else 1
    return summarize(
        policy,
        forecast,
        cap_facts,
        _notes(attempt, most * epsilon, total - nameless - wanted, held),
        partition=None,
        rows=wanted,
        already_published=0,
        draws=0,
        columns=[{**claim_of(attempt), "neighbours": CLAIM.neighbours, "meanings": {}}],
        together={"unit": policy.unit, "epsilon": most * epsilon, "delta": delta, "rule": "zcdp"},
        left_out={"quarantined": over, "without_subject": nameless},
        changed=0,
        log10_odds={"per_word": round(log10_odds(spend.eps_approx), 3)},
        dropped=list(table.dropped),
        refusal=None,
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
        notes.append(f"a person has at most {most} records in it: {bound}")
    notes.append("the guarantee is central: it trusts you, who hold the exact sums while the run is under way")
    if beyond:
        notes.append(f"{beyond} records do not count: per_subject = {most} of a person do")
    if held:
        notes.append(f"the release holds {held} of these records already: the same table again costs nothing")
    return notes + policy_notes(policy)
