"""Compute a charged shard: release its texts and count; after the commit, post-process the released texts.

Some texts are not computed again. The scores of a model differ in their last digits by hardware and library, so a
second computation may draw other words. The first commit is the release: committed texts are read from staged files,
row by row, and each is checked against the digest in the ledger (docs/spec/privacy.md#digest,
docs/spec/privacy.md#durable-staging). Where the policy says so, a record whose text changed keeps its released text in
the same way, so readers see no difference (docs/spec/privacy.md#keep-changed).

Post-processing comes after the commit, so that the release is fixed before anything is made of it, and before the
gates, which judge both. Results that an earlier attempt staged or recorded are reused and never computed again
(docs/spec/privacy.md#rewrite-again).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.checks.text_counts import (
    SAMPLE_ROWS,
    count_copies,
    count_reading,
    counts_all,
    ngram_words,
    sample,
)
from dptext_etl.column import release, rewrite, spends, steps_of
from dptext_etl.data_types import by_name
from dptext_etl.errors import DPTextError, InputError, LedgerError, counted, seam
from dptext_etl.families.words import by_word
from dptext_etl.guarantee import PURE
from dptext_etl.keys import canonical_series
from dptext_etl.ledger import CommitOutcome, Committed, Ledger, Outcome
from dptext_etl.mechanism import Released
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Checkpoint, Profile
from dptext_etl.runner.publish.manifest import postprocessing_facts, scan
from dptext_etl.runner.publish.parts import ids_of_parts
from dptext_etl.runner.shard.charging import (
    DEFECT,
    Charged,
    Column,
    Reserved,
    shard_spends,
    views_of,
)
from dptext_etl.runner.shard.staging import (
    Hardware,
    KeptShard,
    StagedShard,
    Staging,
    merge_hardware,
    read_draws,
    write_draws,
)
from dptext_etl.runner.source.roles import output_columns, published_columns

Extra = TypeVar("Extra")


@dataclass
class ShardContext:
    """The state that all shards of a run share."""

    policy: Policy
    columns: list[Column]
    ledger: Ledger  # the ledger that is charged
    job: str  # the name of this attempt in the ledger
    staging: Staging  # the folder where results wait for the gates
    checkpoint: Checkpoint  # called after every step
    profile: Profile = field(default_factory=Profile)  # counts the cost of the stages


def replays(policy: Policy) -> bool:
    """Return whether a run keeps the bytes that it released, because a model may give others next time."""
    columns = policy.charged_columns()
    steps = (step for column in columns for step in column.postprocess)
    return not all(item.mechanism.reproducible for item in columns) or not all(step.reproducible for step in steps)


@dataclass(frozen=True)
class Replay:
    """Rows of a column of a shard that are released already, with their bytes; none under most mechanisms."""

    new: npt.NDArray[np.bool_]  # the rows that are not, shape (rows of the shard,)
    # columns `row` (place in the shard), `text` and `draws`
    rows: pl.DataFrame = field(default_factory=pl.DataFrame, repr=False)
    computed: Sequence[Hardware] = ()  # where they were computed, as far as that was noted

    def completed(self, raw: pl.DataFrame, ids: pa.Array, column: Column) -> Released:
        """Release the new rows, and return all rows in order."""
        if self.new.all():
            return release(views_of(raw, column.name), ids, column.policy)
        rows, failed = self.rows, None
        if self.new.any():
            mask = to_arrow(self.new)
            released = release(raw[column.name].to_arrow().filter(mask), ids.filter(mask), column.policy)
            texts = pl.Series(released.text, dtype=pl.String)
            more = pl.DataFrame({"row": np.flatnonzero(self.new), "text": texts, "draws": write_draws(released)})
            rows, failed = pl.concat([rows, more]), released.failed
        rows = rows.sort("row")
        text = rows["text"].to_arrow().cast(pa.large_string())
        positions, steps = read_draws(rows["draws"])
        return Released(text, to_arrow(positions), None if steps is None else to_arrow(steps), failed)


def find_replays(shards: ShardContext, reserved: Reserved, index: int) -> dict[str, Replay]:
    """Find the rows that a release of a model holds already, so that they are not computed again."""
    ids, by_column, changed = reserved.charged.ids, dict[str, Replay](), reserved.outcome == Outcome.CHANGED
    for column in shards.columns:
        reproducible = column.policy.mechanism.reproducible
        if reproducible and not changed.any():
            by_column[column.name] = Replay(np.ones(len(ids), np.bool_))
            continue
        committed = shards.ledger.committed(column.ref, ids, canary=reserved.canary)
        wanted = replace(committed, mask=committed.mask & changed) if reproducible else committed
        with seam("reading staged files", DPTextError, DEFECT):
            by_column[column.name] = _find_replay(shards, ids, index, column, wanted)
        missing = int((changed & by_column[column.name].new).sum())
        if missing:
            msg = f"the released texts of {counted(missing, 'changed record')} are neither published nor kept"
            hint = "bring back the published version, or use a new release name; nothing was drawn"
            raise InputError(f"{msg} in staging", hint)
    return by_column


def _find_replay(shards: ShardContext, ids: pa.Array, index: int, column: Column, committed: Committed) -> Replay:
    """Find the bytes of committed rows in staged files."""
    name, rows, computed, new = column.name, list[pl.DataFrame](), list[Hardware](), np.ones(len(ids), np.bool_)
    if not committed.mask.any():
        return Replay(new)
    # the draws that the ledger knows; where it settled nothing, all that were charged
    drawn, mechanism = pl.Series("positions", committed.positions, dtype=pl.UInt32), column.policy.mechanism
    if mechanism.refundable:
        costs = np.where(committed.settled, committed.used, spends(mechanism, to_arrow(committed.positions))[PURE])
        drawn = pl.DataFrame([drawn, pl.Series("steps", steps_of(mechanism, costs))]).to_struct()

    def texts(shard: KeptShard) -> tuple[pl.Series, pl.DataFrame, KeptShard]:
        frame = shard.frame.select(by_name(name).alias("text"))
        if shard.draws is not None:
            frame = frame.with_columns(shard.draws[name].alias("draws"))
        return shard.frame[shards.policy.id], frame, shard

    for matching, shard in matches(ids, committed, map(texts, shards.staging.kept(index))):
        counts = matching["draws"] if shard.draws is not None else drawn[matching["row"]].alias("draws")
        rows.append(matching.select("row", "text").with_columns(counts))
        new[matching["row"].to_numpy()] = False
        computed.extend(shard.computed.get(name, ()) if matching.height else ())
    return Replay(new, pl.concat(rows), computed) if rows else Replay(new)


def matches(
    ids: pa.Array, wanted: Committed, kept: Iterable[tuple[pl.Series, pl.DataFrame, Extra]]
) -> Iterator[tuple[pl.DataFrame, Extra]]:
    """Yield the rows of each kept frame whose id and digest of `text` are wanted, with `row`, their place in `ids`."""
    left = pl.DataFrame({"id": ids, "row": np.arange(len(ids)), "digest": _binary(wanted.digests)}).filter(wanted.mask)
    for kept_ids, frame, extra in kept:
        if not left.height:
            return
        written = canonical_series(kept_ids)
        kept_rows = frame.with_columns(id=written, digest=_binary(pa.array(_kernel.digests(frame["text"]))))
        matching = left.join(kept_rows, on=["id", "digest"], how="inner").unique("row")
        yield matching, extra
        left = left.join(matching, on="row", how="anti")


def with_earlier_texts(ledger: Ledger, charged: Charged, outcome: npt.NDArray[np.uint8]) -> Charged:
    """Replace the identities and draws of changed texts by the ones of the earlier texts."""
    changed = outcome == Outcome.CHANGED
    if not changed.any():
        return charged
    mask, charges = to_arrow(changed), []
    ids = charged.ids.filter(mask)
    for item in charged.charges:
        committed = ledger.committed(item.ref, ids)
        missing = int((~committed.mask).sum())
        if missing:
            msg = f"the texts of {counted(missing, 'changed record')} were never released: there is nothing to keep"
            raise InputError(msg, "bring their texts back, or use a new release name")
        n_worst = np.array(item.n_worst)
        n_worst[changed] = committed.positions
        identities = pc.replace_with_mask(item.idem_keys, mask, committed.idem_keys)
        charges.append(replace(item, idem_keys=identities, n_worst=n_worst))
    return replace(charged, charges=tuple(charges))


def require_earlier_texts(layouts: Sequence[Layout], policy: Policy) -> None:
    """Refuse to keep texts where none are published or staged."""
    names = (name for layout in layouts for name in layout.staging.glob("*.parquet"))
    staged = any(name.startswith(("kept-", "shard-")) for name in names)
    if not staged and all(Manifest.of_release(policy, layout) is None for layout in layouts):
        msg = "released texts of changed records are to be kept, and none are published or kept in staging"
        raise InputError(msg, "bring back the published version, or use a new release name; nothing was charged")


def keep_published(
    layout: Layout, policy: Policy, columns: Sequence[Column], staging: Staging, *, planning: bool
) -> None:
    """Keep published parts in staging, where the ledger has the draws of their rows; a plan only reads them."""
    manifest = Manifest.of_release(policy, layout)
    if manifest is None:
        return
    published = {item.name: f"{item.name}_intermediate" if item.policy.postprocess else item.name for item in columns}
    wanted = [*published.values()] if manifest.ids != "keep" else [policy.id, *published.values()]
    if not set(wanted) <= manifest.schema.keys():
        return
    digests = (part.sha256 for part in manifest.parts)
    own_ids = None if manifest.ids == "keep" else ids_of_parts(layout.staging, policy.ledger, digests)
    for index, part in enumerate(manifest.parts):
        if staging.keeps(index, part.sha256):
            continue
        hint = "are the published parts all there? No record is charged twice"
        with seam("reading the published table", InputError, hint):
            part_rows = scan(layout, replace(manifest, parts=(part,)))
            ids = by_name(policy.id) if own_ids is None else pl.lit(own_ids[index]).alias(policy.id)
            texts = (by_name(published_name).cast(pl.String).alias(name) for name, published_name in published.items())
            rows = part_rows.select(*texts, ids).filter(ids.is_not_null()).collect()
        if not planning:
            staging.keep(index, part.sha256, rows)


def _binary(digests: pa.Array) -> pl.Series:
    return pl.Series(digests.cast(pa.large_binary()))


def compute(
    shards: ShardContext, reserved: Reserved, replays: Mapping[str, Replay]
) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, Any]]:
    """Release the texts of a shard, and count.

    Returns:
        The rows to stage (id, kept columns, released texts, canary marks); draw counts by text column, as `write_draws`
        writes them; fields of `StagedShard`.
    """
    policy, columns, profile = shards.policy, shards.columns, shards.profile
    raw, ids, canary = reserved.frame, reserved.charged.ids, reserved.canary
    released = {column.name: replays[column.name].completed(raw, ids, column) for column in columns}
    texts = {name: pl.Series(name, item.text, dtype=pl.String) for name, item in released.items()}
    frame = pl.DataFrame([texts.get(name, raw[name]) for name in (*output_columns(policy), CANARY)])
    counts, spends = shard_spends(columns, released, canary, policy)
    with profile.stage("reports"):
        copies = {item.name: copies_of(raw, frame, item, released[item.name].positions, policy) for item in columns}
        profile.count("reports", rows=frame.height if counts_all(policy) else min(frame.height, SAMPLE_ROWS))
    draws = pl.DataFrame({name: write_draws(item) for name, item in released.items()})
    again = {item.name: recomputed(raw, frame, ids, item, replays[item.name]) for item in columns}
    hardware = {name: list(replay.computed) for name, replay in replays.items()}
    for item in columns:
        computing = item.policy.mechanism.computing
        if computing is not None and (~canary & replays[item.name].new).any():
            hardware[item.name].append({"device": computing.device, "dtype": computing.dtype})
    records = raw.filter(~pl.col(CANARY))
    every = counts_all(policy)
    read = {
        item.name: count_reading(item.policy.mechanism, records[item.name].alias("text"), every=every)
        for item in columns
    }
    failures = {
        name: {"texts": int((failed > 0).sum()), "draws": int(failed.sum())}
        for name, item in released.items()
        if item.failed is not None and (failed := item.failed.to_numpy()).any()
    }
    facts = {"counts": counts, "spends": spends, "copies": copies, "computed": merge_hardware([hardware])}
    return frame, draws, {**facts, "read": read, "failures": failures, "recomputed": again}


def recomputed(raw: pl.DataFrame, out: pl.DataFrame, ids: pa.Array, column: Column, replay: Replay) -> dict[str, int]:
    """Release the canary rows once more, in reverse order and without other rows, and count those that agree.

    Of the others it counts those that got the release of a canary row of another text.
    """
    places = np.flatnonzero(raw[CANARY].to_numpy() & replay.new)[::-1]
    if not len(places):
        return {"rows": 0, "equal": 0, "moved": 0}
    chosen = to_arrow(places)
    texts = raw[column.name].to_arrow().take(chosen)
    again = pl.Series(release(texts, ids.take(chosen), column.policy).text, dtype=pl.String)
    rows = list(zip(texts.to_pylist(), out[column.name].to_arrow().take(chosen).to_pylist(), again, strict=True))
    moved = sum(
        new != staged and any(new == of_other and text != other for other, of_other, _ in rows)
        for text, staged, new in rows
    )
    return {"rows": len(rows), "equal": sum(staged == new for _, staged, new in rows), "moved": moved}


def copies_of(
    raw: pl.DataFrame, out: pl.DataFrame, column: Column, draws: pl.Series | pa.Array, policy: Policy
) -> dict[str, Any]:
    """Count the texts that came back unchanged, without canary rows; the counts stay inside the boundary."""
    columns = {"raw": raw[column.name], "released": out[column.name], "draws": pl.Series(draws)}
    places = np.flatnonzero(~raw[CANARY].to_numpy())
    rows = pl.DataFrame(columns)[pl.Series(to_arrow(places if counts_all(policy) else sample(places)))]
    mechanism = by_word(column.policy.mechanism)
    run = None if mechanism is None else ngram_words(mechanism)
    return count_copies(rows["raw"], rows["released"], rows["draws"], run).as_dict()


@dataclass(frozen=True)
class Rewriting:
    """Post-processes the columns of a committed shard that ask for it."""

    shards: ShardContext
    reserved: Reserved
    index: int
    columns: list[Column]  # those that are post-processed

    @property
    def chains(self) -> dict[str, str | None]:
        return {item.name: item.policy.chain for item in self.columns}

    def run(self, staged: StagedShard, inputs: str) -> StagedShard:
        shards = self.shards
        rewritten = self.find(staged)
        if rewritten is None:
            with shards.profile.stage("postprocess"), seam("rewriting a shard", DPTextError, DEFECT):
                rewritten = self.rewrite(staged)
            shards.checkpoint("rewriting staged")
        diverged = self.record(rewritten)
        if not diverged:
            return rewritten
        for other in shards.staging.find(self.index, inputs):  # of an attempt at the same time, which was faster
            first = self.find(other)
            if first is not None and not self.record(first):
                shards.staging.discard(self.index)
                return first
        msg = f"{diverged:,} released texts, rewritten again, became others than were recorded"
        hint = "the first result is the one that is published: bring back the kept files of its staging"
        raise LedgerError(msg, hint)

    def recorded(self, item: Column) -> Committed:
        """Look up recorded results of a column."""
        ids, chain = self.reserved.charged.ids, item.policy.chain
        return self.shards.ledger.committed(item.ref, ids, chain=chain, canary=self.reserved.canary)

    def find(self, staged: StagedShard) -> StagedShard | None:
        """Return a shard whose staged results are intact and match the ledger; None if they must be computed."""
        staging = self.shards.staging
        if staged.post.get("chains") != self.chains or not staging.holds_post(staged):
            return None
        with seam("reading staged files", DPTextError, DEFECT):
            frame = staging.outcome(staged)
            texts = {name: frame[name] for name in self.chains}
            for item in self.columns:
                digests = pa.array(_kernel.digests(texts[item.name].to_arrow()))
                if pc.any(pc.not_equal(digests, self.recorded(item).digests)).as_py():
                    return None
            arranged = self.arranged(staging.read(staged), texts)
            if frame.columns == arranged.columns:
                return staged
            facts = {name: fact for name, fact in staged.post.items() if name != "sha256"}
            return staging.save_post(staged, arranged, facts)  # the policy keeps other columns now

    def rewrite(self, staged: StagedShard) -> StagedShard:
        """Rewrite texts without a kept result, reuse recorded results of kept files, and stage all of them."""
        staging, policy, ids = self.shards.staging, self.shards.policy, self.reserved.charged.ids
        frame, draws = staging.read(staged), staging.draws(staged)
        texts, failed, copies = {}, {}, {}
        for item in self.columns:
            kept = (
                (post[policy.id], pl.DataFrame({"text": post[item.name]}), None)
                for shard in staging.kept(self.index)
                for post in shard.posts
                if item.name in post.columns
            )
            found = [matching.select("row", "text") for matching, _ in matches(ids, self.recorded(item), kept)]
            rows = pl.concat([pl.DataFrame(schema={"row": pl.Int64, "text": pl.String}), *found])
            new = np.ones(frame.height, np.bool_)
            new[rows["row"].to_numpy()] = False
            if new.any():
                mask = pa.array(new)
                result = rewrite(frame[item.name].to_arrow().filter(mask), ids.filter(mask), item.policy)
                if failures := int(pc.sum(result.failed).as_py() or 0):
                    failed[item.name] = failures
                text = pl.Series(result.text, dtype=pl.String)
                rows = pl.concat([rows, pl.DataFrame({"row": np.flatnonzero(new), "text": text})])
                for step in item.policy.postprocess:
                    step.probe()
            texts[item.name] = rows.sort("row")["text"].alias(item.name)
            drawn, _ = read_draws(draws[item.name])
            out = pl.DataFrame([texts[item.name]])
            copies[item.name] = copies_of(self.reserved.frame, out, item, pa.array(drawn), policy)
        self.shards.profile.count("postprocess", rows=frame.height)
        facts = {"chains": self.chains, "failed": failed, "copies": copies}
        return staging.save_post(staged, self.arranged(frame, texts), facts)

    def arranged(self, frame: pl.DataFrame, texts: Mapping[str, pl.Series]) -> pl.DataFrame:
        """Put results in the places of released texts, and released texts next to them where the policy keeps them."""
        policy = self.shards.policy
        before = {item.intermediate: item.name for item in policy.columns if item.intermediate is not None}
        chosen = [name for name in published_columns(policy) if name in frame.columns or name in before]
        chosen += [name for name in frame.columns if name not in chosen]
        return pl.DataFrame(
            [frame[before[name]].alias(name) if name in before else texts.get(name, frame[name]) for name in chosen]
        )

    def record(self, staged: StagedShard) -> int:
        """Record the digests of staged results in the ledger, and return how many differ from the recorded ones."""
        frame, ids, diverged = self.shards.staging.outcome(staged), self.reserved.charged.ids, 0
        for item in self.columns:
            digests = pa.array(_kernel.digests(frame[item.name]))
            names = item.ref, str(item.policy.chain), postprocessing_facts(item.policy)
            outcome = self.shards.ledger.post(self.shards.job, *names, ids, digests, canary=self.reserved.canary)
            diverged += int((outcome == CommitOutcome.DIVERGED).sum())
            self.shards.checkpoint("rewriting recorded")
        return diverged
