"""Release batches in the Python workers of Spark, and charge a ledger first if the function has one.

A function in a plan holds only the JSON of `WorkerPolicy`. The first batch of a worker makes the policy from it, opens
the tables and resolves the references. Later batches and later queries find all of this in this module.

With a ledger, a batch is reserved, computed, committed, and only then returned (docs/spec/privacy.md#ledger-in-sql).
Every step is idempotent: if a task is retried, runs twice by speculation or runs again later, it reserves nothing new,
computes the same bytes and finds them committed. A batch that is committed already is only looked up. This holds only
for reproducible mechanisms, so others are refused.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl import _kernel, column, device
from dptext_etl.arrays import arrow_kind
from dptext_etl.column import require_row_by_row
from dptext_etl.engines.spark.gpus import take_gpu
from dptext_etl.engines.spark.worker_policy import WorkerLedger, WorkerPolicy
from dptext_etl.errors import DPTextError, InputError, KeyReferenceError, LedgerError, bare, counted, seam
from dptext_etl.id_forms import IdForm, arranged, normalized
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Charge, CommitOutcome, IdForms, Ledger, Outcome, PreparedBatch, ReleaseRef, ReserveResult
from dptext_etl.ledger.anchor_files import AnchorFiles
from dptext_etl.ledger.releases import RESTORE
from dptext_etl.ledger.storage.store import wait_for_ledger
from dptext_etl.ledger.types import LEFT_OUT
from dptext_etl.policy import ColumnPolicy

SPEND = pa.struct(
    {"text": pa.string(), "positions": pa.int32(), "epsilon": pa.float64(), "delta": pa.float64()}.items()
)
"""Type of a released column with `spend=True`."""
SPEND_SQL = "struct<text: string, positions: int, epsilon: double, delta: double>"

_DEFECT = "this is a defect; its message is not repeated, because it may quote a text"
_PANDAS = "a column holds strings, or ids of one allowed type; the library's message is not repeated"
_PROBED = 8
"""Records of a batch that are looked up first."""
_NAMES = ("text", "id", "subject")
_CALL = (
    "call name(text, id), or name(text, id, subject) where a ledger charges subjects; DESCRIBE FUNCTION name says which"
)
_SWAPPED = "the order of arguments is (text, id, subject); check that no two of them are swapped"


@dataclass(frozen=True)
class FunctionState:
    policy: ColumnPolicy  # with artifacts on this machine
    spend: bool  # return the struct
    account: Account | None


@device.drops_with_gpu
@lru_cache(maxsize=64)
def function_state(policy_json: str) -> FunctionState:
    """Make the state of a plan's function, once per worker process."""
    os.environ["DPTEXT_THREADS"] = "1"  # Spark runs one worker per task slot
    with seam("reading the policy in the plan", DPTextError, _DEFECT):
        described = WorkerPolicy.model_validate_json(policy_json)
        policy = described.column_policy()
        account = None if described.ledger is None else wait_for_ledger(partial(Account, policy, described.ledger))
    return FunctionState(policy, described.spend, account)


