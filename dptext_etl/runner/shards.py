"""One shard: plant, charge, compute, stage, commit; in this order, so that no text is scored before it is paid for."""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.checks.canaries import CANARY, CanaryPlan, plant
from dptext_etl.checks.leaks import count_copies
from dptext_etl.column import release
from dptext_etl.errors import InputError, LedgerError, seam
from dptext_etl.ledger import CommitOutcome, Ledger, Outcome, ReserveResult, Scope
from dptext_etl.policy import Policy
from dptext_etl.runner.amounts import spent
from dptext_etl.runner.charging import Charged, Column, charge, texts_of
from dptext_etl.runner.roles import output_columns
from dptext_etl.runner.staging import Facts, StagedShard, Staging, digest_of

log = logging.getLogger("dptext_etl.runner")

Checkpoint = Callable[[str], None]
"""Called with the name of every step that is done; tests stop the process there."""


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

    def reserve(
        self, frame: pl.DataFrame, canaries: CanaryPlan, *, count: bool = True
    ) -> tuple[pl.DataFrame, Charged, npt.NDArray[np.uint8]]:
        """Plant a shard's canary rows and charge its worst case.

        Args:
            frame: The raw shard.
            canaries: Its canary rows.
            count: Add the outcomes to those of the run.

        Returns:
            The planted shard, its charges, and an `Outcome` per row.

        Raises:
            InputError: Texts changed under record ids that the release holds (amendment A5).
        """
        planted = plant(frame, canaries, self.policy)
        self.checkpoint("planted")
        by = self.policy.subject if self.policy.unit == "subject" else None
        charged = charge(planted, self.columns, self.policy.id, by)
        canary = _canary(planted)
        result = self.ledger.reserve(
            self.job,
            Scope.of(self.policy),
            self.policy.cap,
            charged.ids,
            charged.subjects,
            charged.charges,
            canary=canary,
        )
        self.checkpoint("reserved")
        if count:
            self.outcomes.update(ReserveResult(result.outcome[~canary]).counts)
        self._refuse_changed(result.outcome)
        return planted, charged, result.outcome

    def release(self, frame: pl.DataFrame, canaries: CanaryPlan, *, count: bool = True) -> StagedShard:
        """Take a raw shard to a staged and committed one; what an earlier attempt finished is not done again.

        Raises:
            InputError: Changed texts, or no room to stage.
            LedgerError: Computed again, a record gave other bytes than it was committed with.
        """
        planted, charged, outcome = self.reserve(frame, canaries, count=count)
        chosen = outcome != Outcome.OVER_CAP
        self.staging.quarantine(canaries.shard, planted.filter(~chosen).select(self.policy.id))
        if not chosen.all():
            planted, charged = planted.filter(chosen), charged.take(chosen)
        inputs = self._inputs(planted, charged)
        if bool((outcome[chosen] == Outcome.COMMITTED).all()):
            staged = self.staging.find(canaries.shard, inputs)
            if staged is not None:
                log.info("shard %d: staged and committed before", canaries.shard)
                return staged
        return self._compute(planted, charged, canaries.shard, inputs)

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

    def _compute(self, planted: pl.DataFrame, charged: Charged, index: int, inputs: str) -> StagedShard:
        self.computed = True
        canary = _canary(planted)
        texts, positions = {}, {}
        for column in self.columns:
            released = release(texts_of(planted, column.name), charged.ids, column.policy)
            texts[column.name], positions[column.name] = released.text, released.positions
        self.checkpoint("computed")
        out = planted.select(*output_columns(self.policy), CANARY).with_columns(
            pl.Series(name, text, dtype=pl.String) for name, text in texts.items()
        )
        counts, spends = spent(self.columns, texts, positions, canary)
        copies = {column.name: self._copies(planted, column.name, texts, positions) for column in self.columns}
        staged = self.staging.save(index, out, inputs, Facts(counts, spends, copies))
        self.checkpoint("staged")
        for column, item in zip(self.columns, charged.charges, strict=True):
            self._commit(column, charged.ids, item.idem_keys, texts[column.name], positions[column.name], canary, index)
            self.checkpoint("committed")
        log.info("shard %d: %d rows staged and committed", index, planted.height)
        return staged

    def _copies(
        self, planted: pl.DataFrame, name: str, texts: Mapping[str, pa.Array], positions: Mapping[str, pa.Array]
    ) -> dict[str, Any]:
        """Count texts that came back as they were; canary rows are not looked at."""
        rows = pl.DataFrame(
            {
                "raw": planted[name],
                "released": pl.Series(texts[name], dtype=pl.String),
                "draws": pl.Series(positions[name]),
            }
        ).filter(~planted[CANARY])
        return count_copies(rows["raw"], rows["released"], rows["draws"]).as_dict()

    def _commit(
        self,
        column: Column,
        ids: pa.Array,
        idem_keys: pa.Array,
        text: pa.Array,
        positions: pa.Array,
        canary: npt.NDArray[np.bool_],
        index: int,
    ) -> None:
        digests = pa.array(_kernel.digests(text))
        drawn = positions.to_numpy(zero_copy_only=False)
        outcome = self.ledger.commit(self.job, column.ref, ids, idem_keys, digests, positions=drawn, canary=canary)
        diverged = int((outcome == CommitOutcome.DIVERGED).sum())
        if diverged:
            self.staging.discard(index)
            msg = f"column {column.name!r}: {diverged} records, computed again, gave other bytes than those committed; nothing was published"
            raise LedgerError(
                msg, "the first commit is the release: restore what was staged or published, or take a new release name"
            )

    def _refuse_changed(self, outcome: npt.NDArray[np.uint8]) -> None:
        changed = int((outcome == Outcome.CHANGED).sum())
        if not changed:
            return
        self.give_back()
        msg = f"the texts of {changed} records changed since this release took them; a release holds one text per record id"
        raise InputError(
            msg, "release the changed data under a new release name (full spend); nothing of these rows was charged"
        )

    def _inputs(self, planted: pl.DataFrame, charged: Charged) -> str:
        """Hash what a staged shard depends on: identities (keyed hashes of the texts), ids, kept values, order."""
        clear = planted.select(self.policy.id, *self.policy.keep, CANARY)
        with seam("hashing kept columns"):
            buffer = io.BytesIO()
            clear.write_ipc(buffer)
        return digest_of(buffer.getvalue(), *charged.identities())


def _canary(frame: pl.DataFrame) -> npt.NDArray[np.bool_]:
    marks: npt.NDArray[np.bool_] = frame[CANARY].to_numpy()
    return marks
