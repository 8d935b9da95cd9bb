"""Run the policy of a synthetic table: charge and sum, pin, draw, stage, commit, check, publish.

No row is released, so nothing is computed shard by shard: this process sums.
Specification: docs/spec/synthetic.md#runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from dptext_etl.checks import Verdict
from dptext_etl.engines.engine import Engine
from dptext_etl.engines.local.engine import LocalEngine
from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Ledger, Outcome
from dptext_etl.policy import Policy
from dptext_etl.runner.amounts import SHOWN, shown
from dptext_etl.runner.checkpoint import Checkpoint
from dptext_etl.runner.progress import Course, Listener, Meter
from dptext_etl.runner.publish.publication import Published
from dptext_etl.runner.publish.reading import whole
from dptext_etl.runner.publish.showing import alone_at, require_sink
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source import identity
from dptext_etl.runner.summary import NOTHING_SPENT, RunSummary, remaining
from dptext_etl.runner.synthetic.charging import Attempt, Charged, charge
from dptext_etl.runner.synthetic.publishing import judge, publish, published_before
from dptext_etl.runner.synthetic.staging import agrees, commit, draw
from dptext_etl.synthetic import CLAIM, one_process


def run_synthetic(
    policy: Policy,
    engine: Engine[Any],
    *,
    partition: str | None,
    accept_lower_cap: bool,
    progress: Listener | None,
    checkpoint: Checkpoint,
) -> RunSummary:
    """Publish a synthetic table (see `dptext_etl.engines.run`)."""
    if not isinstance(engine, LocalEngine):
        raise one_process()
    began, course = time.monotonic(), None if progress is None else Course(progress)
    attempt = Attempt.of(policy, partition, accept_lower_cap=accept_lower_cap)
    layout, staging = attempt.layout, Staging(attempt.layout.shelf)
    table = engine.open(policy, layout)
    with ExitStack() as opened:
        staging.prepare()
        require_sink(layout)
        opened.enter_context(staging.shelf.alone("of this release is under way"))
        total, nameless = identity.check(table, policy, course)
        rows, wanted = attempt.who_counts(table.frame, total, nameless)
        checkpoint("checked")
        ledger = opened.enter_context(Ledger.open(policy.ledger.url, policy.ledger.id_key))
        ref = attempt.register(ledger, table.id_type)
        checkpoint("registered")
        meter = Meter("reserve", wanted, course)
        charged = charge(attempt, ledger, ref, rows, staging, meter, wanted, nameless, checkpoint)
        drawn = draw(attempt, staging, charged.partial)
        checkpoint("staged")
        verdicts: tuple[Verdict, ...] = ()
        if agrees(attempt, ledger, ref, charged.counted, drawn.digest):
            commit(attempt, ledger, ref, charged.counted, drawn.digest, checkpoint)
            verdicts = judge(attempt, ledger, ref, staging, drawn)
            checkpoint("gated")
            if policy.publish:
                hold = opened.enter_context(alone_at(layout))
                facts = (staging, drawn, verdicts, table.origin, checkpoint, hold)
                published = publish(attempt, ledger, ref, *facts)
            else:
                note = f"not published (publish = false): the table stays staged in {layout.inside.where}"
                published = Published(None, None, None, 0, changed=False, note=note)
        else:
            before = published_before(attempt, ledger, ref, drawn) if policy.publish else None
            if before is None or not whole(layout, before):
                msg = "the release holds another table: other rows or names, or one that another machine drew"
                hint = "the first commit is the release; take a new release name, or draw rows from its statistic"
                raise LedgerError(f"{msg}; nothing was published", hint)
            note = "already published; this machine would draw a few other rows from the same statistic"
            published = Published(before.version, layout.sink, before.digest, before.rows, changed=False, note=note)
    counted = total, wanted, nameless
    return _summary(attempt, charged, counted, table.dropped, verdicts, published, time.monotonic() - began)


def _summary(  # noqa: PLR0917
    attempt: Attempt,
    charged: Charged,
    counted: tuple[int, int, int],
    dropped: tuple[str, ...],
    verdicts: tuple[Verdict, ...],
    published: Published,
    seconds: float,
) -> RunSummary:
    policy, said = attempt.policy, charged.answers
    total, wanted, nameless = counted
    beyond, gone = total - nameless - wanted, said[Outcome.FORGOTTEN.name]
    rows = {
        "read": total,
        "already_published": 0,
        **({"over_contribution": beyond} if beyond else {}),
        **({"without_subject": nameless} if nameless else {}),
        "new": said[Outcome.RESERVED.name],
        "resumed": said[Outcome.PENDING.name],
        "replayed": said[Outcome.COMMITTED.name],
        "quarantined": said[Outcome.OVER_CAP.name],
        **({"forgotten": gone} if gone else {}),
        "released": charged.counted.rows,
    }
    return RunSummary(
        dataset=policy.dataset,
        release=policy.release,
        partition=None,
        version=published.version,
        changed=published.changed,
        rows=rows,
        words=0,
        seconds=round(seconds, 3),
        words_per_second=0.0,
        spend=_spend(attempt, charged.counted.rows),
        remaining=remaining(policy),
        gates=[verdict.as_dict() for verdict in verdicts],
        reports=[],
        published=published.path,
        published_rows=published.rows,
        manifest=published.manifest,
        staging=attempt.layout.inside.where,
        notes=[published.note, *_notes(attempt, rows, dropped)],
    )


def _spend(attempt: Attempt, rows: int) -> dict[str, dict[str, float | str]]:
    """Return what the records were charged: each of them the same."""
    cost = attempt.statistic.charge(CLAIM).as_dict()
    amounts = {name: cost.get(name, "inf") for name in SHOWN}
    each = {name: -1 if amount == "inf" else amount for name, amount in amounts.items()}
    sums = {f"sum_{name}": amount if amount == -1 else amount * rows for name, amount in each.items()}
    return shown({**sums, **{f"max_{name}": amount for name, amount in each.items()}})


def _notes(attempt: Attempt, rows: Mapping[str, int], dropped: tuple[str, ...]) -> list[str]:
    policy, notes = attempt.policy, list[str]()
    if rows["quarantined"]:
        folder = attempt.layout.inside.where
        notes.append(f"{rows['quarantined']} records over the cap do not count; their ids are listed in {folder} alone")
    if rows.get("over_contribution"):
        most = attempt.synthetic.per_subject
        notes.append(f"{rows['over_contribution']} records do not count: per_subject = {most} of a person do")
    if rows.get("forgotten"):
        notes.append(f"{rows['forgotten']} records that were forgotten are in the source again, and do not count")
    if dropped:
        notes.append(f"columns that the policy does not name were dropped unread: {', '.join(dropped)}")
    if not rows["new"]:
        notes.append(NOTHING_SPENT)
    if policy.cap is None:
        notes.append("the policy sets no cap: what a unit can lose over several releases is not bounded")
    if policy.unit == "record":
        notes.append('unit = "record": a person with k records has k times the loss')
    return notes