def arguments(columns: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return text, ids and subjects as a query gave them: by position, by name, in any case."""
    if len(columns) > len(_NAMES):
        raise InputError(f"this function takes two or three arguments, got {len(columns)}", _CALL)
    arguments = dict(zip(_NAMES, columns, strict=False))
    for written, array in named.items():
        name = written.casefold()
        if name not in _NAMES:
            raise InputError(
                f"an argument has a name that this function does not know; it knows {', '.join(_NAMES)}", _CALL
            )
        if name in arguments:
            raise InputError(f"the argument {name} is given twice", _CALL)
        arguments[name] = array
    if missing := [name for name in _NAMES[:2] if name not in arguments]:
        raise InputError(f"a call of this function lacks {' and '.join(missing)}", _CALL)
    return arguments["text"], arguments["id"], arguments.get("subject")


@bare
def release(policy_json: str, texts: pa.Array, ids: pa.Array, subjects: pa.Array | None = None) -> pa.Array:
    """Release one batch of a Spark column, charged first if the function has a ledger."""
    take_gpu()
    here = function_state(policy_json)
    with seam("releasing a batch", DPTextError, _DEFECT):
        _require_strings(texts)
        _require_subjects(here, subjects)
        if here.account is not None:
            ids, subjects, forms = here.account.arranged(ids, subjects)
        canonical = _required_ids(ids, "record ids", by_name=here.account is None)
        first, where = column.distinct(canonical)
        column.require_one_text(texts, first, where, _SWAPPED)
        if here.account is None:
            return _typed(column.privatize(texts, canonical, here.policy, spend=here.spend))
        people = None if subjects is None else _required_ids(subjects, "subject ids")
        if people is not None and len(first) < len(where) and not people.equals(people.take(first).take(where)):
            raise InputError("records of one id have several subjects", "every record has an id of its own")
        chosen = [None if item is None else item.take(first) for item in (texts, canonical, people)]
        released = here.account.charge(chosen[0], chosen[1], chosen[2], forms, here.spend)
        return _typed(released.take(where))


def release_series(policy_json: str, text: Any, ids: Any, subject: Any) -> Any:
    """Release one batch of pandas Series; return structs as a DataFrame.

    pandas has fewer types than Arrow: timestamps arrive without a zone and are refused as ids, and a column that holds
    only nulls has no type.
    """
    import pandas as pd

    with seam("reading a batch from pandas", DPTextError, _PANDAS):
        columns = [None if column is None else _arrow(column) for column in (text, ids, subject)]
    released = release(policy_json, *columns)
    if pa.types.is_struct(released.type):
        frame = pd.DataFrame({field.name: released.field(field.name).to_pandas() for field in released.type})
        return frame.astype({"positions": "Int32"})
    return released.to_pandas()


def _arrow(column: Any) -> pa.Array:
    if hasattr(column, "columns"):  # a DataFrame, which is a composite id
        return pa.Table.from_pandas(column, preserve_index=False).to_struct_array().combine_chunks()
    array = pa.array(column, from_pandas=True)
    return array.cast(pa.string()) if pa.types.is_null(array.type) else array


def _require_strings(texts: pa.Array) -> None:
    dtype = texts.type
    if not (pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype)):
        raise InputError(
            f"the first argument is the text column and holds strings, got {arrow_kind(texts.type)}", _SWAPPED
        )


def _require_subjects(here: FunctionState, subjects: pa.Array | None) -> None:
    wanted = here.account is not None and here.account.per_subject
    if wanted and subjects is None:
        raise InputError(
            "this function charges subjects and got none",
            'call name(text, id, subject), or register(…, unit="record") if every record is a unit of its own',
        )
    if subjects is not None and not wanted:
        raise InputError(
            "this function charges no subjects and got some",
            'call name(text, id); register(…, ledger=…, unit="subject") charges subjects',
        )


def _required_ids(ids: pa.Array, what: str, *, by_name: bool = False) -> pa.Array:
    if ids.null_count:
        raise InputError(f"{ids.null_count} {what} of a batch are null", _SWAPPED)
    return canonical_ids(ids, by_name=by_name)


def _typed(released: pa.Array) -> pa.Array:
    """Give Spark's types to a released column; a null struct becomes a struct of nulls, as in pandas."""
    if not pa.types.is_struct(released.type):
        return released.cast(pa.string())
    fields = [item.cast(field.type) for item, field in zip(released.flatten(), SPEND, strict=True)]
    return pa.StructArray.from_arrays(fields, fields=list(SPEND))


class Account:
    """Charge the rows of a column policy to an open ledger."""

    def __init__(self, policy: ColumnPolicy, ledger: WorkerLedger) -> None:
        require_row_by_row(policy)
        self._policy = policy
        self._terms = ledger
        self._ledger = Ledger.open(ledger.url, ledger.id_key, create=False)
        if self._ledger.ledger_id != ledger.ledger_id:
            msg = "the ledger that this worker finds is another one than the function was registered with"
            raise LedgerError(msg, "register the function again, where driver and workers see one ledger")
        self._refs: dict[str, ReleaseRef] = {}
        self._scope = ledger.scope(policy.dataset)
        self._anchors = AnchorFiles(self._ledger, ledger.anchors)
        self._anchors.require(self._scope)

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
        self._anchors.require(self._scope)  # workers live long, and so do streams
        policy, ref = self._policy, self._ref(forms.record.kind)
        mechanism = policy.mechanism
        identities = pa.array(_kernel.idem_keys(policy.release_key(), ids, texts, policy.nonce))
        worst = column.worst_case(mechanism, mechanism.positions(texts), texts)
        job = f"spark-{secrets.token_hex(8)}"
        batch = (ids, subjects, [Charge(ref, identities, *worst)])
        ready = self._ledger.make_ready(self._scope.unit, *batch)
        self._require_key(ref, ready, forms)
        if self._is_committed(ref, ids, ready, forms):
            released = column.release(texts, ids, policy)
            held = self._ledger.committed(ref, ids).digests
            if pc.all(pc.equal(pa.array(_kernel.digests(released.text)), held)).as_py():
                return column.with_spends(released, mechanism) if spend else released.text
        result = self._ledger.reserve(
            job, self._scope, self._terms.cap, *batch, on_cap=self._terms.on_cap, forms=forms, ready=ready
        )
        self._refuse_changed(job, result)
        self._anchors.store(self._scope, policy.release)
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

    def _is_committed(self, ref: ReleaseRef, ids: pa.Array, ready: PreparedBatch, forms: IdForms) -> bool:
        """Return whether the release holds just these texts: Spark evaluates a column twice that a filter names."""
        if not self._ledger.known(ref, ids.slice(0, _PROBED)).all():
            return False
        self._ledger.require_cap(self._scope, self._terms.cap)
        self._ledger.require_forms(self._scope, [self._policy.column or ""], forms)
        found = self._ledger.preview(self._scope, ready)
        return bool(((found.outcome == Outcome.COMMITTED) & ~found.moved).all())

    def _require_key(self, ref: ReleaseRef, ready: PreparedBatch, forms: IdForms) -> None:
        """Commit a release of an earlier version to its noise key, if a record of the batch shows that it is so."""
        self._ledger.require_key(ref, self._policy.secret)  # it may be committed since this worker began
        if not self._ledger.lacks_key(ref):
            return
        held = np.isin(self._ledger.preview(self._scope, ready).outcome, (Outcome.COMMITTED, Outcome.PENDING))
        if not held.any():
            msg = f"no record of this batch has the identity under this noise key that {ref} holds of it"
            raise KeyReferenceError(msg, f"{RESTORE}; with the right key, begin with a query over its records")
        self._ledger.register(self._policy, forms.record.kind, proven=True)

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
        msg = (
            f"the texts of {counted(changed, 'record')} changed since this release "
            "took them; it holds one text per record id"
        )
        raise InputError(
            msg,
            "no row of the batch was charged; release changed data, or data under another key, under a new name, at "
            "full spend",
        )


def _refuse_diverged(diverged: int) -> None:
    if diverged:
        msg = (
            f"{counted(diverged, 'record')}, computed again, gave other bytes than "
            "committed; nothing of the batch is returned"
        )
        raise LedgerError(msg, "the first commit is the release: read it where it was written, or take a new name")


def _spread(released: pa.Array, fits: pa.Array) -> pa.Array:
    """Put the rows under the cap back into their places, with nulls elsewhere."""
    if len(released) == len(fits):
        return released
    places = np.cumsum(fits.to_numpy(zero_copy_only=False)) - 1
    return released.take(pa.array(places, mask=~fits.to_numpy(zero_copy_only=False)))
