"""Cut the rows of a source into shards in their order, and plant the canary rows of each shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from dptext_etl.checks.canaries import CanaryPlan, plant
from dptext_etl.engines.engine import Work
from dptext_etl.errors import InputError
from dptext_etl.policy import Policy
from dptext_etl.runner.shard.attempt import refuse_other_rows
from dptext_etl.runner.shard.canaries import by_shard
from dptext_etl.runner.source import cutting
from dptext_etl.runner.source.examine import Examined


def numbers(source: Examined[pl.LazyFrame], policy: Policy) -> range:
    """Return the numbers of the shards of a source."""
    many = cutting.count(source.rows, policy) if source.shards is None else source.shards
    return range(source.first, source.first + (many if source.wanted else 0))


def planted(work: Work[pl.LazyFrame], shards: range) -> Iterator[tuple[int, pl.DataFrame]]:
    """Read the shards, and by_shard the sets of canary rows over them."""
    policy, wanted, seen, at = work.attempt.policy, work.source.wanted, 0, 0
    sets = by_shard(work.plans, shards)
    profile, raws = work.attempt.profile, cutting.shards(work.source.rows, policy)
    while True:
        with profile.stage("read"):
            raw = next(raws, None)
            if raw is None:
                break
            seen += raw.height
            if seen > wanted:
                refuse_other_rows(wanted, seen)
            if at == len(shards):
                _refuse_other_texts()
            frame = plant(raw, _together(sets[shards[at]], work.plans[0]), policy)
            profile.count("read", rows=raw.height, size=int(raw.estimated_size()))
        work.checkpoint("planted")
        yield shards[at], frame
        at += 1
    if seen == wanted and at < len(shards):
        _refuse_other_texts()


def _together(plans: Sequence[CanaryPlan], like: CanaryPlan) -> CanaryPlan:
    """Return one plan for a shard that takes several, or none: the first halves of all in front, the others behind."""
    halves = [(plan.rows[: len(plan.rows) // 2], plan.rows[len(plan.rows) // 2 :]) for plan in plans]
    rows = [row for at in (0, 1) for half in halves for row in half[at]]
    return replace(like, rows=tuple(rows))


def _refuse_other_texts() -> None:
    msg = "the source changed while it was read: its texts have other lengths than when they were counted"
    raise InputError(msg, "run again when no one writes to it; what is charged is not charged twice")
