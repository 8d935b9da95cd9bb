"""Post-process a committed shard: rewrite released texts, stage the results next to them, record their digests.

It comes after the commit, so that what is released is fixed before anything is made of it, and before the gates, which
judge both. Every step can be repeated. What an earlier attempt staged or recorded is served and never computed again
(docs/spec/privacy.md#rewrite-again).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl import _kernel, column
from dptext_etl.errors import DPTextError, LedgerError, seam
from dptext_etl.ledger import CommitOutcome
from dptext_etl.ledger.terms import Posted
from dptext_etl.policy import Policy
from dptext_etl.runner.claims import postprocessing_facts
from dptext_etl.runner.shard.charging import Column, Reserved, texts_of
from dptext_etl.runner.shard.computing import copies_of
from dptext_etl.runner.shard.records import StagedShard, read_draws
from dptext_etl.runner.shard.replay import matches
from dptext_etl.runner.source.roles import published_columns

if TYPE_CHECKING:
    from dptext_etl.runner.shard.shard import Shards

_DEFECT = "this is a defect; its message is left out, because it may quote a text. Nothing was published"
_OTHER = "the first result is the one that is published: bring back the kept files of its staging"


def rewrite_shard(shards: Shards, reserved: Reserved, staged: StagedShard, index: int, inputs: str) -> StagedShard:
    chains = {item.name: item.policy.chain for item in shards.columns if item.policy.chain is not None}
    if not chains:
        return staged
    posted = shards.schedule.run(None, index, partial(_posted, shards, reserved))
    found = _find(shards, staged, chains, posted)
    if found is None:
        with shards.profile.stage("postprocess"), seam("rewriting a shard", DPTextError, _DEFECT):
            found = _rewrite(shards, reserved, staged, index, chains, posted)
        shards.schedule.run(None, index, lambda: shards.checkpoint("rewriting staged"))
    diverged = shards.schedule.run(None, index, partial(_record, shards, reserved, found))
    if not diverged:
        return found
    for other in shards.staging.find(index, inputs):  # of an attempt at the same time, which was faster
        posted = shards.schedule.run(None, index, partial(_posted, shards, reserved))
        first = _find(shards, other, chains, posted)
        if first is not None and not shards.schedule.run(None, index, partial(_record, shards, reserved, first)):
            shards.staging.discard(index)
            return first
    raise LedgerError(f"{diverged} released texts, rewritten again, became others than were recorded", _OTHER)


def _posted(shards: Shards, reserved: Reserved) -> dict[str, Posted]:
    ids, canary = reserved.charged.ids, reserved.canary
    return {
        item.name: shards.ledger.posted(item.ref, item.policy.chain, ids, canary=canary)
        for item in shards.columns
        if item.policy.chain is not None
    }


def _find(
    shards: Shards, staged: StagedShard, chains: Mapping[str, str], posted: Mapping[str, Posted]
) -> StagedShard | None:
    """Return a shard whose results are staged, whole and those that are recorded; None if they must be made."""
    staging = shards.staging
    if staged.post.get("chains") != chains or not staging.holds_post(staged):
        return None
    with seam("reading what was staged", DPTextError, _DEFECT):
        frame = staging.outcome(staged)
        texts = {name: frame[name] for name in chains}
        if any(_differ(texts[name], held).any() for name, held in posted.items()):
            return None
        if frame.columns == _arranged(staging.read(staged), texts, shards.policy).columns:
            return staged
        counted = {name: staged.post[name] for name in ("failed", "copies") if name in staged.post}
        return _stage(shards, staged, texts, counted)  # the policy keeps other columns now


def _rewrite(  # noqa: PLR0917
    shards: Shards,
    reserved: Reserved,
    staged: StagedShard,
    index: int,
    chains: Mapping[str, str],
    posted: Mapping[str, Posted],
) -> StagedShard:
    frame, ids = shards.staging.read(staged), reserved.charged.ids
    draws = shards.staging.draws(staged)
    texts, failed, copies = {}, {}, {}
    for item in shards.columns:
        if item.name in chains:
            texts[item.name], failed[item.name] = _column(shards, item, frame, ids, index, posted[item.name])
            made = pl.DataFrame([texts[item.name]])
            drawn, _ = read_draws(draws[item.name])
            copies[item.name] = copies_of(reserved.frame, made, item, pa.array(drawn), shards.policy)
    shards.profile.count("postprocess", rows=frame.height)
    failed = {name: count for name, count in failed.items() if count}
    return _stage(shards, staged, texts, {"failed": failed, "copies": copies})


def _column(  # noqa: PLR0917
    shards: Shards, item: Column, frame: pl.DataFrame, ids: pa.Array, index: int, posted: Posted
) -> tuple[pl.Series, int]:
    """Return the results of a column, those that are recorded from what is kept, and how many texts failed."""
    kept = (
        (post[shards.policy.id], pl.DataFrame({"text": post[item.name]}), None)
        for shard in shards.staging.kept(index)
        for post in shard.posts
        if item.name in post.columns
    )
    empty = pl.DataFrame(schema={"row": pl.Int64, "text": pl.String})
    rows = pl.concat([empty, *(found.select("row", "text") for found, _ in matches(ids, posted, kept))])
    new = np.ones(frame.height, np.bool_)
    new[rows["row"].to_numpy()] = False
    failed = 0
    if new.any():
        mask = pa.array(new)
        made = column.rewrite(texts_of(frame, item.name).filter(mask), ids.filter(mask), item.policy)
        failed = int(pc.sum(made.failed).as_py() or 0)
        text = pl.Series(made.text, dtype=pl.String)
        rows = pl.concat([rows, pl.DataFrame({"row": np.flatnonzero(new), "text": text})])
        for step in item.policy.postprocess:
            step.probe()
    return rows.sort("row")["text"].alias(item.name), failed


def _stage(
    shards: Shards, staged: StagedShard, texts: Mapping[str, pl.Series], counted: Mapping[str, Mapping[str, Any]]
) -> StagedShard:
    """Write the results next to a shard as they are to be published, then say so in its record, with counts."""
    staging = shards.staging
    frame = _arranged(staging.read(staged), texts, shards.policy)
    chains = {item.name: item.policy.chain for item in shards.columns if item.name in texts}
    return staging.save_post(staged, frame, {"chains": chains, **counted})


def _arranged(frame: pl.DataFrame, texts: Mapping[str, pl.Series], policy: Policy) -> pl.DataFrame:
    """Put results in the places of released texts, and released texts next to them where the policy keeps them."""
    before = {item.intermediate: item.name for item in policy.columns if item.intermediate is not None}
    chosen = [name for name in published_columns(policy) if name in frame.columns or name in before]
    chosen += [name for name in frame.columns if name not in chosen]
    return pl.DataFrame(
        [frame[before[name]].alias(name) if name in before else texts.get(name, frame[name]) for name in chosen]
    )


def _record(shards: Shards, reserved: Reserved, staged: StagedShard) -> int:
    """Record the digests of staged results in the ledger, and return how many differ from what is recorded."""
    frame, diverged = shards.staging.outcome(staged), 0
    for item in shards.columns:
        if item.policy.chain is not None:
            digests = pa.array(_kernel.digests(frame[item.name]))
            outcome = shards.ledger.post(
                shards.job,
                item.ref,
                item.policy.chain,
                postprocessing_facts(item.policy),
                reserved.charged.ids,
                digests,
                canary=reserved.canary,
            )
            diverged += int((outcome == CommitOutcome.DIVERGED).sum())
            shards.checkpoint("rewriting recorded")
    return diverged


def _differ(texts: pl.Series, posted: Posted) -> np.ndarray:
    """Return which texts are others than are recorded of their rows, shape (rows,)."""
    digests = pa.array(_kernel.digests(texts.to_arrow()))
    differs = pc.fill_null(pc.not_equal(digests, posted.digests), fill_value=False)
    return np.asarray(differs.to_numpy(zero_copy_only=False), np.bool_)
