"""Run the policy of a synthetic table: charge and sum, pin, draw, stage, commit, check, publish.

No row is released: an engine charges and sums (`LocalRecords` in this process), and this process does everything else.
Specification: docs/spec/synthetic.md#runs.
"""

from __future__ import annotations

import base64
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import polars as pl

from dptext_etl import telemetry
from dptext_etl.checks import Verdict, require
from dptext_etl.engines.engine import Engine
from dptext_etl.errors import InputError, LedgerError
from dptext_etl.families.aggregate import Partial, added
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


Phase = Literal["charge", "agree", "commit"]
Facts = Mapping[str, Any]


class RecordWorker(Protocol):
    """Takes records through a phase, in this process or on an executor; what it returns is plain data."""

    def take(self, frame: pl.DataFrame, number: int) -> None: ...
    def finish(self) -> Facts: ...


class EngineRecords(ABC):
    """Records of a synthetic table that an engine takes through phases (`runner.synthetic.charging.Records`).

    Every phase reads the rows again, and the records that are committed must be those that were summed.
    """

    total: int
    nameless: int
    wanted: int

    @abstractmethod
    def run(self, book: Book, phase: Phase, digest: str, report: Callable[[int], object]) -> Sequence[Facts]:
        """Take all records through a phase, and return the facts of its workers."""

    def charge(self, book: Book, meter: Meter) -> Charged:
        done = self.run(book, "charge", "", meter.add)
        sums, answers = Partial.zero(book.statistic), Counter[str]()
        for facts in done:
            sums += Partial.unpacked(book.statistic, base64.b64decode(facts["sums"]))
            answers.update(facts["answers"])
        return Charged(sums, sum(facts["rows"] for facts in done), answers)

    def agree(self, book: Book, digest: str) -> bool:
        return all(facts["agrees"] for facts in self.run(book, "agree", digest, lambda _: None))

    def commit(self, book: Book, digest: str, charged: Charged) -> None:
        done = self.run(book, "commit", digest, lambda _: None)
        records = added(*(base64.b64decode(facts["records"]) for facts in done))
        if (sum(facts["rows"] for facts in done), records) != (charged.rows, charged.partial.digest):
            msg = "the source changed while it was read, or records were forgotten meanwhile; nothing was published"
            raise InputError(msg, "run again when no one writes to it; what is charged is not charged twice")


class LocalRecords(EngineRecords):
    def __init__(self, attempt: Attempt, table: Table[pl.LazyFrame], progress: Listener | None) -> None:
        self.total, self.nameless = identity.check(table, attempt.policy, progress)
        self._rows, self.wanted = attempt.who_counts(table.frame, self.total, self.nameless)

    def run(self, book: Book, phase: Phase, digest: str, report: Callable[[int], object]) -> Sequence[Facts]:
        worker = WORKERS[phase](book, digest)
        for number, frame in enumerate(pieces(self._rows, book.policy.shard_rows, book.policy.shard_bytes)):
            worker.take(frame, number)
            report(frame.height)
        return [worker.finish()]


class _Charging:
    def __init__(self, book: Book, _: str) -> None:
        self._book = book
        self._sums, self._rows, self._answers = Partial.zero(book.statistic), 0, Counter[str]()
        self._persons = [np.zeros(0, np.uint64)]

    def take(self, frame: pl.DataFrame, number: int) -> None:
        summed = self._book.charge(frame, number)
        self._sums += summed.partial
        self._rows += len(summed.ids)
        self._answers.update(summed.answers)
        self._persons.append(summed.persons)

    def finish(self) -> Facts:
        most = self._book.policy.synthetic.per_subject if self._book.policy.synthetic is not None else 1
        refuse_crowded(np.concatenate(self._persons), most)  # one worker has all records of a person
        sums = base64.b64encode(self._sums.packed()).decode()
        return {"rows": self._rows, "answers": dict(self._answers), "sums": sums}


class _Agreeing:
    def __init__(self, book: Book, digest: str) -> None:
        self._book, self._digest, self._agrees = book, digest, True

    def take(self, frame: pl.DataFrame, number: int) -> None:  # noqa: ARG002
        ids, _ = self._book.identified(frame)
        self._agrees &= self._book.agree(ids, self._digest)

    def finish(self) -> Facts:
        return {"agrees": self._agrees}


class _Committing:
    """Commit the records of a task that the release holds, and digest them again."""

    def __init__(self, book: Book, digest: str) -> None:
        self._book, self._digest, self._rows, self._records = book, digest, 0, [bytes(32)]

    def take(self, frame: pl.DataFrame, number: int) -> None:  # noqa: ARG002
        ids, _ = self._book.identified(frame)
        known = frame.filter(pl.Series(self._book.ledger.known(self._book.ref, ids)))
        self._book.commit(*self._book.identified(known), self._digest)
        self._rows += known.height
        self._records.append(self._book.digest(known))

    def finish(self) -> Facts:
        return {"rows": self._rows, "records": base64.b64encode(added(*self._records)).decode()}


WORKERS: dict[Phase, Callable[[Book, str], RecordWorker]] = {
    "charge": _Charging,
    "agree": _Agreeing,
    "commit": _Committing,
}
