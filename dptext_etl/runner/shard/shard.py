"""Move one shard through its steps: charge, compute, stage, commit, rewrite; return counts and hashes.

Every step can be repeated: by the same run after it was killed, by a retried task, or by two tasks at once. A run first
reuses shards that were staged from the same inputs, and computes only if there is nothing. So the first commit keeps
its bytes, even under a mechanism that would not give them twice.
"""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl.arrays import to_arrow
from dptext_etl.checks.canaries import CANARY
from dptext_etl.column import output_digests, possible_costs
from dptext_etl.device import threads
from dptext_etl.errors import BudgetError, DPTextError, InputError, LedgerError, counted, seam, without_panics
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Outcome, PreparedBatch
from dptext_etl.ledger.account import ChargeSteps
from dptext_etl.ledger.storage.hashed_ids import matrix
from dptext_etl.ledger.types import EXCLUDED, counts_of
from dptext_etl.parallel import map_in_order, run_both, sharing_threads
from dptext_etl.runner.shard.charging import (
    DEFECT,
    MODULUS,
    Charged,
    Reserved,
    charge,
    digest_of,
)
from dptext_etl.runner.shard.computing import (
    Replay,
    Rewriting,
    ShardContext,
    compute,
    find_replays,
    replays,
    with_earlier_texts,
)
from dptext_etl.runner.shard.staging import StagedShard, WholeTable, read_draws

log = logging.getLogger("dptext_etl.runner")

Phase = Literal["reserve", "compare", "release"]
"""The step that is applied to the shards: "reserve" charges only; "release" charges, computes, stages and commits.

Of a table that is summed, "reserve" also sums, "compare" compares committed digests, and "release" commits.
"""
_FEW = 1_000
"""Rows of a shard up to which another thread costs more than it saves."""


class _Result(NamedTuple):
    digests: pa.Array  # digests of its texts
    draws: npt.NDArray[np.uint32]  # draws that were charged
    # the pure epsilon that was used, in millionths, where the mechanism is refundable; else None
    spent: npt.NDArray[np.int64] | None


Prepared = tuple[Charged, PreparedBatch]
"""Draws and identities of a shard, and the batch for the ledger."""


Drawn = tuple[StagedShard, list[_Result]]
"""A shard that is computed and staged, with the results of each text column."""


@dataclass(frozen=True)
class Begun:
    """A shard that is charged."""

    index: int  # its number
    rows: int  # rows of the source
    reserved: Reserved
    kept: Reserved | None = None  # without the rows that are excluded; None where rows are only reserved
    inputs: str = ""  # hash of its inputs
    staged: StagedShard | None = None  # staged and committed by an earlier attempt
    replays: Mapping[str, Replay] = field(default_factory=dict)  # rows that are released already, by text column


