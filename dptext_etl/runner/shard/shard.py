"""Take one shard through its steps: charge, compute, stage, commit, rewrite. No text is scored before it is charged.

A shard comes with its canary rows. Every step can be repeated: by the same run after it was killed, by a retried task,
or by two tasks at once. A run first takes up what was staged from the same inputs, and computes only if there is
nothing. So the first commit keeps its bytes, even under a mechanism that would not give them twice.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl.arrays import to_arrow
from dptext_etl.checks.canaries.rows import CANARY
from dptext_etl.column import output_digests, require_charged_draws, step_costs
from dptext_etl.device import threads
from dptext_etl.errors import BudgetError, DPTextError, InputError, LedgerError, seam
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import CommitOutcome, Ledger, Outcome, Ready, ReserveResult, Scope, ToCommit
from dptext_etl.ledger.terms import LEFT_OUT
from dptext_etl.policy import Policy
from dptext_etl.runner.anchoring import remember
from dptext_etl.runner.profile import Profile
from dptext_etl.runner.progress import Checkpoint
from dptext_etl.runner.shard import draw_counts, keeping, probing
from dptext_etl.runner.shard.charging import Charged, Column, charge
from dptext_etl.runner.shard.computing import Computed, canary_marks, compute
from dptext_etl.runner.shard.records import StagedShard, WholeTable, digest_of
from dptext_etl.runner.shard.replaying import Kept, kept, replays
from dptext_etl.runner.shard.rewriting import rewritten
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.shard.turns import StoppedError, Turns
from dptext_etl.side_by_side import both
from dptext_etl.storage import Storage

log = logging.getLogger("dptext_etl.runner")

_DEFECT = "this is a defect; its message is left out, because it may quote a text. Nothing was published"


@dataclass(frozen=True)
class Reserved:
    """A charged shard.

    Attributes:
        frame: The raw shard with its canary rows.
        charged: Its charges.
        outcome: An `Outcome` per row, shape (rows,).
        answers: Records by outcome, without canary rows and whatever was taken since.
    """

    frame: pl.DataFrame = field(repr=False)
    charged: Charged = field(repr=False)
    outcome: npt.NDArray[np.uint8]
    answers: Mapping[str, int]

    def without(self, gone: Collection[Outcome]) -> Reserved:
        """Return the rows that are not left out; changed ones among them keep their earlier released texts."""
        chosen = ~np.isin(self.outcome, list(gone))
        if chosen.all():
            return self
        return Reserved(self.frame.filter(chosen), self.charged.take(chosen), self.outcome[chosen], self.answers)

    def whole_table(self) -> WholeTable:
        """Return the records among the rows; canary rows do not count."""
        own = self.charged.take(~self.canary)
        drawn = np.any([np.asarray(item.n_worst) > 0 for item in own.charges], axis=0)
        return WholeTable(len(own.ids), int(drawn.sum()), f"{own.sum_of_identities():064x}")

    @property
    def replayed(self) -> bool:
        """Whether the release holds every row already."""
        return bool(np.isin(self.outcome, (Outcome.COMMITTED, Outcome.CHANGED)).all())

    @property
    def canary(self) -> npt.NDArray[np.bool_]:
        """Which rows are canaries, shape (rows,)."""
        return canary_marks(self.frame)


class _Result(NamedTuple):
    """What one column of a shard became, shape (rows,).

    Attributes:
        digests: Digests of its texts.
        draws: Draws that were charged.
        spent: The pure epsilon that was used, in millionths, where the mechanism is refundable; else None.
    """

    digests: pa.Array
    draws: npt.NDArray[np.uint32]
    spent: npt.NDArray[np.int64] | None


@dataclass
class Shards:
    """What the shards of a run share.

    Attributes:
        policy: The policy of the run.
        columns: Its text columns.
        ledger: The ledger that is charged.
        job: The name of this attempt in the ledger.
        staging: The folder where results wait for the gates.
        memory: The place that all releases and partitions share; it remembers the head of the ledger.
        checkpoint: Called after every step.
        profile: Counts what the stages take.
        turns: Says when a shard may use the ledger, and call `checkpoint`.
        computed: Whether this attempt has scored a text, or is about to.
    """

    policy: Policy
    columns: list[Column]
    ledger: Ledger
    job: str
    staging: Staging
    memory: Storage
    checkpoint: Checkpoint
    profile: Profile = field(default_factory=Profile)
    turns: Turns = field(default_factory=Turns)
    computed: bool = False

    def reserve(self, planted: pl.DataFrame, index: int, job: str | None = None) -> Reserved:
        """Reserve the worst case of a shard, for this attempt or under another name."""
        with self.profile.stage("reserve"), seam("counting draws", DPTextError, _DEFECT):
            charged = charge(planted, self.columns, self.policy)
            canary = canary_marks(planted)
            batch = (charged.ids, charged.subjects, charged.charges)
            own, make = self.policy.on_null_subject == "own", self.ledger.make_ready
            ready = make(self.policy.unit, *batch, canary=canary, sealed=self.turns.side_by_side, own=own)
        return self.turns.take("reserve", index, lambda: self._reserved(planted, charged, ready, job or self.job))

    def _reserved(self, planted: pl.DataFrame, charged: Charged, ready: Ready, job: str) -> Reserved:
        with self.profile.stage("reserve"):
            canary = ready.batch.canary
            self._probe_before(charged, canary)
            asked = (Scope.of(self.policy), self.policy.cap, charged.ids, charged.subjects, charged.charges)
            how = partial(self.ledger.reserve, again=self.policy.on_changed == "release_again")
            result = how(job, *asked, canary=canary, forms=charged.forms, ready=ready)
            remember(self.ledger, self.memory, self.policy, self.job)
            self.profile.count("reserve", rows=planted.height)
        self.checkpoint("reserved")
        self._refuse_changed(result.outcome, canary)
        if self.policy.on_changed == "keep":
            charged = keeping.as_released(self.ledger, charged, result.outcome)
        self.computed |= self.turns.side_by_side  # another shard may be scoring when the next one is refused
        return Reserved(planted, charged, result.outcome, ReserveResult(result.outcome[~canary]).counts)

    @property
    def gone(self) -> tuple[Outcome, ...]:
        """Outcomes of records that are left out."""
        return LEFT_OUT if self.policy.on_changed == "keep" else (*LEFT_OUT, Outcome.CHANGED)

    def release(self, planted: pl.DataFrame, index: int) -> tuple[StagedShard, Reserved]:
        """Stage and commit a raw shard, and return its admitted rows. What an earlier attempt finished is not repeated.

        All of an unlinked release is reserved before: then a new record is one that came into the source meanwhile.
        """
        reserved = self._reserved_before(planted, index) if self.policy.unlinked else self.reserve(planted, index)
        over = int((reserved.outcome == Outcome.OVER_CAP).sum())
        if over and self.policy.on_cap == "refuse":
            raise BudgetError(f"{over} records would exceed the cap", "did the source change? Run again")
        left_out = np.flatnonzero(np.isin(reserved.outcome, self.gone))
        self.staging.quarantine(index, reserved.frame[[self.policy.id]][pl.Series(to_arrow(left_out))])
        reserved = reserved.without(self.gone)
        inputs = self._inputs(reserved)
        staged = self._taken_up(reserved, index, inputs) or self._computed(reserved, index, inputs)
        log.info("shard %d: %d rows staged and committed", index, reserved.frame.height)
        return rewritten(self, reserved, staged, index, inputs), reserved

    def _reserved_before(self, planted: pl.DataFrame, index: int) -> Reserved:
        """Look up the reservations of a shard, and refuse records that have none."""
        again = f"{self.job}-again"
        reserved = self.reserve(planted, index, again)
        if reserved.answers[Outcome.RESERVED.name]:
            self.turns.take(None, index, lambda: self.ledger.abort(again, compute_never_started=True))
            msg = "the source changed while it was read, or records were admitted that were left out before"
            raise InputError(msg, "run again when no one writes to it; what is charged is not charged twice")
        return reserved

    def give_back(self) -> None:
        """Give back what this attempt reserved, if it has scored no text. What cannot be given back stays charged."""
        if self.computed:
            return
        try:
            given = self.ledger.abort(self.job, compute_never_started=True)
        except LedgerError:
            log.warning("reservations of this attempt stay charged: another run relies on them")
        else:
            log.info("%d reservations given back", given)

    def _taken_up(self, reserved: Reserved, index: int, inputs: str) -> StagedShard | None:
        """Finish an attempt that was staged from these inputs; None if the ledger holds other bytes."""
        for staged in self.staging.find(index, inputs):
            with seam("reading what was staged", DPTextError, _DEFECT):
                results = self._results(self.staging.read(staged), self.staging.draws(staged))
            agrees = self.turns.take(None, index, partial(self._agree, reserved, results))
            if agrees:
                if not reserved.replayed:
                    ready = self._ready(reserved, index, results)
                    self.turns.take("commit", index, partial(self._commit, reserved, ready))
                return staged
        return None

    def _computed(self, reserved: Reserved, index: int, inputs: str) -> StagedShard:
        self.computed = True
        held = self._kept(reserved, index)
        with self.profile.stage("compute"), seam("computing a shard", DPTextError, _DEFECT):
            done = compute(reserved.frame, reserved.charged.ids, self.columns, self.policy, held, self.profile)
            probing.after(self.columns, held, reserved.frame.height)
            self.profile.count("compute", rows=done.frame.height, size=int(done.frame.estimated_size()))
        self._checkpoint("computed", index)
        try:
            ready, staged = both(
                lambda: self._ready(reserved, index, self._results(done.frame, done.draws)),
                lambda: self._saved(index, done, inputs),
                threads(),
            )
            self._checkpoint("staged", index)
            return self.turns.take("commit", index, lambda: self._first(reserved, index, inputs, staged, ready))
        except StoppedError:
            self.staging.discard(index)  # no one has compared it with what is committed
            raise

    def _saved(self, index: int, done: Computed, inputs: str) -> StagedShard:
        with self.profile.stage("stage"):
            keeps = replays(self.policy)
            staged = self.staging.save(index, done.frame, done.draws, inputs, done.facts, keeps=keeps)
            self.profile.count("stage", rows=done.frame.height, size=self.staging.path(staged).stat().st_size)
        return staged

    def _first(
        self, reserved: Reserved, index: int, inputs: str, staged: StagedShard, ready: list[ToCommit]
    ) -> StagedShard:
        """Commit what was computed, or take up what another attempt committed first."""
        diverged = self._commit(reserved, ready)
        if diverged is None:
            return staged
        self.staging.discard(index)
        first = self._taken_up(reserved, index, inputs)  # of an attempt at the same time, which was faster
        if first is not None:
            return first
        hint = "the first commit is the release: bring back the kept files of its staging, or take a new release name"
        raise LedgerError(f"{diverged}; nothing was published", hint)

    def _kept(self, reserved: Reserved, index: int) -> dict[str, Kept | None]:
        """Find the rows that a release of a model holds already, so that they are not computed again."""
        ids, found, changed = reserved.charged.ids, dict[str, Kept | None](), reserved.outcome == Outcome.CHANGED
        for column in self.columns:
            again, found[column.name] = column.policy.mechanism.reproducible, None
            if again and not changed.any():
                continue
            ask = partial(self.ledger.committed, column.ref, ids, canary=reserved.canary)
            committed = self.turns.take(None, index, ask)
            wanted = keeping.only(committed, changed) if again else committed
            with seam("reading what was staged", DPTextError, _DEFECT):
                found[column.name] = kept(self.staging, index, self.policy.id, column.policy, ids, committed=wanted)
            keeping.require_kept(found[column.name], changed)
        return found

    def _results(self, frame: pl.DataFrame, draws: pl.DataFrame) -> list[_Result]:
        results, ids = [], canonical_ids(frame[self.policy.id].to_arrow())
        for column in self.columns:
            charged, steps = draw_counts.counts(draws[column.name])
            used = None if steps is None else step_costs(column.policy.mechanism, steps)
            digests = output_digests(column.policy, ids, frame[column.name])
            results.append(_Result(digests, charged, used))
        return results

    def _agree(self, reserved: Reserved, results: list[_Result]) -> bool:
        return all(self._agrees(reserved, at, result) for at, result in enumerate(results))

    def _agrees(self, reserved: Reserved, at: int, result: _Result) -> bool:
        """Return whether all that is committed of a column has these bytes."""
        ref = self.columns[at].ref
        committed = self.ledger.committed(ref, reserved.charged.ids, canary=reserved.canary)
        return not pc.any(pc.not_equal(result.digests, committed.digests)).as_py()

    def _ready(self, reserved: Reserved, index: int, results: list[_Result]) -> list[ToCommit]:
        """Have the ledger compare results as soon as they are there, while they are staged."""
        return self.turns.take(None, index, lambda: self._examined(reserved, results))

    def _examined(self, reserved: Reserved, results: list[_Result]) -> list[ToCommit]:
        ids, canary = reserved.charged.ids, reserved.canary
        for column, charged, result in zip(self.columns, reserved.charged.charges, results, strict=True):
            require_charged_draws(column.policy, charged.n_worst, result.draws)
        with self.profile.stage("commit"):
            return [
                self.ledger.examine(
                    charged.ref,
                    ids,
                    charged.idem_keys,
                    result.digests,
                    positions=result.draws,
                    canary=canary,
                    spent=result.spent,
                )
                for charged, result in zip(reserved.charged.charges, results, strict=True)
            ]

    def _commit(self, reserved: Reserved, ready: list[ToCommit]) -> str | None:
        """Commit all columns of a shard, or say how many rows of one differ from what was committed before."""
        with self.profile.stage("commit"):
            self.profile.count("commit", rows=reserved.frame.height)
            for column, one in zip(self.columns, ready, strict=True):
                outcome = self.ledger.commit_examined(self.job, one)
                diverged = int((outcome == CommitOutcome.DIVERGED).sum())
                if diverged:
                    what = f"{diverged} records, computed again, gave other bytes than committed"
                    return f"column {column.name!r}: {what}"
                self.checkpoint("committed")
        return None

    def _checkpoint(self, name: str, index: int) -> None:
        self.turns.take(None, index, lambda: self.checkpoint(name))

    def _probe_before(self, charged: Charged, canary: npt.NDArray[np.bool_]) -> None:
        """Stop before this shard is charged if a model fails on public texts."""
        try:
            with seam("probing the model", DPTextError, _DEFECT):
                probing.before(self.columns, self.ledger, charged, canary)
        except DPTextError:
            self.give_back()
            raise

    def _refuse_changed(self, outcome: npt.NDArray[np.uint8], canary: npt.NDArray[np.bool_]) -> None:
        """Refuse changed texts, unless the policy says what becomes of them; canary rows never change."""
        changed = (outcome == Outcome.CHANGED) & (canary | (self.policy.on_changed == "refuse"))
        if changed.any():
            self.give_back()
            msg = f"the texts of {int(changed.sum())} records changed since this release took them"
            raise InputError(msg, "nothing of these rows was charged; another key, too, takes a new release name")

    def _inputs(self, reserved: Reserved) -> str:
        """Hash what a staged shard depends on: identities (keyed hashes of the texts), ids, kept values, order."""
        clear = reserved.frame[[self.policy.id, *self.policy.keep, CANARY]]
        with seam("hashing kept columns", DPTextError, _DEFECT):
            buffer = io.BytesIO()
            clear.write_ipc(buffer)
        return digest_of(buffer.getvalue(), *reserved.charged.identities())
