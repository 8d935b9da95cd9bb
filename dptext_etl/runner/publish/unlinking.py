"""Turn the staged rows of an unlinked release into a multiset of texts: no ids, no order, no other columns.

What is written depends on the multiset alone: texts are sorted by their bytes, and a part holds `shard_rows` rows.
Specification: docs/spec/unlinked.md#published.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from dptext_etl.checks.canaries import CANARY
from dptext_etl.policy import Policy
from dptext_etl.runner.publish.parts import Writer
from dptext_etl.runner.shard.records import StagedShard
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.unlinked import COUNT, Unlinked


def schema(policy: Policy, unlinked: Unlinked) -> pl.Schema:
    """Return the columns and types of the published table."""
    types = {COUNT: pl.Int64()}
    return pl.Schema({name: types.get(name, pl.String()) for name in unlinked.columns(policy.columns[0].name)})


def multiset(staging: Staging, shards: Iterable[StagedShard], policy: Policy) -> pl.DataFrame:
    """Count the released texts of all shards, without nulls and canary rows: text and count, sorted by text."""
    text, counted = policy.columns[0].name, list[pl.DataFrame]()
    for shard in shards:
        rows = staging.read(shard).filter(~pl.col(CANARY) & pl.col(text).is_not_null())
        counted.append(rows.group_by(text).agg(pl.len().cast(pl.Int64).alias(COUNT)))
    empty = pl.DataFrame(schema={text: pl.String, COUNT: pl.Int64})
    return pl.concat([empty, *counted]).group_by(text).agg(pl.col(COUNT).sum()).sort(text)


def write(writer: Writer, counts: pl.DataFrame, policy: Policy, unlinked: Unlinked) -> None:
    """Write a multiset as parts of a version, in the form that the policy names."""
    text, most = policy.columns[0].name, policy.shard_rows
    if unlinked.form == "counts":
        rows = counts
        for start in range(0, max(rows.height, 1), most):
            writer.add_rows(rows.slice(start, most))
        return
    ends = counts[COUNT].cum_sum()
    total = int(ends[-1]) if counts.height else 0
    for start in range(0, max(total, 1), most):
        writer.add_rows(_rows(counts, ends, text, start, min(start + most, total)))


def _rows(counts: pl.DataFrame, ends: pl.Series, text: str, start: int, end: int) -> pl.DataFrame:
    """Repeat each text as often as it was drawn, for the rows from `start` up to `end`."""
    inside = pl.DataFrame({text: counts[text], "last": ends, COUNT: counts[COUNT]})
    first = pl.col("last") - pl.col(COUNT)
    overlap = pl.min_horizontal(pl.col("last"), end) - pl.max_horizontal(first, start)
    chosen = inside.with_columns(overlap.alias(COUNT)).filter(pl.col(COUNT) > 0)
    return chosen.select(pl.col(text).repeat_by(COUNT)).explode(text)
