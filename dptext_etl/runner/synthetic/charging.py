"""Charge every record of a synthetic table, then sum it; the noise is drawn only when the whole table is pinned.

Records are charged and summed frame by frame, in this process or on executors; partial sums add up in any order.
Identities cover text and label. Specification: docs/spec/synthetic.md#runs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow
from dptext_etl.column import keyed_digests
from dptext_etl.errors import DPTextError, InputError, LedgerError, seam
from dptext_etl.families.aggregate import Partial, Statistic, partial_sum
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import CommitOutcome, Ledger, Outcome, ReleaseRef, Scope
from dptext_etl.ledger.types import LEFT_OUT
from dptext_etl.policy import Policy
from dptext_etl.runner.anchoring import remember
from dptext_etl.runner.preview import Expected
from dptext_etl.runner.progress import Checkpoint, Meter
from dptext_etl.runner.shard.attempt import pin_whole_table, refuse_other_rows
from dptext_etl.runner.shard.charging import texts_of
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.synthetic.attempt import SyntheticAttempt
from dptext_etl.runner.synthetic.preflight import Counts, charge_of, identities_of, refuse_changed, refuse_unpublishable
from dptext_etl.storage import Storage

_DEFECT = "this is a defect; its message is left out, because it may quote a text. Nothing was published"


@dataclass(frozen=True)
class Charged:
    """A table whose records are charged, and whose noise is not drawn yet."""

    partial: Partial = field(repr=False)  # the exact sums, and the digest of the records: private
    rows: int  # the number of records that were summed
    answers: Counter[str]  # records by the answer of the ledger


class Records(Protocol):
    """The records of a synthetic table, as an engine holds them: their ids are checked, and those that count chosen."""

    counts: Counts

    def look(self, ref: ReleaseRef, ledger: Ledger | None) -> Expected:
        """Count what a run will find in all records; no release is pinned yet."""

    def charge(self, frames: Frames, meter: Meter) -> Charged:
        """Charge and sum all records."""

    def agree(self, frames: Frames, digest: str) -> bool:
        """Return whether all that is committed of the release was committed with this table."""

    def commit(self, frames: Frames, digest: str, charged: Charged) -> None:
        """Commit every record that was summed with the digest of the table, keyed per record."""


class Summed(NamedTuple):
    """What became of the records of a frame."""

    answers: Counter[str]  # by the answer of the ledger
    ids: pa.Array  # canonical ids of the records that were summed
    identities: pa.Array  # their identities, fixed-size binary (32)
    persons: npt.NDArray[np.uint64]  # hashes of their persons; none without persons
    partial: Partial


@dataclass(frozen=True)
class Frames:
    """Charges, sums, and commits the frames of an attempt, in this process or on another machine."""

    policy: Policy
    key: _kernel.ReleaseKey = field(repr=False)
    ledger: Ledger
    ref: ReleaseRef
    job: str  # the name of the attempt in the ledger
    staging: Staging
    memory: Storage  # what all releases share; it remembers the head of the ledger
    checkpoint: Checkpoint

    @property
    def statistic(self) -> Statistic:
        return self.policy.statistic

    def charge(self, frame: pl.DataFrame, index: int) -> Summed:
        """Charge the records of a frame, then sum those that are within the cap and not forgotten."""
        policy, statistic = self.policy, self.statistic
        with seam("charging the records", DPTextError, _DEFECT):
            ready = charge_of(policy, self.key, self.ref, frame)
            ids, subjects, (asked,) = ready.ids, ready.subjects, ready.charges
        result = self.ledger.reserve(self.job, Scope.of(policy), policy.cap, ids, subjects, [asked], forms=ready.forms)
        remember(self.ledger, self.memory, policy, self.job)
        self.checkpoint("reserved")
        if changed := result.counts[Outcome.CHANGED.name]:
            refuse_changed(changed)
        left_out = np.isin(result.outcome, LEFT_OUT)
        listed = left_out & (result.outcome != Outcome.FORGOTTEN)  # no id of theirs
        units = None if subjects is None else self.ledger.unit_hashes(subjects.filter(to_arrow(listed)))
        self.staging.quarantine(index, frame[[policy.id]].filter(pl.Series(listed)), units)
        with seam("summing the records", DPTextError, _DEFECT):
            mask = to_arrow(~left_out)
            ids, (texts, labels) = ids.filter(mask), self._contents(frame)
            theirs = None if labels is None else labels.filter(mask)
            partial = partial_sum(statistic, self.key, ids, texts.filter(mask), theirs)
            persons = np.zeros(0, np.uint64)
            if subjects is not None:
                persons = pl.Series(subjects.filter(mask), dtype=pl.String).hash().to_numpy()
        return Summed(Counter(result.counts), ids, asked.idem_keys.filter(mask), persons, partial)

    def identified(self, frame: pl.DataFrame) -> tuple[pa.Array, pa.Array]:
        """Return the canonical ids of records and their identities."""
        ids = canonical_ids(frame[self.policy.id].to_arrow())
        return ids, identities_of(self.policy, self.key, ids, frame)

    def digest(self, frame: pl.DataFrame) -> bytes:
        """Return the keyed digest of records, 32 bytes."""
        texts, labels = self._contents(frame)
        given = pa.nulls(frame.height, pa.string()) if labels is None else labels
        return _kernel.table_digest(self.key, canonical_ids(frame[self.policy.id].to_arrow()), texts, given)

    def agree(self, ids: pa.Array, digest: str) -> bool:
        """Return whether what is committed of these records was committed with this table."""
        held = self.ledger.committed(self.ref, ids).digests
        return not pc.any(pc.not_equal(self._digests(ids, digest), held)).as_py()

    def commit(self, ids: pa.Array, identities: pa.Array, digest: str) -> None:
        outcome = self.ledger.commit(self.job, self.ref, ids, identities, self._digests(ids, digest), positions=1)
        if (outcome == CommitOutcome.DIVERGED).any():
            raise LedgerError("another run committed another table meanwhile; nothing was published", "run again")
        self.checkpoint("committed")

    def _contents(self, frame: pl.DataFrame) -> tuple[pa.Array, pa.Array | None]:
        synthetic = self.policy.synthetic
        assert synthetic is not None  # noqa: S101  (an attempt has none without it)
        labels = None if synthetic.labels is None else texts_of(frame, synthetic.labels.column)
        return texts_of(frame, synthetic.column), labels

    def _digests(self, ids: pa.Array, digest: str) -> pa.Array:
        return keyed_digests(self.key, ids, pa.repeat(pa.scalar(digest, pa.large_string()), len(ids)))


def charge(attempt: SyntheticAttempt, frames: Frames, records: Records, meter: Meter) -> Charged:
    """Charge and sum all records, and pin the table; give all reservations back where it is refused."""
    try:
        charged = records.charge(frames, meter)
        refuse_other_rows(records.counts.wanted, sum(charged.answers.values()))
        over = charged.answers[Outcome.OVER_CAP.name]
        refuse_unpublishable(attempt.policy, records.counts.nameless, charged.rows, over)
        pin_whole_table(frames.ledger, frames.ref, charged.rows, charged.partial.digest.hex())
    except BaseException:
        attempt.give_back(frames.ledger)  # the sums are gone, and no noise was drawn for them
        raise
    attempt.remember(frames.ledger)
    frames.checkpoint("pinned")
    return charged


def refuse_crowded(persons: npt.NDArray[np.uint64], most: int) -> None:
    """Refuse persons with more records than were chosen before: their rows changed since."""
    if len(persons) and np.unique(persons, return_counts=True)[1].max() > most:
        msg = f"the source changed while it was read: a person has more records than per_subject = {most} now"
        raise InputError(msg, "run again when no one writes to it")
