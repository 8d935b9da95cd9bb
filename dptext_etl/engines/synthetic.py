"""Run the policy of a synthetic table: charge and sum, pin, draw, stage, commit, check, publish.

No row is released: an engine charges and sums (`LocalRecords` in this process), and this process does everything else.
Specification: docs/spec/synthetic.md#runs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl import telemetry
from dptext_etl.checks import Verdict, require
from dptext_etl.engines.engine import Engine
from dptext_etl.errors import InputError, LedgerError, seam
from dptext_etl.families.aggregate import Partial
from dptext_etl.ledger import Ledger, Outcome
from dptext_etl.runner import left_out
from dptext_etl.runner.amounts import SHOWN, shown
from dptext_etl.runner.checkpoint import Checkpoint, nothing
from dptext_etl.runner.progress import Course, Listener, Meter
from dptext_etl.runner.publish.manifest import is_whole
from dptext_etl.runner.publish.publication import Published
from dptext_etl.runner.publish.versions import alone_at
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source import identity
from dptext_etl.runner.source.cutting import pieces
from dptext_etl.runner.source.roles import Table
from dptext_etl.runner.summary import NOTHING_SPENT, RunSummary, remaining
from dptext_etl.runner.synthetic.attempt import Attempt
from dptext_etl.runner.synthetic.charging import Book, Charged, Records, charge, refuse_crowded
from dptext_etl.runner.synthetic.publishing import judge, publish, published_before, seen_before
from dptext_etl.runner.synthetic.staging import StagedTable, draw
from dptext_etl.synthetic import CLAIM


class Step(NamedTuple):
    """A staged table, its open ledger, and its locked staging folder."""

    staged: StagedTable
    ledger: Ledger
    staging: Staging


def run_synthetic(
    attempt: Attempt, engine: Engine[Any], progress: Listener | None, checkpoint: Checkpoint
) -> RunSummary:
    course = None if progress is None else Course(progress)
    with staged_table(attempt, engine, course, checkpoint) as step:
        verdicts = judge_table(step, checkpoint)
        published = publish_table(step, verdicts, checkpoint)
    return summarize(step.staged, verdicts, published, time.monotonic() - attempt.began)


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
            if before is None or not is_whole(layout, before):
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
def reopened(staged: StagedTable) -> Iterator[Step]:
    """Lock the release of a staged table, and open its ledger, for a later step in a process of its own."""
    staging, spec = Staging(staged.attempt.layout.staging), staged.attempt.policy.ledger
    with (
        staging.storage.lock("of this release is under way"),
        Ledger.open(spec.url, spec.id_key, create=False) as ledger,
    ):
        yield Step(staged, ledger, staging)


def judge_table(step: Step, checkpoint: Checkpoint = nothing) -> tuple[Verdict, ...]:
    """Evaluate the gates of a staged table; there are none where another machine's table is published."""
    staged = step.staged
    if staged.other:
        return ()
    verdicts = judge(staged.attempt, step.ledger, staged.ref, step.staging, staged.drawn)
    telemetry.judged(staged.attempt.policy.dataset, staged.attempt.policy.release, verdicts)
    checkpoint("gated")
    return verdicts


def publish_table(step: Step, verdicts: Sequence[Verdict], checkpoint: Checkpoint = nothing) -> Published:
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


def summarize(staged: StagedTable, verdicts: Sequence[Verdict], published: Published, seconds: float) -> RunSummary:
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
        spend=_spend(attempt, staged.rows["released"]),
        remaining=remaining(policy),
        gates=[verdict.as_dict() for verdict in verdicts],
        reports=[],
        published=published.path,
        published_rows=published.rows,
        manifest=published.manifest,
        staging=attempt.layout.staging.url,
        notes=[published.note, *_notes(attempt, staged.rows, staged.dropped)],
    )


def _spend(attempt: Attempt, rows: int) -> dict[str, dict[str, float | str]]:
    cost = attempt.statistic.charge(CLAIM).as_dict()
    amounts = {name: cost.get(name, "inf") for name in SHOWN}
    each = {name: -1 if amount == "inf" else amount for name, amount in amounts.items()}
    sums = {f"sum_{name}": amount if amount == -1 else amount * rows for name, amount in each.items()}
    return shown({**sums, **{f"max_{name}": amount for name, amount in each.items()}})


def _notes(attempt: Attempt, rows: Mapping[str, int], dropped: tuple[str, ...]) -> list[str]:
    policy, notes = attempt.policy, list[str]()
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
    if policy.cap is None:
        notes.append("the policy sets no cap: what a unit can lose over several releases is not bounded")
    if policy.unit == "record":
        notes.append('unit = "record": a person with k records has k times the loss')
    return notes


_SCHEMA = pa.schema([("id", pa.large_string()), ("identity", pa.binary(32))])


class LocalRecords:
    """Records of the files of a source (`runner.synthetic.charging.Records`)."""

    def __init__(self, attempt: Attempt, table: Table[pl.LazyFrame], progress: Listener | None) -> None:
        self._attempt = attempt
        self.total, self.nameless = identity.check(table, attempt.policy, progress)
        self._rows, self.wanted = attempt.who_counts(table.frame, self.total, self.nameless)
        self._counted = _Counted(attempt.layout.staging.folder)

    def charge(self, book: Book, meter: Meter) -> Charged:
        policy = book.policy
        answers, partial, persons = Counter[str](), Partial.zero(book.statistic), [np.zeros(0, np.uint64)]
        for index, frame in enumerate(pieces(self._rows, policy.shard_rows, policy.shard_bytes)):
            summed = book.charge(frame, index)
            answers.update(summed.answers)
            partial += summed.partial
            persons.append(summed.persons)
            self._counted.add(summed.ids, summed.identities)
            meter.add(frame.height)
        refuse_crowded(np.concatenate(persons), self._attempt.synthetic.per_subject)
        return Charged(partial, self._counted.rows, answers)

    def agree(self, book: Book, digest: str) -> bool:
        return all(book.agree(ids, digest) for ids, _ in self._counted.each())

    def commit(self, book: Book, digest: str, charged: Charged) -> None:  # noqa: ARG002  (these are the same records)
        for ids, identities in self._counted.each():
            book.commit(ids, identities, digest)


class _Counted:
    """The ids and identities of the records that were summed, in a file without a name: it ends with the process."""

    def __init__(self, folder: Path) -> None:
        with seam("keeping the ids of a run", InputError, "is there room in the staging folder?"):
            self._file = TemporaryFile(dir=folder)  # noqa: SIM115  (it lives as long as this object)
            self._writer = pa.ipc.new_stream(self._file, _SCHEMA)
        self.rows = 0

    def add(self, ids: pa.Array, identities: pa.Array) -> None:
        columns = [ids.cast(pa.large_string()), identities.cast(pa.binary(32))]
        with seam("keeping the ids of a run", InputError, "is there room in the staging folder?"):
            self._writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        self.rows += len(ids)

    def each(self) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Yield ids and identities in batches, as often as this is asked; nothing is added afterwards."""
        self._writer.close()
        self._file.seek(0)
        for batch in pa.ipc.open_stream(self._file):
            yield batch.column("id"), batch.column("identity")
