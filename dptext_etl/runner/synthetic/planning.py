"""Forecast what a synthetic table would cost; nothing is summed, drawn, charged, or written."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dptext_etl.column import INFINITE
from dptext_etl.guarantee import MICRO, Spend
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Ledger
from dptext_etl.policy import Policy
from dptext_etl.runner.amounts import at_most
from dptext_etl.runner.balances import Forecast
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.publish.minimum_rows import require_enough
from dptext_etl.runner.shard.attempt import refuse_over_cap
from dptext_etl.runner.shard.charging import subjects_of
from dptext_etl.runner.source.examine import check_ids
from dptext_etl.runner.source.roles import Table
from dptext_etl.runner.source.table import batches
from dptext_etl.runner.synthetic.attempt import Attempt
from dptext_etl.runner.synthetic.publishing import claim_of
from dptext_etl.synthetic import CLAIM

_ROWS_AT_ONCE = 1 << 18


class Found(NamedTuple):
    """What a run would take.

    Attributes:
        total: Rows of the source.
        wanted: Records that would count.
        nameless: Rows that are left out because they have no subject.
        held: Records that the release holds.
        forecast: What every record and person would pay.
        column: What would be claimed.
        spend: What a record would be charged.
        notes: Further facts, in sentences.
    """

    total: int
    wanted: int
    nameless: int
    held: int
    forecast: Forecast
    column: dict[str, Any]
    spend: Spend
    notes: list[str]


def forecast(policy: Policy, table: Table[pl.LazyFrame], ledger: Ledger | None, progress: Listener | None) -> Found:
    """Add up what a run would charge per record and per person."""
    attempt = Attempt.of(policy, None)
    total, nameless = check_ids(table, policy)
    rows, wanted = attempt.who_counts(table.frame, total, nameless)
    spend, held = attempt.statistic.charge(CLAIM), 0
    ref = None if ledger is None else ledger.find_all(policy).get(attempt.synthetic.column)
    found, meter = Forecast(policy, ledger), Meter("plan", wanted, progress)
    if policy.cap is None:
        found.components = ("eps_approx",)
    each = [getattr(spend, name) for name in found.components]
    costs = np.array([INFINITE if amount == float("inf") else amount for amount in each], np.int64)[:, None]
    for frame in batches(rows.select(filter(None, (policy.id, policy.subject))), _ROWS_AT_ONCE):
        ids = canonical_ids(frame[policy.id].to_arrow())
        known = np.zeros(frame.height, bool) if ledger is None or ref is None else ledger.known(ref, ids)
        held += int(known.sum())
        subjects, draws = subjects_of(frame, policy), np.ones((1, frame.height), np.uint32)
        worst = np.repeat(costs, frame.height, axis=1)
        found.add(worst, np.where(known, 0, worst), ids if subjects is None else subjects, draws)
        meter.add(frame.height)
    over = found.over_cap()["records"]
    if policy.on_cap == "refuse":
        refuse_over_cap(over)
    require_enough(policy, {"released": wanted - over, "quarantined": over, "without_subject": nameless})
    column = {**claim_of(attempt), "neighbours": CLAIM.neighbours, "meanings": {}}
    return Found(
        total, wanted, nameless, held, found, column, spend, _notes(attempt, spend, total - nameless - wanted, held)
    )


def _notes(attempt: Attempt, spend: Spend, beyond: int, held: int) -> list[str]:
    synthetic, policy = attempt.synthetic, attempt.policy
    made, most = synthetic.mechanism, synthetic.per_subject
    notes = [
        f"published are {synthetic.rows:,} public texts that follow one noisy statistic; no record's text is released",
        f"epsilon {at_most(made.epsilon)} at delta {made.delta:g} is that of the whole table for one record",
    ]
    if policy.unit == "subject":
        person = most * spend.eps_approx / MICRO
        notes.append(
            f"a person has at most {most} records in it: epsilon {at_most(person)} in all, at delta {made.delta:g}"
        )
    else:
        notes.append('unit = "record": a person with k records has k times the loss')
    notes.append("the guarantee is central: it trusts you, who hold the exact sums while the run is under way")
    if beyond:
        notes.append(f"{beyond} records do not count: per_subject = {most} of a person do")
    if held:
        notes.append(f"the release holds {held} of these records already: the same table again costs nothing")
    if policy.cap is None:
        notes.append("the policy sets no cap: what a unit can lose over several releases is not bounded")
    return notes
