"""Run the policy of a synthetic table: charge and sum, pin, draw, stage, commit, check, publish.

No row is released: an engine charges and sums, and this process does everything else.
Specification: docs/spec/synthetic.md#runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from dptext_etl import telemetry
from dptext_etl.checks import Verdict, require
from dptext_etl.engines.engine import Engine
from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Ledger, Outcome
from dptext_etl.runner import left_out
from dptext_etl.runner.amounts import equal_spends, spend_facts
from dptext_etl.runner.claims import policy_notes
from dptext_etl.runner.progress import Checkpoint, Listener, Meter, WholeRun, nothing
from dptext_etl.runner.publish.publication import Published
from dptext_etl.runner.publish.reading import whole
from dptext_etl.runner.publish.showing import alone_at
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.summary import NOTHING_SPENT, RunSummary, remaining
from dptext_etl.runner.synthetic.attempt import Attempt
from dptext_etl.runner.synthetic.charging import Book, Charged, Records, charge
from dptext_etl.runner.synthetic.publishing import judge, publish, published_before, seen_before
from dptext_etl.runner.synthetic.staging import StagedTable, draw
from dptext_etl.synthetic import CLAIM


class Step(NamedTuple):
    """What the steps of a run share while no other run of the release is under way."""

    staged: StagedTable
    ledger: Ledger
    staging: Staging


def run_synthetic(
    attempt: Attempt, engine: Engine[Any], *, progress: Listener | None, checkpoint: Checkpoint
) -> RunSummary:
    """Publish a synthetic table (see `dptext_etl.engines.run`)."""
    began, course = time.monotonic(), None if progress is None else WholeRun(progress)
    with staged_table(attempt, engine, course, checkpoint) as step:
        verdicts = judged(step, checkpoint)
        published = shown_to_readers(step, verdicts, checkpoint)
    return summarised(step.staged, verdicts, published, time.monotonic() - began)


@contextmanager
def staged_table(
    attempt: Attempt, engine: Engine[Any], progress: Listener | None, checkpoint: Checkpoint = nothing
) -> Iterator[Step]:
    """Charge, sum, pin, draw, stage, and commit; the ledger stays open, and the release locked, for the block."""
    began, layout = time.monotonic(), attempt.layout
    table = engine.open(attempt.policy, layout)
    with ExitStack() as opened:
        staging = opened.enter_context(attempt.alone())
        records = engine.records(attempt, table, progress)
        checkpoint("checked")
        spec = attempt.policy.ledger
        ledger = opened.enter_context(Ledger.open(spec.url, spec.id_key))
        ref = attempt.register(ledger, table.id_type)
        checkpoint("registered")
        memory = layout.memory
        book = Book(attempt.policy, attempt.key, ledger, ref, attempt.job, staging, memory, checkpoint)
        staging.storage.delete(*staging.storage.glob("quarantine-*"))  # of other batches
        charged = charge(attempt, book, records, Meter("reserve", records.wanted, progress))
        drawn = draw(attempt, staging, charged.partial)
        checkpoint("staged")
        held = charged.answers[Outcome.COMMITTED.name]
        other = held > 0 and not records.agree(book, drawn.digest)
        if other:
            before = published_before(attempt, ledger, ref, drawn) if attempt.policy.publish else None
            if before is None or not whole(layout, before):
                msg = "the release holds another table: other rows or names, or one that another machine drew"
                hint = "the first commit is the release; take a new release name, or draw rows from its statistic"
                raise LedgerError(f"{msg}; nothing was published", hint)
        elif held < charged.rows:
            records.commit(book, drawn.digest, charged)
            attempt.remember(ledger)
        rows, seconds = _rows(records, charged), time.monotonic() - began
        facts = (rows, table.dropped, table.origin, seconds, other)
        yield Step(StagedTable(attempt, ref, drawn, charged.partial.digest.hex(), *facts), ledger, staging)


@contextmanager
def staged_before(staged: StagedTable) -> Iterator[Step]:
    """Lock the release of a staged table, and open its ledger, for a later step in a process of its own."""
    staging, spec = Staging(staged.attempt.layout.staging), staged.attempt.policy.ledger
    with (
        staging.storage.lock("of this release is under way"),
        Ledger.open(spec.url, spec.id_key, create=False) as ledger,
    ):
        yield Step(staged, ledger, staging)


def judged(step: Step, checkpoint: Checkpoint = nothing) -> tuple[Verdict, ...]:
    """Evaluate the gates of a staged table; there are none where another machine's table is published."""
    staged = step.staged
    if staged.other:
        return ()
    verdicts = judge(staged.attempt, step.ledger, staged.ref, step.staging, staged.drawn)
    telemetry.judged(staged.attempt.policy.dataset, staged.attempt.policy.release, verdicts)
    checkpoint("gated")
    return verdicts


def shown_to_readers(step: Step, verdicts: Sequence[Verdict], checkpoint: Checkpoint = nothing) -> Published:
    """Publish a table whose gates passed, if its policy says so."""
    staged, layout = step.staged, step.staged.attempt.layout
    if staged.other:
        return seen_before(layout)
    require(verdicts)
    if not staged.attempt.policy.publish:
        note = f"not published (publish = false): the table stays staged in {layout.staging.url}"
        return Published(None, None, None, 0, changed=False, note=note)
    with alone_at(layout) as hold:
        facts = (step.staging, staged.drawn, verdicts, staged.origin, checkpoint, hold)
        published = publish(staged.attempt, step.ledger, staged.ref, *facts)
        left_out.note(step.staging.storage, published.manifest, staged.rows, verdicts)
        return published


def _rows(records: Records, charged: Charged) -> dict[str, int]:
    said, beyond = charged.answers, records.total - records.nameless - records.wanted
    gone = said[Outcome.FORGOTTEN.name]
    return {
        "read": records.total,
        "already_published": 0,
        **({"over_contribution": beyond} if beyond else {}),
        **({"without_subject": records.nameless} if records.nameless else {}),
        "new": said[Outcome.RESERVED.name],
        "resumed": said[Outcome.PENDING.name],
        "replayed": said[Outcome.COMMITTED.name],
        "quarantined": said[Outcome.OVER_CAP.name],
        **({"forgotten": gone} if gone else {}),
        "released": charged.rows,
    }


def summarised(staged: StagedTable, verdicts: Sequence[Verdict], published: Published, seconds: float) -> RunSummary:
    """Summarize what a run did."""
    attempt, policy = staged.attempt, staged.attempt.policy
    return RunSummary(
        dataset=policy.dataset,
        release=policy.release,
        partition=None,
        version=published.version,
        changed=published.changed,
        rows=staged.rows,
        draws=0,
        seconds=round(seconds, 3),
        draws_per_second=0.0,
        spend=spend_facts(equal_spends(attempt.statistic.charge(CLAIM).as_dict(), staged.rows["released"])),
        remaining=remaining(policy),
        gates=[verdict.as_dict() for verdict in verdicts],
        reports=[],
        published=published.path,
        published_rows=published.rows,
        manifest=published.manifest,
        staging=attempt.layout.staging.url,
        notes=[published.note, *_notes(attempt, staged.rows, staged.dropped)],
    )


def _notes(attempt: Attempt, rows: Mapping[str, int], dropped: tuple[str, ...]) -> list[str]:
    notes = list[str]()
    if rows["quarantined"]:
        folder = attempt.layout.staging.url
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
    return notes + policy_notes(attempt.policy)
