"""Charge batches in steps: reserve, compute, commit. Runs and functions of queries share them.

In a function, an `Account` reserves, computes, and commits a batch, and only then returns it
(docs/spec/privacy.md#ledger-in-sql). Every step is idempotent: a batch that an engine evaluates again reserves nothing
new, computes the same bytes, and finds them committed. This holds only for reproducible mechanisms, so others are
refused before.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NoReturn, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from dptext_etl import _kernel, column
from dptext_etl.column import require_row_by_row
from dptext_etl.errors import InputError, LedgerError, counted
from dptext_etl.keys import IdForm, Normalization, arranged, normalized
from dptext_etl.ledger import anchor_files
from dptext_etl.ledger.charges import PreparedBatch
from dptext_etl.ledger.ledger import Ledger, PreparedCommit
from dptext_etl.ledger.storage.store import wait_for_ledger
from dptext_etl.ledger.types import EXCLUDED, U8, Charge, CommitOutcome, IdForms, Mask, Outcome, ReleaseRef, Scope
from dptext_etl.policy import Cap, ColumnPolicy, LedgerSpec, Policy

log = logging.getLogger("dptext_etl.runner")

_PROBED = 8  # records of a batch that are looked up first


@dataclass(frozen=True)
class ChargeSteps:
    """The steps around the computation of a batch, in the name of a job."""

    ledger: Ledger
    job: str
    scope: Scope
    cap: Cap | None
    release: str  # the name that the stored anchor lists
    anchors: LedgerSpec
    options: Mapping[str, str] | None = field(default=None, repr=False)  # of the anchor store

    @classmethod
    def of(cls, ledger: Ledger, job: str, policy: Policy, options: Mapping[str, str] | None = None) -> Self:
        options = options or policy.storage_options
        return cls(ledger, job, Scope.of(policy), policy.cap, policy.release, policy.ledger, options)

    def reserve(self, ready: PreparedBatch, forms: IdForms, **terms: Any) -> U8:
        """Reserve a batch, and store the anchor before any text is scored: it shows if the ledger is lost later."""
        outcome = self.ledger.reserve(self.job, self.scope, self.cap, ready, forms=forms, **terms)
        anchor_files.record(self.ledger, self.scope, self.release, self.anchors, self.options)
        return outcome

    def refuse_changed(self, changed: Mask) -> NoReturn:
        """Refuse records whose texts changed."""
        msg = f"the texts of {counted(int(changed.sum()), 'record')} changed since this release charged them"
        hint = "no row of the batch was charged; release changed data, or data under another key, under a new name"
        raise InputError(f"{msg}; it holds one text per record id", f"{hint}, at full spend")

    def compare(
        self, policy: ColumnPolicy, charge: Charge, ids: pa.Array, digests: pa.Array, draws: Any, **marks: Any
    ) -> PreparedCommit:
        """Have the ledger compare results, once it is sure that they were charged."""
        column.require_charged_draws(policy, charge.n_worst, draws)
        return self.ledger.examine(charge.ref, ids, charge.idem_keys, digests, positions=draws, **marks)

    def commit(self, ready: PreparedCommit) -> str | None:
        """Commit the results of a column, or say how many rows differ from committed ones."""
        diverged = int((self.ledger.commit(self.job, ready) == CommitOutcome.DIVERGED).sum())
        what = f"column {ready.results.ref.column!r}: {counted(diverged, 'record')}"
        return f"{what}, computed again, gave other bytes than committed" if diverged else None

    def give_back(self) -> None:
        """Give back the reservations of the job, because nothing was drawn. Others stay charged."""
        try:
            returned = self.ledger.abort(self.job, compute_never_started=True)
        except LedgerError:
            log.warning("reservations of this attempt stay charged: another run relies on them")
        else:
            log.info("%d reservations given back", returned)


class AccountTerms(LedgerSpec):
    """The ledger and the terms on which it is charged, as plain data that a query plan can carry to workers."""

    ledger_id: str  # name that the ledger got when it was made; a worker refuses a ledger of another name
    cap: Cap | None  # the cap of the scope, or None
    on_cap: Literal["quarantine", "refuse"]  # treatment of rows over the cap: null, or an error
    unit: Literal["subject", "record"]  # unit whose budget is charged
    normalize: tuple[Normalization, ...] = ()  # how subjects are spelled before they are hashed
    # the names of the columns of ids, by "record" and "subject", where they are known
    id_columns: dict[str, str] = Field(default_factory=dict)


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
        self._scope = Scope.under(policy.dataset, terms.cap, terms.unit)
        anchor_files.require_place(terms)
        anchor_files.require(self._ledger, self._scope, terms)

    def close(self) -> None:
        self._ledger.close()

    @property
    def per_subject(self) -> bool:
        return self._terms.unit == "subject"

    def arranged(self, ids: pa.Array, subjects: pa.Array | None) -> tuple[pa.Array, pa.Array | None, IdForms]:
        """Bring composite ids into the order of fields that the ledger pinned, and subjects into their normal form."""
        pinned = self._ledger.pinned_forms(self._scope, [self._policy.column or ""])
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
        policy, mechanism, id_type = self._policy, self._policy.mechanism, forms.record.kind
        if id_type not in self._refs:
            self._refs[id_type] = self._ledger.releases.register(policy, id_type)
        ref = self._refs[id_type]
        identities = pa.array(_kernel.idem_keys(policy.release_key(), ids, texts, policy.nonce))
        worst = column.worst_case(mechanism, mechanism.positions(texts), texts)
        job = f"spark-{secrets.token_hex(8)}"
        steps = ChargeSteps(self._ledger, job, self._scope, self._terms.cap, policy.release, self._terms)
        ready = self._ledger.make_ready(self._scope.unit, ids, subjects, [Charge(ref, identities, *worst)])
        # The release may hold just these texts: Spark evaluates a column twice that a filter names.
        if self._ledger.known(ref, ids.slice(0, _PROBED)).all():
            with self._ledger.rehearsal():
                self._ledger.agree_on_cap(self._scope, self._terms.cap)
            self._ledger.require_forms(self._scope, [policy.column or ""], forms)
            answer = self._ledger.judge(self._scope, self._terms.cap, ready)
            if ((answer.outcome == Outcome.COMMITTED) & ~answer.moved).all():
                released = column.release(texts, ids, policy)
                committed_digests = self._ledger.committed(ref, ids).digests
                if pc.all(pc.equal(pa.array(_kernel.digests(released.text)), committed_digests)).as_py():
                    return column.with_spends(released, mechanism) if spend else released.text
        outcome = steps.reserve(ready, forms, on_cap=self._terms.on_cap)
        if (changed := outcome == Outcome.CHANGED).any():
            steps.give_back()
            steps.refuse_changed(changed)
        chosen = ~np.isin(outcome, EXCLUDED)
        fits = pa.array(chosen)
        released = column.release(texts.filter(fits), ids.filter(fits), policy)
        charge = Charge(ref, identities.filter(fits), worst[0][chosen], {})
        drawn, digests = released.positions.to_numpy(zero_copy_only=False), pa.array(_kernel.digests(released.text))
        if diverged := steps.commit(steps.compare(policy, charge, ids.filter(fits), digests, drawn)):
            hint = "the first commit is the release: read it where it was written, or use a new name"
            raise LedgerError(f"{diverged}; nothing of the batch is returned", hint)
        paid = column.with_spends(released, mechanism) if spend else released.text
        # Put the rows under the cap back into their places, with nulls elsewhere
        if len(paid) == len(fits):
            return paid
        return paid.take(pa.array(np.cumsum(chosen) - 1, mask=~chosen))
