"""Charge batches of one column to a ledger, release them, and commit them: for engines that evaluate functions.

A batch is reserved, computed, committed, and only then returned (docs/spec/privacy.md#ledger-in-sql). Every step is
idempotent: a batch that an engine evaluates again reserves nothing new, computes the same bytes, and finds them
committed. This holds only for reproducible mechanisms, so others are refused before.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from dptext_etl import _kernel, column
from dptext_etl.column import require_row_by_row
from dptext_etl.errors import InputError, LedgerError, counted
from dptext_etl.id_forms import IdForm, Normalization, arranged, normalized
from dptext_etl.ledger import anchor_files
from dptext_etl.ledger.batch import PreparedBatch
from dptext_etl.ledger.ledger import Ledger
from dptext_etl.ledger.storage.store import wait_for_ledger
from dptext_etl.ledger.types import EXCLUDED, Charge, CommitOutcome, IdForms, Outcome, ReleaseRef, ReserveResult, Scope
from dptext_etl.policy import Cap, ColumnPolicy, LedgerSpec

_PROBED = 8  # records of a batch that are looked up first


class AccountTerms(LedgerSpec):
    """The ledger and the terms on which it is charged, as plain data that a query plan can carry to workers."""

    ledger_id: str  # name that the ledger got when it was made; a worker refuses a ledger of another name
    cap: Cap | None  # the cap of the scope, or None
    on_cap: Literal["quarantine", "refuse"]  # treatment of rows over the cap: null, or an error
    unit: Literal["subject", "record"]  # unit whose budget is charged
    normalize: tuple[Normalization, ...] = ()  # how subjects are spelled before they are hashed
    # the names of the columns of ids, by "record" and "subject", where they are known
    id_columns: dict[str, str] = Field(default_factory=dict)

    def scope(self, dataset: str) -> Scope:
        if self.cap is None:
            return Scope(dataset, unit=self.unit)
        return Scope(dataset, self.cap.period, self.cap.group, self.unit)


class Account:
    """Charge the rows of a column policy to an open ledger."""

    def __init__(self, policy: ColumnPolicy, terms: AccountTerms) -> None:
        require_row_by_row(policy)
        self._policy, self._terms = policy, terms
        self._ledger = Ledger.open(terms.url, terms.id_key, create=False)
        if self._ledger.ledger_id != terms.ledger_id:
            msg = "the ledger that this worker finds is another one than the function was registered with"
            raise LedgerError(msg, "register the function again, where driver and workers see one ledger")
        self._refs: dict[str, ReleaseRef] = {}
        self._scope = terms.scope(policy.dataset)
        anchor_files.require_place(terms)
        anchor_files.require(self._ledger, self._scope, terms)

    def close(self) -> None:
        self._ledger.close()

    @property
    def per_subject(self) -> bool:
        return self._terms.unit == "subject"

    def arranged(self, ids: pa.Array, subjects: pa.Array | None) -> tuple[pa.Array, pa.Array | None, IdForms]:
        """Bring composite ids into the order of fields that the ledger pinned, and subjects into their spelling."""
        pinned = self._ledger.pinned_forms(self._terms.scope(self._policy.dataset), [self._policy.column or ""])
        ids = arranged(ids, pinned.get("record"))
        if subjects is None:
            return ids, None, IdForms(IdForm.of(ids.type), columns=self._terms.id_columns)
        form = IdForm.of(subjects.type, self._terms.normalize)
        subjects = normalized(arranged(subjects, pinned.get("subject")), self._terms.normalize)
        return ids, subjects, IdForms(IdForm.of(ids.type), form, self._terms.id_columns)

    def charge(
        self, texts: pa.Array, ids: pa.Array, subjects: pa.Array | None, forms: IdForms, spend: bool
    ) -> pa.Array:
        """Charge a batch, release it and commit it; wait for other writers as long as the task lives."""
        return wait_for_ledger(partial(self._charged, texts, ids, subjects, forms, spend))

    def _charged(
        self, texts: pa.Array, ids: pa.Array, subjects: pa.Array | None, forms: IdForms, spend: bool
    ) -> pa.Array:
        anchor_files.require(self._ledger, self._scope, self._terms)  # workers live long, as do streams
        policy, ref = self._policy, self._ref(forms.record.kind)
        mechanism = policy.mechanism
        identities = pa.array(_kernel.idem_keys(policy.release_key(), ids, texts, policy.nonce))
        worst = column.worst_case(mechanism, mechanism.positions(texts), texts)
        job = f"spark-{secrets.token_hex(8)}"
        batch = (ids, subjects, [Charge(ref, identities, *worst)])
        ready = self._ledger.make_ready(self._scope.unit, *batch)
        if self._is_committed(ref, ids, ready, forms):
            released = column.release(texts, ids, policy)
            committed_digests = self._ledger.committed(ref, ids).digests
            if pc.all(pc.equal(pa.array(_kernel.digests(released.text)), committed_digests)).as_py():
                return column.with_spends(released, mechanism) if spend else released.text
        result = self._ledger.reserve(
            job, self._scope, self._terms.cap, *batch, on_cap=self._terms.on_cap, forms=forms, ready=ready
        )
        self._refuse_changed(job, result)
        anchor_files.record(self._ledger, self._scope, policy.release, self._terms)  # before anything is drawn
        fits = pa.array(~np.isin(result.outcome, EXCLUDED))
        released = column.release(texts.filter(fits), ids.filter(fits), policy)
        drawn = released.positions.to_numpy(zero_copy_only=False)
        column.require_charged_draws(policy, worst[0][fits.to_numpy(zero_copy_only=False)], drawn)
        outcome = self._ledger.commit(
            job,
            ref,
            ids.filter(fits),
            identities.filter(fits),
            pa.array(_kernel.digests(released.text)),
            positions=drawn,
        )
        diverged = int((outcome == CommitOutcome.DIVERGED).sum())
        if diverged:
            msg = f"{counted(diverged, 'record')}, computed again, gave other bytes than "
            msg += "committed; nothing of the batch is returned"
            raise LedgerError(msg, "the first commit is the release: read it where it was written, or use a new name")
        paid = column.with_spends(released, mechanism) if spend else released.text
        # Put the rows under the cap back into their places, with nulls elsewhere
        if len(paid) == len(fits):
            return paid
        places = np.cumsum(fits.to_numpy(zero_copy_only=False)) - 1
        return paid.take(pa.array(places, mask=~fits.to_numpy(zero_copy_only=False)))

    def _is_committed(self, ref: ReleaseRef, ids: pa.Array, ready: PreparedBatch, forms: IdForms) -> bool:
        """Return whether the release holds just these texts: Spark evaluates a column twice that a filter names."""
        if not self._ledger.known(ref, ids.slice(0, _PROBED)).all():
            return False
        with self._ledger.rehearsal():
            self._ledger.agree_on_cap(self._scope, self._terms.cap)
        self._ledger.require_forms(self._scope, [self._policy.column or ""], forms)
        answer = self._ledger.judge(self._scope, self._terms.cap, ready)
        return bool(((answer.outcome == Outcome.COMMITTED) & ~answer.moved).all())

    def _ref(self, id_type: str) -> ReleaseRef:
        if id_type not in self._refs:
            self._refs[id_type] = self._ledger.releases.register(self._policy, id_type)
        return self._refs[id_type]

    def _refuse_changed(self, job: str, result: ReserveResult) -> None:
        changed = result.counts[Outcome.CHANGED.name]
        if not changed:
            return
        with suppress(LedgerError):  # otherwise the reservation stays charged, because another task relies on it
            self._ledger.abort(job, compute_never_started=True)
        msg = f"the texts of {counted(changed, 'record')} changed since they "
        msg += "were released; a release holds one text per record id"
        raise InputError(
            msg,
            "no row of the batch was charged; release changed data, or data under another key, under a new name, at "
            "full spend",
        )
