"""Charge every record of a synthetic table, then sum it; the noise is drawn only when the whole table is pinned.

Records are charged and summed frame by frame, in this process or on executors; partial sums add up in any order.
Identities cover text and label. Specification: docs/spec/synthetic.md#runs.
"""

from __future__ import annotations

import logging
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
from dptext_etl.column import INFINITE, keyed_digests
from dptext_etl.errors import DPTextError, InputError, LedgerError, seam
from dptext_etl.families.aggregate import Partial, Statistic, partial_sum
from dptext_etl.guarantee import ADDITIVE
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Charge, CommitOutcome, Ledger, Outcome, ReleaseRef, ReserveResult, Scope
from dptext_etl.ledger.types import LEFT_OUT
from dptext_etl.policy import Policy
from dptext_etl.runner.anchoring import remember
from dptext_etl.runner.checkpoint import Checkpoint
from dptext_etl.runner.progress import Meter
from dptext_etl.runner.publish.publication import require_enough
from dptext_etl.runner.shard.attempt import pin_whole_table, refuse_other_rows, refuse_over_cap
from dptext_etl.runner.shard.charging import subjects_of, texts_of
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.arranging import forms_of
from dptext_etl.runner.synthetic.attempt import Attempt
from dptext_etl.storage import Storage
from dptext_etl.synthetic import CLAIM

log = logging.getLogger("dptext_etl.runner")

DEFECT = "this is a defect; its message is left out, because it may quote a text. Nothing was published"


@dataclass(frozen=True)
class Charged:
    """A table whose records are charged, and whose noise is not drawn yet.

    Attributes:
        partial: The exact sums, and the digest of the records: private.
        rows: The number of records that were summed.
        answers: Records by the answer of the ledger.
    """

    partial: Partial = field(repr=False)
    rows: int
    answers: Counter[str]


class Records(Protocol):
    """The records of a synthetic table, as an engine holds them: their ids are checked, and those that count chosen."""

    @property
    def total(self) -> int:
        """Return the number of rows of the source."""

    @property
    def nameless(self) -> int:
        """Return the number of rows that are left out because they have no subject."""

    @property
    def wanted(self) -> int:
        """Return the number of records that count."""

    def charge(self, book: Book, meter: Meter) -> Charged:
        """Charge and sum all records."""

    def agree(self, book: Book, digest: str) -> bool:
        """Return whether all that is committed of the release was committed with this table."""

    def commit(self, book: Book, digest: str, charged: Charged) -> None:
        """Commit every record that was summed with the digest of the table, keyed per record."""


class Summed(NamedTuple):
    """What became of the records of a frame.

    Attributes:
        answers: Records by the answer of the ledger.
        ids: Canonical ids of those that were summed.
        identities: Their identities, fixed-size binary (32).
        persons: Hashes of their persons, uint64; none without persons.
        partial: Their sums.
    """

    answers: Counter[str]
    ids: pa.Array
    identities: pa.Array
    persons: npt.NDArray[np.uint64]
    partial: Partial


@dataclass(frozen=True)
class Book:
    """What charges, sums, and commits the frames of an attempt share, in this process or on another machine.

    Attributes:
        policy: The policy of the run.
        key: The release key.
        ledger: The ledger that is charged.
        ref: The pinned release.
        job: The name of the attempt in the ledger.
        staging: The folder where the table waits for the gates.
        memory: The place that all releases share; it remembers the head of the ledger.
        checkpoint: Called after every step.
    """

    policy: Policy
    key: _kernel.ReleaseKey = field(repr=False)
    ledger: Ledger
    ref: ReleaseRef
    job: str
    staging: Staging
    memory: Storage
    checkpoint: Checkpoint

    @property
    def statistic(self) -> Statistic:
        """The statistic of the column."""
        return self.policy.statistic

    def charge(self, frame: pl.DataFrame, index: int) -> Summed:
        """Charge the records of a frame, then sum those that are within the cap and not forgotten."""
        policy, statistic = self.policy, self.statistic
        with seam("charging the records", DPTextError, DEFECT):
            ids, identities = self.identified(frame)
            asked = Charge(self.ref, identities, np.ones(frame.height, np.uint32), _spends(statistic, frame.height))
            subjects = subjects_of(frame, policy)
        scope, forms = Scope.of(policy), forms_of(frame.schema, policy)
        result = self.ledger.reserve(self.job, scope, policy.cap, ids, subjects, [asked], forms=forms)
        remember(self.ledger, self.memory, policy, self.job)
        self.checkpoint("reserved")
        _refuse_changed(result)
        left_out = np.isin(result.outcome, LEFT_OUT)
        self.staging.quarantine(index, frame[[policy.id]].filter(pl.Series(left_out)))
        with seam("summing the records", DPTextError, DEFECT):
            mask = to_arrow(~left_out)
            ids, (texts, labels) = ids.filter(mask), self._contents(frame)
            theirs = None if labels is None else labels.filter(mask)
            partial = partial_sum(statistic, self.key, ids, texts.filter(mask), theirs)
            persons = np.zeros(0, np.uint64)
            if subjects is not None:
                persons = pl.Series(subjects.filter(mask), dtype=pl.String).hash().to_numpy()
        return Summed(Counter(result.counts), ids, identities.filter(mask), persons, partial)

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
        """Commit records with the digest of the table."""
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


