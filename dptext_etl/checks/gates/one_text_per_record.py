"""Gate `one_text_per_record`: a record id stands in a release once, so that no second set of bytes hides behind it.

`rows_ledgered` compares bytes with the first commit; this gate sees what agrees with it and is there twice, or has
another text and an id that the ledger never had to look at.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from dptext_etl.checks.short_digests import BYTES, Digests, as_bytes, as_rows, short_digests
from dptext_etl.checks.verdict import Verdict
from dptext_etl.keys import canonical_ids
from dptext_etl.policy import Policy

NAME = "one_text_per_record"
CATCHES = (
    "Two releases of one record side by side: the files of a retried or speculative task beside those of the first "
    "attempt, a backfill appended to what it replaces, a join that multiplies rows. Two draws of a text average out "
    "its noise."
)


class OnceGate:
    """Counts record ids that stand in more than one row; 16 bytes are kept per row for its id and for each text.

    Args:
        policy: The run's policy.
    """

    def __init__(self, policy: Policy) -> None:
        self._id = policy.id
        self._columns = [item.name for item in policy.columns]
        self._ids: list[Digests] = []
        self._texts: list[Digests] = []

    def feed(self, batch: pl.DataFrame) -> None:
        """Look at a batch of rows; rows without an id are `rows_ledgered`'s."""
        if self._id not in batch.columns:
            return
        known = batch.filter(pl.col(self._id).is_not_null())
        if known.height:
            self._ids.append(short_digests(pl.Series(canonical_ids(known[self._id].to_arrow()), dtype=pl.String)))
            self._texts.append(as_rows(np.hstack([_column(known, name) for name in self._columns])))

    def verdict(self) -> Verdict:
        """Say what was found."""
        rows = sum(map(len, self._ids))
        repeated = conflicting = 0
        if rows:
            ids, texts = np.concatenate(self._ids), np.concatenate(self._texts)
            records = len(np.unique(ids))
            repeated = rows - records
            conflicting = len(np.unique(as_rows(np.hstack([as_bytes(ids), as_bytes(texts)])))) - records
        counts = {"rows": rows, "repeated": repeated, "conflicting": conflicting}
        said = f"all {rows} rows are of different records"
        if repeated:
            said = f"of {rows} rows {repeated} repeat a record id, {conflicting} of them with another text"
        return Verdict(NAME, not repeated, counts, said, CATCHES)


def _column(rows: pl.DataFrame, name: str) -> npt.NDArray[np.uint8]:
    """Return the digests of a column, shape (rows, 16); a column that is missing or holds no strings says nothing."""
    if rows.schema.get(name) != pl.String:
        return np.zeros((rows.height, BYTES), np.uint8)
    return as_bytes(short_digests(rows[name]))
