"""Cut the rows of a source into shards in their order, and plant the canary rows of each shard."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dptext_etl.checks.canaries.rows import plant
from dptext_etl.engines.engine import Work
from dptext_etl.runner.shard.attempt import refuse_other_rows
from dptext_etl.runner.source.table import batches


def numbers(first: int, rows: int, shard_rows: int) -> range:
    """Return the numbers of the shards for a number of rows.

    Args:
        first: The first number.
        rows: Rows of the source.
        shard_rows: Rows per shard, at least 1.
    >>> numbers(2, 250_000, 100_000)
    range(2, 5)
    """
    return range(first, first - (-rows // shard_rows))


def planted(work: Work[pl.LazyFrame]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Read the shards, and plant their canary rows.

    Yields:
        Numbers of shards, and raw shards with their canary rows.

    Raises:
        InputError: The source has more rows than were checked; the new ones are not used.
    """
    policy, wanted, seen = work.attempt.policy, work.source.wanted, 0
    profile, raws = work.attempt.profile, enumerate(batches(work.source.rows, policy.shard_rows))
    while True:
        with profile.stage("read"):
            at, raw = next(raws, (0, None))
            if raw is None:
                return
            seen += raw.height
            if seen > wanted:
                refuse_other_rows(wanted, seen)
            frame = plant(raw, work.plans[at], policy)
            profile.count("read", rows=raw.height, size=int(raw.estimated_size()))
        work.checkpoint("planted")
        yield work.plans[at].shard, frame