def charge(attempt: Attempt, book: Book, records: Records, meter: Meter) -> Charged:
    """Charge and sum all records, and pin the table; give all reservations back where it is refused."""
    try:
        charged = records.charge(book, meter)
        refuse_other_rows(records.wanted, sum(charged.answers.values()))
        over = charged.answers[Outcome.OVER_CAP.name]
        if attempt.policy.on_cap == "refuse":
            refuse_over_cap(over)
        require_enough(
            attempt.policy, {"released": charged.rows, "quarantined": over, "without_subject": records.nameless}
        )
        _require_any(charged.rows)
        pin_whole_table(book.ledger, book.ref, charged.rows, charged.partial.digest.hex())
    except BaseException:
        _give_back(attempt, book.ledger)
        raise
    attempt.remember(book.ledger)
    book.checkpoint("pinned")
    return charged


def identities_of(policy: Policy, key: _kernel.ReleaseKey, ids: pa.Array, frame: pl.DataFrame) -> pa.Array:
    """Return the identities of records, fixed-size binary (32): they cover text and label, whatever is null."""
    synthetic, nothing = policy.synthetic, pl.lit("n")
    assert synthetic is not None  # noqa: S101  (an attempt has none without it)
    text = pl.col(synthetic.column)
    label = pl.lit(None, pl.String) if synthetic.labels is None else pl.col(synthetic.labels.column)
    length = label.str.len_bytes().cast(pl.String)
    parts = (
        pl.when(label.is_null()).then(nothing).otherwise(pl.concat_str(length, pl.lit(":"), label)),
        pl.when(text.is_null()).then(nothing).otherwise(pl.concat_str(pl.lit("t"), text)),
    )
    both = frame.select(pl.concat_str(*parts)).to_series().to_arrow()
    return pa.array(_kernel.idem_keys(key, ids, both))


def _spends(statistic: Statistic, rows: int) -> dict[str, np.ndarray]:
    spend = statistic.charge(CLAIM)
    amounts = {name: getattr(spend, name) for name in ADDITIVE}
    return {name: np.full(rows, INFINITE if amount == float("inf") else amount) for name, amount in amounts.items()}


def _refuse_changed(result: ReserveResult) -> None:
    changed = result.counts[Outcome.CHANGED.name]
    if changed:
        msg = (
            f"the texts or labels of {changed} records changed since this release took them; it holds one table, whole"
        )
        raise InputError(msg, "nothing was drawn; changed data, or another key, go under a new name, at full spend")


def refuse_crowded(persons: npt.NDArray[np.uint64], most: int) -> None:
    """Refuse persons with more records than were chosen before: their rows changed since."""
    if len(persons) and np.unique(persons, return_counts=True)[1].max() > most:
        msg = f"the source changed while it was read: a person has more than per_subject = {most} records now"
        raise InputError(msg, "run again when no one writes to it")


def _require_any(records: int) -> None:
    if not records:
        raise InputError("all records of the source were forgotten or are over the cap", "this run spent nothing")


def _give_back(attempt: Attempt, ledger: Ledger) -> None:
    """Give back what this attempt reserved: its sums are gone, and no noise was drawn for them."""
    try:
        given = ledger.abort(attempt.job, compute_never_started=True)
    except LedgerError:
        log.warning("reservations of this attempt stay charged: another run relies on them")
    else:
        log.info("%d reservations given back", given)
