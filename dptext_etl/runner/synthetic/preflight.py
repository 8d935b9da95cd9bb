"""Look at all records of a synthetic table before any of them is charged, and refuse a run that could not end.

A plan asks the same functions (`runner.preflight`). Nothing is summed, drawn, or charged.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.column import INFINITE
from dptext_etl.errors import InputError, counted
from dptext_etl.guarantee import ADDITIVE, refuse_more_records
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Charge, Ledger, Outcome, ReleaseRef, Scope
from dptext_etl.ledger.id_key import resolve_id_key
from dptext_etl.ledger.identities import refuse_other_units
from dptext_etl.ledger.types import NEW
from dptext_etl.policy import Policy
from dptext_etl.policy.synthetic import CLAIM
from dptext_etl.runner.preflight import require_cap, require_whole_table
from dptext_etl.runner.preview import Expected, Preview, ledger_of
from dptext_etl.runner.publish.publication import require_enough
from dptext_etl.runner.shard.attempt import refuse_over_cap
from dptext_etl.runner.shard.charging import Charged, subjects_of
from dptext_etl.runner.source.roles import forms_of
from dptext_etl.runner.synthetic.attempt import SyntheticAttempt


class Counts(NamedTuple):
    """Rows of the source of a synthetic table, by what becomes of them before the ledger is asked."""

    total: int  # rows of the source
    nameless: int  # rows that are left out because they have no subject
    wanted: int  # records that count


class TablePreview(Preview):
    """Counts what a run will find; no record draws anything of its own."""

    def __init__(
        self,
        policy: Policy,
        key: _kernel.ReleaseKey,
        ref: ReleaseRef,
        ledger: Ledger | None,
        scratch: Path | None = None,
    ) -> None:
        super().__init__(policy, [], ledger, scratch=scratch)
        if policy.cap is None:
            self.forecast.components = ("eps_approx",)
        self._key, self._ref = key, ref

    def _charge(self, frame: pl.DataFrame) -> Charged:
        return charge_of(self._policy, self._key, self._ref, frame)

    def _draws(self, frame: pl.DataFrame, charged: npt.NDArray[np.uint32]) -> int:  # noqa: ARG002
        return 0


def charge_of(policy: Policy, key: _kernel.ReleaseKey, ref: ReleaseRef, frame: pl.DataFrame) -> Charged:
    """Return what the records of a frame are charged: the same for all."""
    ids, spend = canonical_ids(frame[policy.id].to_arrow()), policy.statistic.charge(CLAIM)
    amounts = {name: getattr(spend, name) for name in ADDITIVE}
    spends = {
        name: np.full(frame.height, INFINITE if amount == float("inf") else amount) for name, amount in amounts.items()
    }
    asked = Charge(ref, identities_of(policy, key, ids, frame), np.ones(frame.height, np.uint32), spends)
    return Charged(ids, subjects_of(frame, policy), (asked,), forms_of(frame.schema, policy))


def preflight_table(
    attempt: SyntheticAttempt,
    schema: pl.Schema,
    id_type: str,
    counts: Counts,
    look: Callable[[ReleaseRef, Ledger | None], Expected],
) -> None:
    """Refuse a run that could not end, before it charges anything; `look` counts what the records hold."""
    with ledger_of(attempt.policy) as ledger:
        require_cap(attempt, ledger)
        ref = release_of(attempt, schema, id_type, ledger)
        refuse_table(attempt, counts, ledger, ref, look(ref, ledger))


def release_of(attempt: SyntheticAttempt, schema: pl.Schema, id_type: str, ledger: Ledger | None) -> ReleaseRef:
    """Return the release of the table, and refuse what the ledger would not pin. Nothing is pinned."""
    policy, synthetic = attempt.policy, attempt.synthetic
    if ledger is None:
        if policy.ledger.id_key is not None:
            resolve_id_key(policy.ledger.id_key)
        return ReleaseRef(NEW, policy.dataset, synthetic.column, policy.release, attempt.statistic.cfg())
    ref = attempt.pin(ledger, id_type, pin=False)
    ledger.require_forms(Scope.of(policy), list(policy.text_columns), forms_of(schema, policy))
    return ref


def refuse_table(
    attempt: SyntheticAttempt, counts: Counts, ledger: Ledger | None, ref: ReleaseRef, found: Expected
) -> None:
    """Refuse a run by what it will find; a table that is charged is refused by the same rules."""
    refuse_other_units(Scope.of(attempt.policy), found.moved, found.records)
    if found.changed:
        refuse_changed(found.changed)
    if ledger is not None and ref.id != NEW:
        held, new = ledger.records(ref), found.answers.get(Outcome.RESERVED.name, 0)
        refuse_more_records(held + new, attempt.synthetic.n_rec, str(ref))
    refuse_unpublishable(attempt.policy, counts.nameless, found.admitted, found.over_cap)
    require_whole_table(ledger, ref, found)


def refuse_changed(changed: int) -> None:
    held = "since this release took them; it holds one table, whole"
    msg = f"the texts or labels of {counted(changed, 'record')} changed {held}"
    hint = "nothing was drawn; changed data, or another key, go under a new name, at full spend"
    raise InputError(msg, hint, {"records": changed})


def refuse_unpublishable(policy: Policy, nameless: int, released: int, over: int) -> None:
    """Refuse a table of which the cap, or forgotten people, leave too little."""
    if policy.on_cap == "refuse":
        refuse_over_cap(over)
    require_enough(policy, {"released": released, "quarantined": over, "without_subject": nameless})
    if not released:
        raise InputError("all records of the source were forgotten or are over the cap", "this run spent nothing")


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
