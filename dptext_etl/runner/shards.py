"""One shard: plant, charge, compute, stage, commit; in this order, so that no text is scored before it is paid for."""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.checks.canaries import CANARY, CanaryPlan, plant
from dptext_etl.errors import BudgetError, DPTextError, InputError, LedgerError, seam
from dptext_etl.ledger import Charge, CommitOutcome, Ledger, Outcome, ReserveResult, Scope
from dptext_etl.mechanism import Released
from dptext_etl.policy import Policy
from dptext_etl.runner.charging import Charged, Column, charge
from dptext_etl.runner.computing import canary_marks, compute
from dptext_etl.runner.staging import StagedShard, Staging, digest_of

log = logging.getLogger("dptext_etl.runner")

_DEFECT = "this is a defect; what it said is not repeated, because it may quote a text. Nothing was published"

Checkpoint = Callable[[str], None]
"""Called with the name of every step that is done; tests stop the process there."""


@dataclass(frozen=True)
class Reserved:
    """A charged shard.

    Attributes:
        frame: The raw shard with its canary rows.
        charged: Its charges.
        outcome: An `Outcome` per row.
    """

    frame: pl.DataFrame = field(repr=False)
    charged: Charged = field(repr=False)
    outcome: npt.NDArray[np.uint8]

    def within_cap(self) -> Reserved:
        """Leave out the rows that do not fit."""
        chosen = self.outcome != Outcome.OVER_CAP
        if chosen.all():
            return self
        return Reserved(self.frame.filter(chosen), self.charged.take(chosen), self.outcome[chosen])

    @property
    def replayed(self) -> bool:
        """Whether the release holds every row already."""
        return bool((self.outcome == Outcome.COMMITTED).all())


@dataclass
class Shards:
    """What the shards of a run share.

    Attributes:
        policy: The run's policy.
        columns: Its text columns.
        ledger: Where they are charged.
        job: Name of this attempt in the ledger.
        staging: Where results wait for their gates.
        checkpoint: Called after every step.
        computed: Whether this attempt has scored a text.
        outcomes: Records so far, by what the ledger said (canary rows are not counted).
    """

    policy: Policy
    columns: list[Column]
    ledger: Ledger
    job: str
    staging: Staging
    checkpoint: Checkpoint
    computed: bool = False
    outcomes: Counter[str] = field(default_factory=Counter)

    def reserve(self, frame: pl.DataFrame, canaries: CanaryPlan, *, count: bool = True) -> Reserved:
        """Plant a shard's canary rows and charge its worst case.

        Args:
            frame: The raw shard.
            canaries: Its canary rows.
            count: Add the outcomes to those of the run.

        Raises:
            InputError: Texts changed under record ids that the release holds (amendment A5).
        """
        planted = plant(frame, canaries, self.policy)
        self.checkpoint("planted")
        with seam("counting draws", DPTextError, _DEFECT):
            charged = charge(planted, self.columns, self.policy)
        canary = canary_marks(planted)
        scope, cap = Scope.of(self.policy), self.policy.cap
        result = self.ledger.reserve(
            self.job, scope, cap, charged.ids, charged.subjects, charged.charges, canary=canary
        )
        self.checkpoint("reserved")
        if count:
            self.outcomes.update(ReserveResult(result.outcome[~canary]).counts)
        self._refuse_changed(result)
        return Reserved(planted, charged, result.outcome)

    def release(self, frame: pl.DataFrame, canaries: CanaryPlan, *, count: bool = True) -> StagedShard:
        """Take a raw shard to a staged and committed one; what an earlier attempt finished is not done again.

        Raises:
            InputError: Changed texts, or no room to stage.
            LedgerError: Computed again, a record gave other bytes than it was committed with.
            BudgetError: A record over the cap that was not there before, with on_cap = "refuse".
        """
        reserved = self.reserve(frame, canaries, count=count)
        over = reserved.frame.filter(reserved.outcome == Outcome.OVER_CAP).select(self.policy.id)
        if over.height and self.policy.on_cap == "refuse":
            raise BudgetError(f"{over.height} records would exceed the cap", "did the source change? Run again")
        self.staging.quarantine(canaries.shard, over)
        reserved = reserved.within_cap()
        inputs = self._inputs(reserved)
        staged = self.staging.find(canaries.shard, inputs) if reserved.replayed else None
        if staged is not None:
            log.info("shard %d: staged and committed before", canaries.shard)
            return staged
        return self._compute(reserved, canaries.shard, inputs)

    def give_back(self) -> None:
        """Give back what this attempt reserved, if it has scored no text; what cannot be given back stays charged."""
        if self.computed:
            return
        try:
            given = self.ledger.abort(self.job, compute_never_started=True)
        except LedgerError:
            log.warning("reservations of this attempt stay charged: another run goes by them")
        else:
            log.info("%d reservations given back", given)

    def _compute(self, reserved: Reserved, index: int, inputs: str) -> StagedShard:
        self.computed = True
        with seam("computing a shard", DPTextError, _DEFECT):
            done = compute(reserved.frame, reserved.charged.ids, self.columns, self.policy)
        self.checkpoint("computed")
        staged = self.staging.save(index, done.frame, inputs, done.facts)
        self.checkpoint("staged")
        canary = canary_marks(reserved.frame)
        for column, charged in zip(self.columns, reserved.charged.charges, strict=True):
            diverged = self._commit(reserved.charged.ids, charged, done.released[column.name], canary)
            if diverged:
                self.staging.discard(index)
                msg = f"column {column.name!r}: {diverged} records, computed again, gave other bytes than committed"
                hint = "the first commit is the release: restore the published files, or take a new release name"
                raise LedgerError(f"{msg}; nothing was published", hint)
            self.checkpoint("committed")
        log.info("shard %d: %d rows staged and committed", index, reserved.frame.height)
        return staged

    def _commit(self, ids: pa.Array, charged: Charge, released: Released, canary: npt.NDArray[np.bool_]) -> int:
        """Commit one column of a shard and return how many of its rows differ from what was committed before."""
        digests = pa.array(_kernel.digests(released.text))
        drawn = released.positions.to_numpy(zero_copy_only=False)
        outcome = self.ledger.commit(
            self.job, charged.ref, ids, charged.idem_keys, digests, positions=drawn, canary=canary
        )
        return int((outcome == CommitOutcome.DIVERGED).sum())

    def _refuse_changed(self, result: ReserveResult) -> None:
        changed = result.counts[Outcome.CHANGED.name]
        if not changed:
            return
        self.give_back()
        msg = f"the texts of {changed} records changed since this release took them; it holds one text per record id"
        hint = "release the changed data under a new name, at full spend; nothing of these rows was charged"
        raise InputError(msg, hint)

    def _inputs(self, reserved: Reserved) -> str:
        """Hash what a staged shard depends on: identities (keyed hashes of the texts), ids, kept values, order."""
        clear = reserved.frame.select(self.policy.id, *self.policy.keep, CANARY)
        with seam("hashing kept columns", DPTextError, _DEFECT):
            buffer = io.BytesIO()
            clear.write_ipc(buffer)
        return digest_of(buffer.getvalue(), *reserved.charged.identities())
