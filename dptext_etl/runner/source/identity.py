"""Check all ids of a source before anything is drawn: none is null, none occurs twice, subjects are known."""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.arrays import to_arrow
from dptext_etl.delta_policy import refuse_more_records
from dptext_etl.errors import InputError, seam
from dptext_etl.keys import canonical_ids
from dptext_etl.mechanism import stated_records
from dptext_etl.policy import Policy
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.source.roles import Table
from dptext_etl.runner.source.table import READ_HINT, batches

log = logging.getLogger("dptext_etl.runner")

HASHES_AT_ONCE = 1 << 25
"""Hashes of 8 bytes that are sorted at a time; a longer table takes several passes over its ids."""
BATCH_ROWS = 1 << 18
_VERIFIED = 100_000


def check(table: Table[pl.LazyFrame], policy: Policy, listener: Listener | None = None) -> tuple[int, int]:
    """Check the ids and subjects of a whole source in bounded memory.

    Returns:
        The number of its rows, and how many of them have no subject where that is the unit.
    """
    with seam("reading the ids of the source", InputError, READ_HINT):
        subject = (
            pl.lit(0) if policy.subject is None or policy.unit == "record" else pl.col(policy.subject).null_count()
        )
        totals = table.frame.select(
            pl.len().alias("rows"), pl.col(policy.id).null_count().alias("ids"), subject.alias("subjects")
        ).collect(engine="streaming")
        rows, null_ids, null_subjects = (int(value) for value in totals.row(0))
    refuse_gaps(policy, rows, null_ids, null_subjects)
    refuse_repeated(policy, _repeated(table.frame.select(policy.id), rows, listener))
    return rows, null_subjects


def with_persons(frame: pl.LazyFrame, policy: Policy) -> pl.LazyFrame:
    """Leave out the rows without a subject."""
    return frame.filter(pl.col(str(policy.subject)).is_not_null())


def refuse_gaps(policy: Policy, rows: int, null_ids: int, null_subjects: int) -> None:
    """Refuse a source without rows, ids or subjects, or with more rows than the delta of a column was stated for."""
    for item in policy.column_policies() if policy.synthetic is None else ():
        refuse_more_records(rows, stated_records(item.mechanism), f"column {item.column!r}")
    if not rows:
        raise InputError("the source has no rows", "nothing was spent or published")
    if null_ids:
        raise InputError(
            f"{null_ids} record ids are null",
            f"every record needs an id of its own in column {policy.id!r}",
            {"rows": null_ids, "column": policy.id},
        )
    if null_subjects and policy.on_null_subject == "refuse":
        msg = f"{null_subjects} rows have no subject (column {policy.subject!r} is null), and caps are per subject"
        hint = 'on_null_subject = "quarantine" leaves these rows out; "own" takes each of them as a person of its own'
        fields = {"rows": null_subjects, "column": policy.subject}
        raise InputError(msg, f"fill the column, or write one of these into the policy: {hint}", fields)


def refuse_repeated(policy: Policy, twice: int) -> None:
    """Refuse a source with ids that occur more than once."""
    if twice:
        msg = f"{twice} record ids occur more than once in column {policy.id!r}; a record is released once"
        hint = "keep one row of each id, or name a column that is unique per row; nothing was spent or published"
        raise InputError(msg, hint, {"ids": twice, "column": policy.id})


def _repeated(ids: pl.LazyFrame, rows: int, listener: Listener | None) -> int:
    """Count ids that occur more than once: sort hashes to find equal ones, then compare the ids themselves."""
    passes = -(-rows // HASHES_AT_ONCE)
    meter = Meter("ids", rows * passes, listener)
    suspects = []
    for turn in range(passes):
        kept = []
        for batch in batches(ids, BATCH_ROWS):
            hashes = _hashes(batch)
            kept.append(hashes if passes == 1 else hashes[hashes % np.uint64(passes) == turn])
            meter.add(batch.height)
        ordered = np.concatenate(kept)
        ordered.sort()
        suspects.append(np.unique(ordered[1:][ordered[1:] == ordered[:-1]]))
    found = np.concatenate(suspects)
    if not len(found):
        return 0
    log.info("ids: %d hashes occur more than once; verifying", len(found))
    checked = found[:_VERIFIED]
    verified = _verified(ids, checked)
    return verified + len(found) - len(checked) if verified else 0


def _verified(ids: pl.LazyFrame, suspects: npt.NDArray[np.uint64]) -> int:
    counts: dict[str, int] = {}
    for batch in batches(ids, BATCH_ROWS):
        places = np.flatnonzero(np.isin(_hashes(batch), suspects))
        for value in _canonical(batch).take(to_arrow(places)).to_pylist():
            counts[value] = counts.get(value, 0) + 1
    return sum(count > 1 for count in counts.values())


def _canonical(batch: pl.DataFrame) -> pa.Array:
    return canonical_ids(batch.to_series().to_arrow())


def _hashes(batch: pl.DataFrame) -> npt.NDArray[np.uint64]:
    hashed: npt.NDArray[np.uint64] = pl.Series(pl.from_arrow(_canonical(batch))).hash().to_numpy()
    return hashed
