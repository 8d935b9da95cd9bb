"""Compute a run in this process with Polars: read the files or a frame, and compute shards in parallel threads.

Only one thread uses the ledger: the one that started the shards. Shards hand it their work and wait. The order of
their turns follows from the number of shards at a time only (`turns`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from threading import get_ident
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.checks import Candidate, Verdict
from dptext_etl.checks.canaries import CANARY, CanaryPlan, by_shard, canary_sets, plant
from dptext_etl.data_types import by_name
from dptext_etl.device import threads
from dptext_etl.engines.engine import Engine, Work
from dptext_etl.errors import InputError, without_panics
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.parallel import sharing_threads
from dptext_etl.policy import Policy
from dptext_etl.runner import table_check
from dptext_etl.runner.forecast import Expected, Preview, preview_rows
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.preflight import require_models
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.shard.attempt import ledger_of_run, refuse_other_rows
from dptext_etl.runner.shard.charging import Column, refunds, subjects_of
from dptext_etl.runner.shard.computing import Result, Schedule, Step, replays
from dptext_etl.runner.shard.shard import Phase, ShardResult, Shards, StoppedError
from dptext_etl.runner.shard.staging import StagedRun
from dptext_etl.runner.source import cutting
from dptext_etl.runner.source.examine import Examined, examine, present
from dptext_etl.runner.source.roles import Table, open_table, table_of
from dptext_etl.runner.source.table import Files, batches

if TYPE_CHECKING:
    from dptext_etl.ledger.holdings import LedgerPlan

MOST = 4
"""Shards that are under way at a time, at most: each is in memory."""
_PLANNED = 1 << 17
"""Rows whose ids are read together for a plan."""
_PER_THREAD = 2
"""Shards that are under way for each thread: while one waits for its turn at the ledger or the disk, another draws."""


class LocalEngine(Engine[pl.LazyFrame]):
    """This process, over the files of the policy's source, or over a frame in their place."""

    def __init__(self, frame: pl.LazyFrame | None = None) -> None:
        self._frame = frame
        self._plan: LedgerPlan | None = None  # of the rows of a run that has several shards

    def open(self, policy: Policy, layout: Layout) -> Table[pl.LazyFrame]:
        return open_table(policy, layout) if self._frame is None else table_of(self._frame, policy, layout)

    def files(self, layout: Layout) -> Files | None:
        """Return the files of the source; None for a frame.

        Args:
            layout: Places of the run.
        """
        return None if self._frame is not None else Files.find(layout)

    def examine(
        self, table: Table[pl.LazyFrame], policy: Policy, layout: Layout, progress: Listener | None
    ) -> Examined[pl.LazyFrame]:
        """Check the ids in bounded memory, and count the shards; rows of a small source are read once, and kept.

        Args:
            table: The opened source.
            policy: The policy of the run.
            layout: Places of the run.
            progress: Called with counts of rows, or None.

        Returns:
            The source with its counts of rows and shards.
        """
        source = examine(table, policy, layout, progress, sharded=True)
        shards = cutting.count(source.rows, policy) if source.shards is None else source.shards
        self._check_again(layout)
        return replace(source, shards=shards)

    def _check_again(self, layout: Layout) -> None:
        """Refuse CSV files that changed since they were opened, and now hold rows that do not fit their header."""
        files = self.files(layout)
        if files is not None and not is_remote(layout.source):
            _ = files.facts

    def present(self, source: Examined[pl.LazyFrame], ids: pl.Series) -> pl.Series:
        return present(source, ids)

    def canary_sets(self, source: Examined[pl.LazyFrame], policy: Policy) -> range:
        return canary_sets(source.first, source.wanted, -(-source.wanted // policy.shard_rows))

    trace = staticmethod(table_check.trace)

    def look(
        self, work: Work[pl.LazyFrame], meter: Meter, columns: list[Column], ledger: Ledger | None, rows: pl.LazyFrame
    ) -> Expected:
        changed, published = work.staging.changed, rows is work.source.every_row
        scratch = work.staging.folder
        if ledger is not None and not published:
            self._use_plan(work, ledger, work.source.shards or MOST)
        preview = Preview(work.attempt.policy, columns, ledger, changed, published=published, scratch=scratch)
        expected = preview_rows(preview, rows, meter)
        require_models(work.attempt.columns, expected)
        return expected

    def _use_plan(self, work: Work[pl.LazyFrame], ledger: Ledger, shards: int) -> None:
        """Look up all rows of the run at once, where its shards would each go through more than fits into memory."""
        if self._plan is None and shards > 1:
            policy, count = work.attempt.policy, work.source.wanted
            own = policy.on_null_subject == "own"
            self._plan = ledger.plan(Scope.of(policy), _planned(work), count=count, own=own)
        if self._plan is not None:
            ledger.use(self._plan)

    def judge(self, staged: StagedRun, candidate: Candidate, seen: Callable[[int], object]) -> tuple[Verdict, ...]:
        if self._plan is not None and candidate.ledger is not None:
            candidate.ledger.use(self._plan)
        return super().judge(staged, candidate, seen)

    def compute(self, work: Work[pl.LazyFrame], phase: Phase, meter: Meter) -> list[ShardResult]:
        """Do the phase for each shard, in parallel where mechanisms allow it.

        Args:
            work: The source, the staging folder, and the attempt.
            phase: The step to do with each shard.
            meter: Counts finished rows.

        Returns:
            One result per shard, in the order in which they ended.
        """
        attempt, policy, results = work.attempt, work.attempt.policy, list[ShardResult]()

        def ended(result: ShardResult) -> None:
            results.append(result)
            meter.add(result.rows)

        with ledger_of_run(policy, work.ledger) as ledger:
            columns = Column.all(attempt.columns, work.refs)
            places = (attempt.job, work.staging, work.checkpoint, attempt.profile)
            shards = Shards(policy, columns, ledger, *places)
            ledger.read_key()
            source = work.source
            many = cutting.count(source.rows, policy) if source.shards is None else source.shards
            numbers = range(source.first, source.first + (many if source.wanted else 0))
            self._use_plan(work, ledger, len(numbers))
            width = min(shards_at_once(policy), len(numbers))
            if policy.synthetic is not None:
                from dptext_etl.runner.shard.summing import Summing

                table = Summing(shards, phase, work.digest, meter.add)
                for index, frame in _planted(work, numbers):
                    table.take(frame, index)
                results.append(table.finish())
            elif width > 1:
                shards.schedule = parallel = ParallelShards(numbers, width)
                parallel.each(_planted(work, numbers), partial(_sharing, shards, phase), ended)
            else:
                for index, frame in _planted(work, numbers):
                    ended(ShardResult.of(shards, frame, index, phase))
        self._check_again(attempt.layout)  # nothing that was read is published yet
        return results


def _planned(work: Work[pl.LazyFrame]) -> Iterator[tuple[pa.Array, pa.Array | None, npt.NDArray[np.bool_] | None]]:
    """Iterate over the ids of a run: of its source, and of canary rows."""
    policy = work.attempt.policy
    names = [policy.id] if policy.unit == "record" or policy.subject is None else [policy.id, policy.subject]
    for frame in batches(work.source.rows.select(map(by_name, names)), _PLANNED):
        yield canonical_ids(frame[policy.id].to_arrow()), subjects_of(frame, policy), None
    for plan in work.plans:
        ids = canonical_ids(plan.ids().to_arrow())
        subjects = None if len(names) == 1 else pa.nulls(len(ids), pa.large_string())
        yield ids, subjects, np.ones(len(ids), np.bool_)


def _sharing(shards: Shards, phase: Phase, index: int, frame: pl.DataFrame) -> ShardResult:
    with sharing_threads():
        return ShardResult.of(shards, frame, index, phase)


def shards_at_once(policy: Policy) -> int:
    """Return how many shards of a policy may be under way at a time.

    One after the other go models, which use all cores and much memory themselves, and mechanisms whose draws the ledger
    gives back under a cap: the amount that a shard gives back decides which rows of the next one fit.
    """
    if refunds(policy) or replays(policy):
        return 1
    return 1 if threads() == 1 else min(MOST, _PER_THREAD * threads())


def _planted(work: Work[pl.LazyFrame], numbers: range) -> Numbered:
    """Read the shards, and spread the sets of canary rows over them."""
    policy, wanted, rows, at = work.attempt.policy, work.source.wanted, 0, 0
    sets = by_shard(work.plans, numbers)
    profile, shards = work.attempt.profile, cutting.shards(work.source.rows, policy)
    while True:
        with profile.stage("read"):
            shard = next(shards, None)
            if shard is None:
                break
            rows += shard.height
            if rows > wanted:
                refuse_other_rows(wanted, rows)
            if at == len(numbers):
                _refuse_other_texts()
            if work.plans:
                frame = plant(shard, _joined(sets[numbers[at]], work.plans[0]), policy)
            else:
                frame = shard.with_columns(pl.lit(False).alias(CANARY))
            profile.count("read", rows=shard.height, size=int(shard.estimated_size()))
        work.checkpoint("planted")
        yield numbers[at], frame
        at += 1
    if rows == wanted and at < len(numbers):
        _refuse_other_texts()


def _joined(plans: Sequence[CanaryPlan], like: CanaryPlan) -> CanaryPlan:
    """Return one plan for a shard that has several or none: the first halves of all in front, the others behind."""
    halves = [(plan.rows[: len(plan.rows) // 2], plan.rows[len(plan.rows) // 2 :]) for plan in plans]
    return replace(like, rows=tuple(row for at in (0, 1) for half in halves for row in half[at]))


def _refuse_other_texts() -> None:
    msg = "the source changed while it was read: its texts have other lengths than when they were counted"
    raise InputError(msg, "run again when no one writes to it; charged rows are not charged twice")


Turn = tuple[Step, int]
Numbered = Iterator[tuple[int, pl.DataFrame]]


@dataclass(frozen=True)
class _Request:
    """Work that a shard wants done by the thread that owns the ledger."""

    step: Step | None
    index: int
    work: Callable[[], Any]
    answer: Future[Any] = field(default_factory=Future)

    def run(self) -> BaseException | None:
        """Do the work, hand over its result, and return its exception."""
        try:
            self.answer.set_result(self.work())
        except BaseException as exc:  # noqa: BLE001  (the shard raises it)
            self.answer.set_exception(exc)
            return exc
        return None


class ParallelShards(Schedule):
    parallel = True

    def __init__(self, numbers: range, width: int) -> None:
        self._width = width
        self._owner = get_ident()
        self._events: SimpleQueue[_Request | int] = SimpleQueue()  # requests, and numbers of shards that ended
        self._turns = turns(numbers, width)
        self._next = next(self._turns, None)
        self._waiting: dict[Turn, _Request] = {}
        self._under_way: dict[int, Future[Any]] = {}
        self._failed: dict[int, BaseException] = {}
        self._begun = -1  # the last shard that began
        self._all_begun = False

    def run(self, step: Step | None, index: int, work: Callable[[], Result]) -> Result:
        """Have the thread that owns the ledger do some work when it is its turn, and wait for its result."""
        if get_ident() == self._owner:
            return work()
        request = _Request(step, index, work)
        self._events.put(request)
        return cast("Result", request.answer.result())

    def each(
        self, frames: Numbered, work: Callable[[int, pl.DataFrame], Result], ended: Callable[[Result], object]
    ) -> None:
        """Do some work for every shard; call this in the thread that owns the ledger."""
        with ThreadPoolExecutor(self._width, thread_name_prefix="dptext-shard") as pool:
            try:
                while self._under_way or not self._all_begun:
                    if self._all_begun or len(self._under_way) == self._width:
                        self._serve(self._events.get(), ended)
                    elif self._failed or not self._begin(pool, frames, work):
                        self._all_begun = True
                        self._take_turns()
            except BaseException:
                self._stop()
                raise
        if self._failed:
            raise self._failed[min(self._failed)]

    def _begin(self, pool: ThreadPoolExecutor, frames: Numbered, work: Callable[[int, pl.DataFrame], Any]) -> bool:
        """Start the next shard; False if there is none."""
        try:
            with without_panics():
                number, frame = next(frames)
        except StopIteration:
            return False
        except Exception as exc:  # noqa: BLE001  (shards that were read go on; then it is raised)
            self._failed[self._begun + 1] = exc
            return False
        self._begun = number
        future = self._under_way[number] = pool.submit(work, number, frame)
        future.add_done_callback(lambda _: self._events.put(number))
        return True

    def _serve(self, event: _Request | int, ended: Callable[[Any], object]) -> None:
        if isinstance(event, int):
            self._end(event, ended)
        elif self._is_stopped(event.index):
            event.answer.set_exception(StoppedError("a shard before this one failed"))
        elif event.step is None:
            event.run()
        else:
            self._waiting[event.step, event.index] = event
        self._take_turns()

    def _take_turns(self) -> None:
        while self._next is not None:
            index = self._next[1]
            if self._next in self._waiting:
                failure = self._waiting.pop(self._next).run()
                if failure is not None:  # its shard will end so; no later shard gets a turn meanwhile
                    self._fail(index, failure)
            elif index in self._under_way or (index > self._begun and not self._all_begun):
                return  # that shard may still ask for its turn
            self._next = next(self._turns, None)

    def _end(self, index: int, ended: Callable[[Any], object]) -> None:
        future = self._under_way.pop(index)
        failure = future.exception()
        if failure is None:
            ended(future.result())
        else:
            self._fail(index, failure)

    def _fail(self, index: int, failure: BaseException) -> None:
        """Note why a shard failed, and stop those after it that wait for a turn."""
        self._failed[index] = failure
        for turn in [turn for turn in self._waiting if self._is_stopped(turn[1])]:
            self._waiting.pop(turn).answer.set_exception(StoppedError("a shard before this one failed"))

    def _stop(self) -> None:
        """Refuse all requests from now on, until no shard is under way."""
        self._fail(-1, StoppedError("the run stopped"))
        while self._under_way:
            event = self._events.get()
            if isinstance(event, int):
                self._under_way.pop(event)
            else:
                event.answer.set_exception(StoppedError("the run stopped"))

    def _is_stopped(self, index: int) -> bool:
        return bool(self._failed) and index > min(self._failed)


def turns(numbers: range, width: int) -> Iterator[Turn]:
    """Order the turns of shards of which a given number are under way at a time.

    >>> [f"{step} {index}" for step, index in turns(range(3), 2)]
    ['reserve 0', 'reserve 1', 'commit 0', 'reserve 2', 'commit 1', 'commit 2']
    """
    for at in range(len(numbers) + width - 1):
        if at < len(numbers):
            yield "reserve", numbers[at]
        if at >= width - 1:
            yield "commit", numbers[at - width + 1]