@dataclass
class Shards(ShardContext):
    computed: bool = False  # whether this attempt has scored a text, or is about to
    pairs: Mapping[str, int] | None = None  # by shard, as they were previewed (`Charged.pairs`); None if unknown

    def results(self, frames: Iterable[tuple[int, pl.DataFrame]], phase: Phase, width: int) -> Iterator[ShardResult]:
        """Do a phase for shards, of which `width` are under way at a time.

        This thread has the ledger, and begins and ends the shards in their order; others count and draw. If one fails,
        those before it end, and none after it begins or is committed.
        """
        sharing: Callable[[], AbstractContextManager[None]] = sharing_threads if width > 1 else nullcontext
        failures = list[Exception]()

        def prepare(item: tuple[int, pl.DataFrame]) -> tuple[int, pl.DataFrame, Prepared]:
            with sharing():
                return *item, self.prepare(*item, sealed=width > 1)

        def draw(shard: Begun) -> tuple[Begun, Drawn | None]:
            with sharing():
                return shard, self.draw(shard)

        def begin_all() -> Iterator[Begun]:
            try:
                with without_panics():
                    for item in map_in_order(prepare, frames, min(width, 2)):
                        shard = self.begin(*item, phase)
                        self.computed |= width > 1  # another shard may be scoring when the next one is refused
                        yield shard
            except Exception as exc:  # noqa: BLE001  (it is raised when the shards before have ended)
                failures.append(exc)

        for begun in map_in_order(draw, begin_all(), width):
            yield self.end(*begun)
        if failures:
            raise failures[0]

    def prepare(self, index: int, raw: pl.DataFrame, *, sealed: bool = False) -> Prepared:
        """Count draws and make identities, in any thread."""
        with self.profile.stage("reserve"), seam("counting draws", DPTextError, DEFECT):
            charged = charge(raw, self.columns, self.policy)
            if self.pairs is not None:
                refuse_other_persons(self.pairs.get(str(index)), charged.pairs)
            batch, own = (charged.ids, charged.subjects, charged.charges), self.policy.on_null_subject == "own"
            canary, make = raw[CANARY].to_numpy(), self.ledger.make_ready
            ready = make(self.policy.unit, *batch, canary=canary, sealed=sealed, own=own)
        return charged, ready

    def reserve(
        self, raw: pl.DataFrame, index: int, prepared: Prepared | None = None, *, job: str | None = None
    ) -> Reserved:
        """Reserve the worst case of a shard, for this attempt or under another name."""
        charged, ready = prepared or self.prepare(index, raw)
        canary = ready.records.canary
        with self.profile.stage("reserve"):
            # stop before the charge if a model that is needed fails on public texts; no text decides on a probe
            try:
                with seam("probing the model", DPTextError, DEFECT):
                    for column in self.columns:
                        mechanism, chain = column.policy.mechanism, column.policy.chain
                        committed = partial(self.ledger.committed, column.ref, charged.ids, canary=canary)
                        if not mechanism.reproducible and not committed().mask.all():
                            mechanism.probe()
                        if chain and not committed(chain=chain).mask.all():
                            for step in column.policy.postprocess:
                                step.probe()
            except DPTextError:
                self.give_back()
                raise
            steps = replace(self.steps, job=job or self.job)
            outcome = steps.reserve(ready, charged.forms, again=self.policy.on_changed == "release_again")
            self.profile.count("reserve", rows=raw.height)
        self.checkpoint("reserved")
        # canary rows never change
        changed = (outcome == Outcome.CHANGED) & (canary | (self.policy.on_changed == "refuse"))
        if changed.any():
            self.give_back()
            steps.refuse_changed(changed)
        if self.policy.on_changed == "keep":
            charged = with_earlier_texts(self.ledger, charged, outcome)
        return Reserved(raw, charged, outcome, counts_of(outcome[~canary]))

    @property
    def steps(self) -> ChargeSteps:
        return ChargeSteps.of(self.ledger, self.job, self.policy, dict(self.staging.storage.options))

    @property
    def excluded(self) -> tuple[Outcome, ...]:
        return EXCLUDED if self.policy.on_changed == "keep" else (*EXCLUDED, Outcome.CHANGED)

    def begin(self, index: int, raw: pl.DataFrame, prepared: Prepared, phase: Phase) -> Begun:
        """Charge a shard, and finish one that an earlier attempt staged.

        All of a shuffled release is reserved before: then a new record is one that came into the source meanwhile.
        """
        before, rows = phase == "release" and self.policy.shuffled, int((~raw[CANARY]).sum())
        reserved = (self.reserved_before if before else self.reserve)(raw, index, prepared)
        if phase == "reserve":
            return Begun(index, rows, reserved)
        over = int((reserved.outcome == Outcome.OVER_CAP).sum())
        if over and self.policy.on_cap == "refuse":
            raise BudgetError(f"{counted(over, 'record')} would exceed the cap", "did the source change? Run again")
        kept = self.leave_out(reserved, index)
        # Identities (keyed hashes of the texts), ids, kept values, and their order
        clear, buffer = kept.frame[[self.policy.id, *self.policy.kept_columns, CANARY]], io.BytesIO()
        with seam("hashing kept columns", DPTextError, DEFECT):
            clear.write_ipc(buffer)
        identities = (matrix(item.idem_keys, "identities").tobytes() for item in kept.charged.charges)
        inputs = digest_of(buffer.getvalue(), *identities)
        staged = self._resume(kept, index, inputs)
        return Begun(index, rows, reserved, kept, inputs, staged, {} if staged else find_replays(self, kept, index))

    def draw(self, begun: Begun) -> Drawn | None:
        """Compute and stage a shard, in any thread, unless an earlier attempt did; the ledger is not used."""
        if begun.kept is None or begun.staged is not None:
            return None
        self.computed = True
        with self.profile.stage("compute"), seam("computing a shard", DPTextError, DEFECT):
            frame, draws, facts = compute(self, begun.kept, begun.replays)
            for column in self.columns:
                if begun.replays[column.name].new.any():
                    column.policy.mechanism.probe()
            self.profile.count("compute", rows=frame.height, size=int(frame.estimated_size()))

        def save() -> StagedShard:
            with self.profile.stage("stage"):
                keeps = replays(self.policy)
                staged = self.staging.save(begun.index, frame, draws, begun.inputs, facts, keeps=keeps)
                self.profile.count("stage", rows=frame.height, size=self.staging.path(staged).stat().st_size)
            return staged

        workers = threads() if frame.height > _FEW else 1
        results, staged = run_both(lambda: self._results(frame, draws), save, workers)
        return staged, results

    def end(self, begun: Begun, computed: Drawn | None) -> ShardResult:
        """Commit a shard that was drawn, and rewrite its texts."""
        staged, kept = begun.staged, begun.kept
        if kept is not None:
            if computed is not None:
                self.checkpoint("computed")
                self.checkpoint("staged")
                diverged, staged = self._commit(kept, computed[1]), computed[0]
                if diverged is not None:  # of an attempt at the same time, which was faster
                    self.staging.discard(begun.index)
                    staged = self._resume(kept, begun.index, begun.inputs)
                if staged is None:
                    hint = "the first commit is the release: bring back the kept files of its staging, or use a new "
                    raise LedgerError(f"{diverged}; nothing was published", f"{hint}release name")
            log.info("shard %d: %d rows staged and committed", begun.index, kept.frame.height)
            assert staged is not None  # noqa: S101  (staged by an earlier attempt, if it was not drawn)
            if rewriting := [column for column in self.columns if column.policy.chain is not None]:
                staged = Rewriting(self, kept, begun.index, rewriting).run(staged, begun.inputs)
        whole = self.policy.shuffled is not None
        admitted = begun.reserved.without(self.excluded).whole_table(self.policy.labels) if whole else None
        return ShardResult(begun.rows, begun.reserved.answers, staged, admitted, begun.reserved.charged.pairs)

    def leave_out(self, reserved: Reserved, index: int) -> Reserved:
        """List the records that are over the cap or changed inside the boundary, and return the others."""
        listed = np.isin(reserved.outcome, self.excluded) & (reserved.outcome != Outcome.FORGOTTEN)  # no id of theirs
        subjects = reserved.charged.take(listed).subjects
        units = None if subjects is None else self.ledger.people.unit_hashes(subjects)
        self.staging.quarantine(index, reserved.frame[[self.policy.id]].filter(pl.Series(to_arrow(listed))), units)
        return reserved.without(self.excluded)

    def reserved_before(self, raw: pl.DataFrame, index: int, prepared: Prepared | None = None) -> Reserved:
        """Look up the reservations of a shard, and refuse records that have none."""
        again = f"{self.job}-again"
        reserved = self.reserve(raw, index, prepared, job=again)
        if reserved.answers[Outcome.RESERVED.name]:
            self.ledger.abort(again, compute_never_started=True)
            msg = "the source changed while it was read, or records were admitted that were excluded before"
            raise InputError(msg, "run again when no one writes to it; no record is charged twice")
        return reserved

    def give_back(self) -> None:
        """Give back the reservations of this attempt, if it has scored no text. Others stay charged."""
        if not self.computed:
            self.steps.give_back()

    def _resume(self, reserved: Reserved, index: int, inputs: str) -> StagedShard | None:
        """Finish an attempt that was staged from these inputs; None if the ledger holds other bytes."""
        for staged in self.staging.find(index, inputs):
            with seam("reading staged files", DPTextError, DEFECT):
                results = self._results(self.staging.read(staged), self.staging.draws(staged))
            ids, canary = reserved.charged.ids, reserved.canary
            committed = [self.ledger.committed(column.ref, ids, canary=canary) for column in self.columns]
            pairs = zip(results, committed, strict=True)
            if not any(pc.any(pc.not_equal(item.digests, before.digests)).as_py() for item, before in pairs):
                if not np.isin(reserved.outcome, (Outcome.COMMITTED, Outcome.CHANGED)).all():
                    self._commit(reserved, results)
                return staged
        return None

    def _results(self, frame: pl.DataFrame, draws: pl.DataFrame) -> list[_Result]:
        results, ids = [], canonical_ids(frame[self.policy.id].to_arrow())
        for column in self.columns:
            charged, steps = read_draws(draws[column.name])
            used = None if steps is None else possible_costs(column.policy, charged, steps)
            digests = output_digests(column.policy, ids, frame[column.name])
            results.append(_Result(digests, charged, used))
        return results

    def _commit(self, reserved: Reserved, results: list[_Result]) -> str | None:
        """Commit all columns of a shard, or say how many rows of one differ from committed ones."""
        ids, canary, steps = reserved.charged.ids, reserved.canary, self.steps
        triples = zip(self.columns, reserved.charged.charges, results, strict=True)
        with self.profile.stage("commit"):
            ready = [
                steps.compare(column.policy, charge, ids, item.digests, item.draws, canary=canary, spent=item.spent)
                for column, charge, item in triples
            ]
            self.profile.count("commit", rows=reserved.frame.height)
            for prepared_commit in ready:
                if diverged := steps.commit(prepared_commit):
                    return diverged
                self.checkpoint("committed")
        return None


