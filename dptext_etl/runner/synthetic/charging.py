"""Charge every record of a synthetic table, then sum it; the noise is drawn only when the whole table is pinned.

Identities cover text and label. Specification: docs/spec/synthetic.md#runs.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel, keys
from dptext_etl.arrays import to_arrow
from dptext_etl.column import INFINITE
from dptext_etl.delta_policy import refuse_more_records
from dptext_etl.errors import DPTextError, InputError, KeyReferenceError, LedgerError, seam
from dptext_etl.families.aggregate import Partial, Statistic, partial_sum
from dptext_etl.guarantee import ADDITIVE
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Charge, Ledger, Outcome, ReleaseRef, ReserveResult, Scope
from dptext_etl.ledger.terms import LEFT_OUT
from dptext_etl.policy import Policy
from dptext_etl.runner.anchoring import remember, require_same_ledger
from dptext_etl.runner.checkpoint import Checkpoint
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Meter
from dptext_etl.runner.publish.minimum_rows import require_enough
from dptext_etl.runner.shard.attempt import pin_whole_table, refuse_other_rows, refuse_over_cap
from dptext_etl.runner.shard.charging import subjects_of, texts_of
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source import identity, per_subject
from dptext_etl.runner.source.arranging import forms_of
from dptext_etl.runner.source.cutting import pieces
from dptext_etl.synthetic import CLAIM, Synthetic, no_rows

log = logging.getLogger("dptext_etl.runner")

_DEFECT = "this is a defect; its message is left out, because it may quote a text. Nothing was published"
_COUNTED = pa.schema([("id", pa.large_string()), ("identity", pa.binary(32))])


@dataclass(frozen=True)
class Attempt:
    """One attempt at a synthetic table.

    Attributes:
        policy: The policy of the run.
        synthetic: What it says of the table.
        layout: The places of the run.
        key: The release key.
        accept_lower_cap: Whether the pinned cap may be lowered to that of the policy.
        job: The name of this attempt in the ledger.
    """

    policy: Policy
    synthetic: Synthetic
    layout: Layout
    key: _kernel.ReleaseKey = field(repr=False)
    accept_lower_cap: bool = False
    job: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, policy: Policy, partition: str | None, *, accept_lower_cap: bool = False) -> Attempt:
        """Find the places and the key of a run."""
        if policy.synthetic is None:
            raise no_rows(policy.dataset)
        secret = keys.resolve(policy.key)
        if policy.publish and secret.published:
            msg = "the key is printed in documents, so anyone can undo what is released under it"
            raise KeyReferenceError(msg, 'run `dptext key new PATH` and write key = "file:PATH"')
        names = (policy.dataset, policy.synthetic.column, policy.release, policy.statistic.cfg())
        key, layout = _kernel.ReleaseKey(secret, *names), Layout.of(policy, partition)
        return cls(policy, policy.synthetic, layout, key, accept_lower_cap)

    @property
    def statistic(self) -> Statistic:
        """The statistic of the column."""
        return self.policy.statistic

    def register(self, ledger: Ledger, id_type: str) -> ReleaseRef:
        """Pin the cap and the release."""
        policy, statistic = self.policy, self.statistic
        require_same_ledger(ledger, self.layout, policy)
        if policy.cap is not None:
            ledger.agree_on_cap(Scope.of(policy), policy.cap, lowering=self.accept_lower_cap)
        ref = ledger.pin_release(
            dataset=policy.dataset,
            column=self.synthetic.column,
            release=policy.release,
            cfg=statistic.cfg(),
            id_type=id_type,
            mechanism=self.synthetic.mechanism.name,
            guarantee=CLAIM,
            worst_case=statistic.charge(CLAIM),
            publishable=True,
            configuration=self.synthetic.configuration(statistic),
            artifact_hashes={"corpus": statistic.corpus.sha256},
        )
        self.remember(ledger)
        return ref

    def remember(self, ledger: Ledger) -> None:
        """Store the head of the ledger, durably."""
        remember(ledger, self.layout.memory.shelf(), self.policy)

    def who_counts(self, rows: pl.LazyFrame, total: int, nameless: int) -> tuple[pl.LazyFrame, int]:
        """Leave out records without a person, and those of a person beyond the first; refuse more than delta is for."""
        wanted = total - nameless
        rows = identity.with_persons(rows, self.policy) if nameless else rows
        if self.policy.unit == "subject":
            most, scratch = self.synthetic.per_subject, self.layout.staging
            rows, wanted = per_subject.at_most(rows, self.policy, most, scratch, self._order)
        refuse_more_records(wanted, self.synthetic.n_rec, f"column {self.synthetic.column!r}")
        return rows, wanted

    def _order(self, ids: pa.Array) -> pl.Series:
        return pl.Series(pa.array(_kernel.order_keys(self.key, ids)).cast(pa.binary()))


class Counted:
    """The ids and identities of the records that were summed, in a file without a name: it ends with the process."""

    def __init__(self, folder: Path) -> None:
        with seam("keeping the ids of a run", InputError, "is there room in the staging folder?"):
            self._file = TemporaryFile(dir=folder)  # noqa: SIM115  (it lives as long as this object)
            self._writer = pa.ipc.new_stream(self._file, _COUNTED)
        self.rows = 0

    def add(self, ids: pa.Array, identities: pa.Array) -> None:
        """Take the records of a batch."""
        columns = [ids.cast(pa.large_string()), identities.cast(pa.binary(32))]
        with seam("keeping the ids of a run", InputError, "is there room in the staging folder?"):
            self._writer.write_batch(pa.record_batch(columns, schema=_COUNTED))
        self.rows += len(ids)

    def each(self) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Yield ids and identities in batches, as often as this is asked; nothing is added afterwards."""
        self._writer.close()
        self._file.seek(0)
        for batch in pa.ipc.open_stream(self._file):
            yield batch.column("id"), batch.column("identity")


