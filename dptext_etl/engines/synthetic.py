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
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl

from dptext_etl.engines.engine import Engine
from dptext_etl.errors import InputError, LedgerError
from dptext_etl.families.aggregate import Partial, added
from dptext_etl.ledger import Ledger, Outcome, ReleaseRef
from dptext_etl.runner.preflight import require_places
from dptext_etl.runner.preview import Expected, preview_rows
from dptext_etl.runner.progress import Checkpoint, Listener, Meter, WholeRun, nothing
from dptext_etl.runner.publish.manifest import is_whole
from dptext_etl.runner.shard.attempt import UNDER_WAY
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.cutting import pieces
from dptext_etl.runner.source.examine import check_ids
from dptext_etl.runner.source.roles import Table
from dptext_etl.runner.summary import RunSummary
from dptext_etl.runner.synthetic.attempt import StagedTable, SyntheticAttempt, draw
from dptext_etl.runner.synthetic.charging import Charged, Frames, Records, charge, refuse_crowded
from dptext_etl.runner.synthetic.preflight import Counts, TablePreview, preflight_table
from dptext_etl.runner.synthetic.publishing import Step, judge_table, publish_table, published_before, summarize_table


def run_synthetic(
    attempt: SyntheticAttempt, engine: Engine[Any], progress: Listener | None, checkpoint: Checkpoint
) -> RunSummary:
    whole_run = None if progress is None else WholeRun(progress)
    with staged_table(attempt, engine, whole_run, checkpoint) as step:
        verdicts = judge_table(step, checkpoint)
        published = publish_table(step, verdicts, checkpoint)
    return summarize_table(step.staged, verdicts, published, time.monotonic() - attempt.began)


@contextmanager
def staged_table(
    attempt: SyntheticAttempt, engine: Engine[Any], progress: Listener | None, checkpoint: Checkpoint = nothing
) -> Iterator[Step]:
    """Charge, sum, pin, draw, stage, and commit; the ledger stays open, and the release locked, for the block."""
    began, layout = time.monotonic(), attempt.layout
    table = engine.open(attempt.policy, layout)
    require_places(attempt)
    with ExitStack() as opened:
        staging = opened.enter_context(attempt.alone())
        records = engine.records(attempt, table, progress)
        checkpoint("checked")
        preflight_table(attempt, table.schema, table.id_type, records.counts, records.look)
        checkpoint("prefetched")
        spec = attempt.policy.ledger
        ledger = opened.enter_context(Ledger.open(spec.url, spec.id_key))
        (ref,) = attempt.pinned(ledger, table.id_type)
        checkpoint("registered")
        frames = Frames(attempt.policy, attempt.key, ledger, ref, attempt.job, staging, layout.memory, checkpoint)
        staging.storage.delete(*staging.storage.glob("quarantine-*"))  # of other batches
        charged = charge(attempt, frames, records, Meter("reserve", records.counts.wanted, progress))
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
def reopened(staged: StagedTable) -> Iterator[Step]:
    """Lock the release of a staged table, and open its ledger, for a later step in a process of its own."""
    staging, spec = Staging(staged.attempt.layout.staging, staged.attempt.staging_key), staged.attempt.policy.ledger
    with (
        staging.storage.lock(UNDER_WAY),
        Ledger.open(spec.url, spec.id_key, create=False) as ledger,
    ):
        yield Step(staged, ledger, staging)