@dataclass(frozen=True)
class ShardResult:
    """Counts of the rows of a shard; it travels as JSON from an executor to the driver."""

    rows: int  # rows of the source among them
    outcomes: Mapping[str, int]  # records by the answer of the ledger (`Outcome`)
    staged: StagedShard | None  # None where rows were only reserved
    # which records of a shuffled release are drawn or to be drawn among them, in numbers; None otherwise
    admitted: WholeTable | None = None
    pairs: int = 0  # sum of digests of its records with their persons (`Charged.pairs`)
    sums: str | None = None  # exact sums of a table that is summed (`families.aggregate.Partial`), in base64
    agrees: bool = True  # whether the records of a summed table were committed with the drawn table

    @classmethod
    def of_json(cls, facts: Mapping[str, Any]) -> Self:
        """Return the result whose fields JSON held."""
        staged, admitted = facts["staged"], facts["admitted"]
        objects = {"staged": staged and StagedShard(**staged), "admitted": admitted and WholeTable(*admitted)}
        return cls(**{**facts, **objects})


def outcomes(results: Iterable[ShardResult]) -> Counter[str]:
    total: Counter[str] = Counter()
    for item in results:
        total.update(item.outcomes)
    return total


def whole_table(results: Iterable[ShardResult]) -> WholeTable:
    """Add up the admitted records of a table, whatever shards they are in."""
    parts = [item.admitted for item in results if item.admitted is not None]
    digest = sum(int(part.digest, 16) for part in parts) % MODULUS
    labels = Counter[str]()
    for part in parts:
        labels.update(part.labels or {})
    counts = sum(part.records for part in parts), sum(part.draws for part in parts)
    return WholeTable(*counts, f"{digest:064x}", dict(labels))


def refuse_other_persons(before: int | None, now: int) -> None:
    """Refuse records with other persons than when they were checked or chosen: a person may have more of them now."""
    if before != now:
        msg = "the source changed while it was read: records, or their persons, are not those that were checked"
        raise InputError(msg, "run again when no one writes to it, or write it to a table first; nothing was published")
