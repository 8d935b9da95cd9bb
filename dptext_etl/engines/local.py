"""Compute a run in this process with Polars: read the files or a frame, and compute shards in parallel threads.

Only one thread uses the ledger: the one that started the shards. It charges and commits them in their order
(`Shards.results`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.checks import Candidate, Verdict
from dptext_etl.checks.canaries import CANARY, by_shard, plant
from dptext_etl.data_types import by_name
from dptext_etl.device import threads
from dptext_etl.engines.engine import Engine, Work
from dptext_etl.errors import InputError
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.policy import Policy
from dptext_etl.runner.forecast import Expected, Preview, preview_rows
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.preflight import LocalReader, require_models
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.shard.attempt import ledger_of_run, refuse_other_rows
from dptext_etl.runner.shard.charging import Column, bounds, count_shards, pieces, refunds, subjects_of
from dptext_etl.runner.shard.computing import replays
from dptext_etl.runner.shard.shard import Phase, ShardResult, Shards
from dptext_etl.runner.shard.staging import StagedRun
from dptext_etl.runner.source.examine import Examined, examine
from dptext_etl.runner.source.roles import Table
from dptext_etl.runner.source.table import Files, batches

if TYPE_CHECKING:
    from dptext_etl.ledger.holdings import LedgerPlan

MOST = 4
"""Shards that are under way at a time, at most: each is in memory."""
_PLANNED = 1 << 17
"""Rows whose ids are read together for a plan."""
_PER_THREAD = 2
"""Shards that are under way for each thread: while one waits for its turn at the ledger or the disk, another draws."""


class LocalEngine(LocalReader, Engine[pl.LazyFrame]):
    """This process, over the files of the policy's source, or over a frame in their place."""

    _plan: LedgerPlan | None = None  # of the rows of a run that has several shards

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
        source = examine(table, policy, layout, progress)
        shards = count_shards(source.rows, policy)
        self._check_again(layout)
        return replace(source, shards=shards)

    def _check_again(self, layout: Layout) -> None:
        """Refuse CSV files that changed since they were opened, and now hold rows that do not fit their header."""
        if (files := self.files(layout)) is not None and not is_remote(layout.source):
            _ = files.facts

    def look(
        self, work: Work[pl.LazyFrame], meter: Meter, columns: list[Column], ledger: Ledger | None, rows: pl.LazyFrame
    ) -> Expected:
        changed, published, scratch = work.staging.changed, rows is work.source.every_row, work.staging.folder
        if ledger is not None and not published:
            self._use_plan(work, ledger)
        preview = Preview(work.attempt.policy, columns, ledger, changed, published=published, scratch=scratch)
        expected = preview_rows(preview, rows, meter)
        require_models(work.attempt.columns, expected)
        return expected

    def _use_plan(self, work: Work[pl.LazyFrame], ledger: Ledger) -> None:
        """Look up all rows of the run at once, where its shards would each go through more than fits into memory."""
        if self._plan is None and work.source.shards > 1:
            policy = work.attempt.policy
            own = policy.on_null_subject == "own"
            self._plan = ledger.plan(Scope.of(policy), _planned(work), count=work.source.wanted, own=own)
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
        with ledger_of_run(policy, work.ledger) as ledger:
            columns = Column.all(attempt.columns, work.refs)
            shards = Shards(policy, columns, ledger, attempt.job, work.staging, work.checkpoint, attempt.profile)
            ledger.read_key()
            self._use_plan(work, ledger)
            if policy.synthetic is not None:
                from dptext_etl.runner.shard.summing import Summing

                table = Summing(shards, phase, work.digest, meter.add)
                for index, frame in _planted(work):
                    table.take(frame, index)
                results.append(table.finish())
            else:
                width = max(1, min(shards_at_once(policy), work.source.shards))
                for result in shards.results(_planted(work), phase, width):
                    results.append(result)
                    meter.add(result.rows)
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


def shards_at_once(policy: Policy) -> int:
    """Return how many shards of a policy may be under way at a time.

    One after the other go models, which use all cores and much memory themselves, and mechanisms whose draws the ledger
    gives back under a cap: the amount that a shard gives back decides which rows of the next one fit.
    """
    if refunds(policy) or replays(policy):
        return 1
    return 1 if threads() == 1 else min(MOST, _PER_THREAD * threads())


def _planted(work: Work[pl.LazyFrame]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Read the shards, and spread the sets of canary rows over them."""
    policy, source, profile, rows = work.attempt.policy, work.source, work.attempt.profile, 0
    numbers = range(source.first, source.first + source.shards)
    sets, waiting = by_shard(work.plans, numbers), iter(numbers)
    msg = "the source changed while it was read: its texts have other lengths than when they were counted"
    other_texts = InputError(msg, "run again when no one writes to it; charged rows are not charged twice")
    shards = pieces(source.rows, *bounds(policy))
    while True:
        with profile.stage("read"):
            shard = next(shards, None)
            if shard is None:
                break
            rows += shard.height
            if rows > source.wanted:
                refuse_other_rows(source.wanted, rows)
            if (number := next(waiting, None)) is None:
                raise other_texts
            if work.plans:  # of several sets in a shard, or none, the first halves are in front, the others behind
                halves = [(item.rows[: len(item.rows) // 2], item.rows[len(item.rows) // 2 :]) for item in sets[number]]
                both = tuple(row for half in (0, 1) for pair in halves for row in pair[half])
                frame = plant(shard, replace(work.plans[0], rows=both), policy)
            else:
                frame = shard.with_columns(pl.lit(False).alias(CANARY))
            profile.count("read", rows=shard.height, size=int(shard.estimated_size()))
        work.checkpoint("planted")
        yield number, frame
    if rows == source.wanted and next(waiting, None) is not None:
        raise other_texts