def _rows(records: Records, charged: Charged) -> dict[str, int]:
    answers, (total, nameless, wanted) = charged.answers, records.counts
    beyond = total - nameless - wanted
    gone = answers[Outcome.FORGOTTEN.name]
    return {
        "read": total,
        "already_published": 0,
        **({"over_contribution": beyond} if beyond else {}),
        **({"without_subject": nameless} if nameless else {}),
        "new": answers[Outcome.RESERVED.name],
        "resumed": answers[Outcome.PENDING.name],
        "replayed": answers[Outcome.COMMITTED.name],
        "quarantined": answers[Outcome.OVER_CAP.name],
        **({"forgotten": gone} if gone else {}),
        "released": charged.rows,
    }


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

    counts: Counts

    @abstractmethod
    def run(self, frames: Frames, phase: Phase, digest: str, report: Callable[[int], object]) -> Sequence[Facts]:
        """Take all records through a phase, and return the facts of its workers."""

    def charge(self, frames: Frames, meter: Meter) -> Charged:
        done = self.run(frames, "charge", "", meter.add)
        sums, answers = Partial.zero(frames.statistic), Counter[str]()
        for facts in done:
            sums += Partial.unpacked(frames.statistic, base64.b64decode(facts["sums"]))
            answers.update(facts["answers"])
        return Charged(sums, sum(facts["rows"] for facts in done), answers)

    def agree(self, frames: Frames, digest: str) -> bool:
        return all(facts["agrees"] for facts in self.run(frames, "agree", digest, lambda _: None))

    def commit(self, frames: Frames, digest: str, charged: Charged) -> None:
        done = self.run(frames, "commit", digest, lambda _: None)
        records = added(*(base64.b64decode(facts["records"]) for facts in done))
        if (sum(facts["rows"] for facts in done), records) != (charged.rows, charged.partial.digest):
            msg = "the source changed while it was read, or records were forgotten meanwhile; nothing was published"
            raise InputError(msg, "run again when no one writes to it; what is charged is not charged twice")


class LocalRecords(EngineRecords):
    def __init__(self, attempt: SyntheticAttempt, table: Table[pl.LazyFrame], progress: Listener | None) -> None:
        total, nameless = check_ids(table, attempt.policy, attempt.layout.scratch, progress)
        self._attempt = attempt
        self._rows, wanted = attempt.who_counts(table.frame, total, nameless)
        self.counts = Counts(total, nameless, wanted)

    def look(self, ref: ReleaseRef, ledger: Ledger | None) -> Expected:
        attempt = self._attempt
        preview = TablePreview(attempt.policy, attempt.key, ref, ledger, attempt.layout.scratch)
        return preview_rows(preview, self._rows, Meter("look", None, None))

    def run(self, frames: Frames, phase: Phase, digest: str, report: Callable[[int], object]) -> Sequence[Facts]:
        policy, worker = frames.policy, WORKERS[phase](frames, digest)
        for number, frame in enumerate(pieces(self._rows, policy.shard_rows, policy.shard_bytes)):
            worker.take(frame, number)
            report(frame.height)
        return [worker.finish()]


class _Charging:
    def __init__(self, frames: Frames, _: str) -> None:
        self._frames = frames
        self._sums, self._rows, self._answers = Partial.zero(frames.statistic), 0, Counter[str]()
        self._persons = [np.zeros(0, np.uint64)]

    def take(self, frame: pl.DataFrame, number: int) -> None:
        summed = self._frames.charge(frame, number)
        self._sums += summed.partial
        self._rows += len(summed.ids)
        self._answers.update(summed.answers)
        self._persons.append(summed.persons)

    def finish(self) -> Facts:
        most = self._frames.policy.synthetic.per_subject if self._frames.policy.synthetic is not None else 1
        refuse_crowded(np.concatenate(self._persons), most)  # one worker has all records of a person
        sums = base64.b64encode(self._sums.packed()).decode()
        return {"rows": self._rows, "answers": dict(self._answers), "sums": sums}


class _Agreeing:
    def __init__(self, frames: Frames, digest: str) -> None:
        self._frames, self._digest, self._agrees = frames, digest, True

    def take(self, frame: pl.DataFrame, number: int) -> None:  # noqa: ARG002
        ids, _ = self._frames.identified(frame)
        self._agrees &= self._frames.agree(ids, self._digest)

    def finish(self) -> Facts:
        return {"agrees": self._agrees}


class _Committing:
    """Commit the records of a task that the release holds, and digest them again."""

    def __init__(self, frames: Frames, digest: str) -> None:
        self._frames, self._digest, self._rows, self._records = frames, digest, 0, [bytes(32)]

    def take(self, frame: pl.DataFrame, number: int) -> None:  # noqa: ARG002
        ids, _ = self._frames.identified(frame)
        known = frame.filter(pl.Series(self._frames.ledger.known(self._frames.ref, ids, in_order=True)))
        self._frames.commit(*self._frames.identified(known), self._digest)
        self._rows += known.height
        self._records.append(self._frames.digest(known))

    def finish(self) -> Facts:
        return {"rows": self._rows, "records": base64.b64encode(added(*self._records)).decode()}


WORKERS: dict[Phase, Callable[[Frames, str], RecordWorker]] = {
    "charge": _Charging,
    "agree": _Agreeing,
    "commit": _Committing,
}
