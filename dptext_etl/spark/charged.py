"""Charge a ledger inside a SQL function: reserve, compute, commit, and only then return.

Specification: docs/spec/privacy.md#ledger-in-sql.

Every step is idempotent: if a task is retried, runs twice by speculation or runs again later, it reserves nothing new,
computes the same bytes and finds them committed. This holds only for reproducible mechanisms, so others are refused.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from functools import partial

import numpy as np
import pyarrow as pa

from dptext_etl import _kernel, column
from dptext_etl.engines.spark.worker_policy import CarriedLedger
from dptext_etl.errors import InputError, LedgerError
from dptext_etl.id_forms import IdForm, arranged, normalized
from dptext_etl.ledger import Charge, CommitOutcome, IdForms, Ledger, Outcome, ReleaseRef, ReserveResult
from dptext_etl.ledger.head_files import Heads, folder_of
from dptext_etl.ledger.retrying import patient
from dptext_etl.ledger.terms import LEFT_OUT
from dptext_etl.policy import ColumnPolicy


class Account:
    """Charge the rows of a column policy to an open ledger."""

    def __init__(self, policy: ColumnPolicy, ledger: CarriedLedger) -> None:
        self._policy = policy
        self._terms = ledger
        self._ledger = Ledger.open(ledger.url, ledger.id_key, create=False)
        if self._ledger.ledger_id != ledger.ledger_id:
            msg = "the ledger that this worker finds is another one than the function was registered with"
            raise LedgerError(msg, "register the function again, where driver and workers see one ledger")
        self._refs: dict[str, ReleaseRef] = {}
        self._scope = ledger.scope(policy.dataset)
        self._heads = Heads(self._ledger, folder_of(ledger.anchors))
        self._heads.require(self._scope)

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    @property
    def per_subject(self) -> bool:
        """Return True if rows are charged to their subjects."""
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
        return patient(partial(self._charged, texts, ids, subjects, forms, spend))

    def _charged(
        self, texts: pa.Array, ids: pa.Array, subjects: pa.Array | None, forms: IdForms, spend: bool
    ) -> pa.Array:
        self._heads.require(self._scope)  # workers live long, and so do streams
        policy, ref = self._policy, self._ref(forms.record.kind)
        mechanism = policy.mechanism
        identities = pa.array(_kernel.idem_keys(policy.release_key(), ids, texts, policy.nonce))
        worst = column.worst_case(mechanism, mechanism.positions(texts), texts)
        job = f"spark-{secrets.token_hex(8)}"
        result = self._ledger.reserve(
            job,
            self._scope,
            self._terms.cap,
            ids,
            subjects,
            [Charge(ref, identities, *worst)],
            on_cap=self._terms.on_cap,
            forms=forms,
        )
        self._refuse_changed(job, result)
        self._heads.remember(self._scope, policy.release)
        fits = pa.array(~np.isin(result.outcome, LEFT_OUT))
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
        _refuse_diverged(int((outcome == CommitOutcome.DIVERGED).sum()))
        paid = column.with_spends(released, mechanism) if spend else released.text
        return _spread(paid, fits)

    def _ref(self, id_type: str) -> ReleaseRef:
        if id_type not in self._refs:
            self._refs[id_type] = self._ledger.register(self._policy, id_type)
        return self._refs[id_type]

    def _refuse_changed(self, job: str, result: ReserveResult) -> None:
        changed = result.counts[Outcome.CHANGED.name]
        if not changed:
            return
        with suppress(LedgerError):  # otherwise the reservation stays charged, because another task relies on it
            self._ledger.abort(job, compute_never_started=True)
        msg = f"the texts of {changed} records changed since this release took them; it holds one text per record id"
        raise InputError(
            msg,
            "no row of the batch was charged; release changed data, or data under another key, under a new name, at "
            "full spend",
        )


def _refuse_diverged(diverged: int) -> None:
    if diverged:
        msg = f"{diverged} records, computed again, gave other bytes than committed; nothing of the batch is returned"
        raise LedgerError(msg, "the first commit is the release: read it where it was written, or take a new name")


def _spread(released: pa.Array, fits: pa.Array) -> pa.Array:
    """Put the rows under the cap back into their places, with nulls elsewhere."""
    if len(released) == len(fits):
        return released
    places = np.cumsum(fits.to_numpy(zero_copy_only=False)) - 1
    return released.take(pa.array(places, mask=~fits.to_numpy(zero_copy_only=False)))