@dataclass(frozen=True)
class Charged:
    """A table whose records are charged, and whose noise is not drawn yet.

    Attributes:
        partial: The exact sums, and the digest of the records: private.
        counted: The records.
        answers: Records by the answer of the ledger.
        persons: Hashes of the persons of the records that count, uint64, shape (records,); none without persons.
    """

    partial: Partial = field(repr=False)
    counted: Counted = field(repr=False)
    answers: Counter[str]
    persons: npt.NDArray[np.uint64] = field(repr=False)


def charge(  # noqa: PLR0917
    attempt: Attempt,
    ledger: Ledger,
    ref: ReleaseRef,
    rows: pl.LazyFrame,
    staging: Staging,
    meter: Meter,
    wanted: int,
    nameless: int,
    checkpoint: Checkpoint,
) -> Charged:
    """Charge and sum all records, and pin the table; give all reservations back where it is refused."""
    try:
        charged = _charged(attempt, ledger, ref, rows, staging, meter, checkpoint)
        refuse_other_rows(wanted, sum(charged.answers.values()))
        over = charged.answers[Outcome.OVER_CAP.name]
        if attempt.policy.on_cap == "refuse":
            refuse_over_cap(over)
        require_enough(
            attempt.policy, {"released": charged.counted.rows, "quarantined": over, "without_subject": nameless}
        )
        _require_any(charged.counted.rows)
        _refuse_crowded(charged.persons, attempt.synthetic.per_subject)
        pin_whole_table(ledger, ref, charged.counted.rows, charged.partial.digest.hex())
    except BaseException:
        _give_back(attempt, ledger)
        raise
    attempt.remember(ledger)
    checkpoint("pinned")
    return charged


def _charged(  # noqa: PLR0917
    attempt: Attempt,
    ledger: Ledger,
    ref: ReleaseRef,
    rows: pl.LazyFrame,
    staging: Staging,
    meter: Meter,
    checkpoint: Checkpoint,
) -> Charged:
    policy, statistic, labels = attempt.policy, attempt.statistic, attempt.synthetic.labels
    counted, answers, partial = Counted(attempt.layout.staging), Counter[str](), Partial.zero(statistic)
    staging.shelf.remove(*staging.shelf.found("quarantine-*"))  # of other batches
    persons = [np.zeros(0, np.uint64)]
    for index, frame in enumerate(pieces(rows, policy.shard_rows, policy.shard_bytes)):
        with seam("charging the records", DPTextError, _DEFECT):
            ids = canonical_ids(frame[policy.id].to_arrow())
            identities = identities_of(attempt, ids, frame)
            asked = Charge(ref, identities, np.ones(frame.height, np.uint32), _spends(statistic, frame.height))
            subjects = subjects_of(frame, policy)
        scope, forms = Scope.of(policy), forms_of(frame.schema, policy)
        result = ledger.reserve(attempt.job, scope, policy.cap, ids, subjects, [asked], forms=forms)
        attempt.remember(ledger)
        checkpoint("reserved")
        _refuse_changed(result)
        answers.update(result.counts)
        left_out = np.isin(result.outcome, LEFT_OUT)
        staging.quarantine(index, frame[[policy.id]].filter(pl.Series(left_out)))
        with seam("summing the records", DPTextError, _DEFECT):
            mask = to_arrow(~left_out)
            ids, texts = ids.filter(mask), texts_of(frame, attempt.synthetic.column).filter(mask)
            theirs = None if labels is None else texts_of(frame, labels.column).filter(mask)
            partial += partial_sum(statistic, attempt.key, ids, texts, theirs)
            counted.add(ids, identities.filter(mask))
            if subjects is not None:
                persons.append(pl.Series(subjects.filter(mask), dtype=pl.String).hash().to_numpy())
        meter.add(frame.height)
    return Charged(partial, counted, answers, np.concatenate(persons))


def identities_of(attempt: Attempt, ids: pa.Array, frame: pl.DataFrame) -> pa.Array:
    """Return the identities of records, fixed-size binary (32): they cover text and label, whatever is null."""
    synthetic, nothing = attempt.synthetic, pl.lit("n")
    text = pl.col(synthetic.column)
    label = pl.lit(None, pl.String) if synthetic.labels is None else pl.col(synthetic.labels.column)
    length = label.str.len_bytes().cast(pl.String)
    parts = (
        pl.when(label.is_null()).then(nothing).otherwise(pl.concat_str(length, pl.lit(":"), label)),
        pl.when(text.is_null()).then(nothing).otherwise(pl.concat_str(pl.lit("t"), text)),
    )
    both = frame.select(pl.concat_str(*parts)).to_series().to_arrow()
    return pa.array(_kernel.idem_keys(attempt.key, ids, both))


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


def _refuse_crowded(persons: npt.NDArray[np.uint64], most: int) -> None:
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
