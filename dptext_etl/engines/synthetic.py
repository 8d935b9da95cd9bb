"""Run the policy of a synthetic table: charge and sum, pin, draw, stage, commit, check, publish.

No row is released: an engine charges and sums, and this process does everything else.
Specification: docs/spec/synthetic.md#runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from dptext_etl.engines.engine import Engine
from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Ledger, Outcome
from dptext_etl.runner.progress import Checkpoint, Listener, Meter, WholeRun, nothing
from dptext_etl.runner.publish.manifest import is_whole
from dptext_etl.runner.shard.attempt import UNDER_WAY
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.summary import RunSummary
from dptext_etl.runner.synthetic.attempt import StagedTable, SyntheticAttempt, draw
from dptext_etl.runner.synthetic.charging import Charged, Frames, Records, charge
from dptext_etl.runner.synthetic.publishing import Step, judge, publish, published_before, summarize_table


def run_synthetic(
    attempt: SyntheticAttempt, engine: Engine[Any], progress: Listener | None, checkpoint: Checkpoint
) -> RunSummary:
    """Publish a synthetic table (see `dptext_etl.engines.run`)."""
    began, whole_run = time.monotonic(), None if progress is None else WholeRun(progress)
    with staged_table(attempt, engine, whole_run, checkpoint) as step:
        verdicts = judge(step, checkpoint)
        published = publish(step, verdicts, checkpoint)
    return summarize_table(step.staged, verdicts, published, time.monotonic() - began)


@contextmanager
def staged_table(
    attempt: SyntheticAttempt, engine: Engine[Any], progress: Listener | None, checkpoint: Checkpoint = nothing
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
        (ref,) = attempt.pinned(ledger, table.id_type)
        checkpoint("registered")
        frames = Frames(attempt.policy, attempt.key, ledger, ref, attempt.job, staging, layout.memory, checkpoint)
        staging.storage.delete(*staging.storage.glob("quarantine-*"))  # of other batches
        charged = charge(attempt, frames, records, Meter("reserve", records.wanted, progress))
        drawn = draw(attempt, staging, charged.partial)
        checkpoint("staged")
        held = charged.answers[Outcome.COMMITTED.name]
        other = held > 0 and not records.agree(frames, drawn.digest)
        if other:
            before = published_before(attempt, ledger, ref, drawn) if attempt.policy.publish else None
            if before is None or not is_whole(layout, before):
                msg = "the release holds another table: other rows or names, or one that another machine drew"
                hint = "the first commit is the release; take a new release name, or draw rows from its statistic"
                raise LedgerError(f"{msg}; nothing was published", hint)
        elif held < charged.rows:
            records.commit(frames, drawn.digest, charged)
            attempt.remember(ledger)
        rows, seconds = _rows(records, charged), time.monotonic() - began
        facts = (rows, table.dropped, table.origin, seconds, other)
        yield Step(StagedTable(attempt, ref, drawn, charged.partial.digest.hex(), *facts), ledger, staging)


@contextmanager
def staged_before(staged: StagedTable) -> Iterator[Step]:
    """Lock the release of a staged table, and open its ledger, for a later step in a process of its own."""
    staging, spec = Staging(staged.attempt.layout.staging), staged.attempt.policy.ledger
    with (
        staging.storage.lock(UNDER_WAY),
        Ledger.open(spec.url, spec.id_key, create=False) as ledger,
    ):
        yield Step(staged, ledger, staging)


def _rows(records: Records, charged: Charged) -> dict[str, int]:
    answers, beyond = charged.answers, records.total - records.nameless - records.wanted
    gone = answers[Outcome.FORGOTTEN.name]
    return {
        "read": records.total,
        "already_published": 0,
        **({"over_contribution": beyond} if beyond else {}),
        **({"without_subject": records.nameless} if records.nameless else {}),
        "new": answers[Outcome.RESERVED.name],
        "resumed": answers[Outcome.PENDING.name],
        "replayed": answers[Outcome.COMMITTED.name],
        "quarantined": answers[Outcome.OVER_CAP.name],
        **({"forgotten": gone} if gone else {}),
        "released": charged.rows,
    }
