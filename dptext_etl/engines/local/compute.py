"""Take the shards of a run through a phase in this process, side by side where the mechanisms allow it."""

from __future__ import annotations

from functools import partial

import polars as pl

from dptext_etl.device import threads
from dptext_etl.engines.engine import Work
from dptext_etl.engines.local.parallel_shards import Lanes
from dptext_etl.engines.local.shards import numbers, planted
from dptext_etl.ledger import Ledger
from dptext_etl.policy import Policy
from dptext_etl.runner.amounts import refunds
from dptext_etl.runner.progress import Meter
from dptext_etl.runner.shard.charging import Column
from dptext_etl.runner.shard.replay import replays
from dptext_etl.runner.shard.results import Phase, ShardResult
from dptext_etl.runner.shard.shard import Shards
from dptext_etl.side_by_side import sharing

MOST = 4
"""Shards that are under way at a time, at most: each is in memory."""
_PER_THREAD = 2
"""Shards that are under way for each thread: while one waits for its turn at the ledger or the disk, another draws."""


def compute(work: Work[pl.LazyFrame], phase: Phase, meter: Meter) -> list[ShardResult]:
    """Take all shards through a phase (see `Engine.compute`)."""
    attempt, place, done = work.attempt, work.attempt.policy.ledger, list[ShardResult]()

    def ended(one: ShardResult) -> None:
        done.append(one)
        meter.add(one.rows)

    with Ledger.open(place.url, place.id_key) as ledger:
        columns, memory = Column.all(attempt.columns, work.refs), attempt.layout.memory
        common = (attempt.policy, columns, ledger, attempt.job, work.staging, memory)
        shards = Shards(*common, work.checkpoint, attempt.profile)
        ledger.read_key()
        every = numbers(work.source, attempt.policy)
        width = min(lanes(attempt.policy), len(every))
        if width > 1:
            shards.schedule = side = Lanes[pl.DataFrame](every, width)
            side.each(planted(work, every), partial(_beside, shards, phase), ended)
        else:
            for index, frame in planted(work, every):
                ended(ShardResult.of(shards, frame, index, phase))
    return done


def _beside(shards: Shards, phase: Phase, index: int, frame: pl.DataFrame) -> ShardResult:
    """Take one shard through a phase while others are under way."""
    with sharing():
        return ShardResult.of(shards, frame, index, phase)


def lanes(policy: Policy) -> int:
    """Return how many shards of a policy may be under way at a time.

    One after the other go models, which use all cores and much memory themselves, and mechanisms whose draws the ledger
    gives back under a cap: what a shard gives back decides what fits the next one.
    """
    if refunds(policy) or replays(policy):
        return 1
    return 1 if threads() == 1 else min(MOST, _PER_THREAD * threads())
