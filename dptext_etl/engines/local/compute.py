"""Take the shards of a run through a phase in this process, one after the other."""

from __future__ import annotations

import polars as pl

from dptext_etl.engines.engine import Work
from dptext_etl.engines.local.shards import planted
from dptext_etl.ledger import Ledger
from dptext_etl.runner.progress import Meter
from dptext_etl.runner.shard.attempt import shards_of
from dptext_etl.runner.shard.done import Done, Phase
from dptext_etl.runner.source.room import require_room


def compute(work: Work[pl.LazyFrame], phase: Phase, meter: Meter) -> list[Done]:
    """Take all shards through a phase (see `Engine.compute`).

    Args:
        work: The shards.
        phase: "reserve" charges only; "release" charges, computes, stages and commits.
        meter: Counts finished rows.

    Raises:
        InputError: A release would hold more records than its delta was stated for; nothing was charged.
    """
    attempt, place, done = work.attempt, work.attempt.policy.ledger, []
    with Ledger.open(place.url, place.id_key) as ledger:
        shards = shards_of(
            attempt.policy,
            attempt.columns,
            work.refs,
            ledger,
            attempt.job,
            work.staging,
            attempt.layout.root,
            work.checkpoint,
            attempt.profile,
        )
        require_room(ledger, work.refs, attempt.policy, work.source.rows, work.source.wanted)
        for index, frame in planted(work):
            done.append(Done.of(shards, frame, index, phase))
            meter.add(done[-1].rows)
    return done
