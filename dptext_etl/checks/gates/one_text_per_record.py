"""Gate `one_text_per_record` requires that a release holds a record id once, and so no second text of a record.

`rows_ledgered` compares bytes with the first commit. This gate also finds rows that agree with it and stand there
twice, and rows of another text whose id the ledger never had to look up.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from dptext_etl.buckets import ByteRows
from dptext_etl.checks.candidate import Candidate, Stage, with_id
from dptext_etl.checks.comparison import BYTES, Repeats, short_digests
from dptext_etl.checks.gate import Gate, Verdict
from dptext_etl.keys import canonical_ids
from dptext_etl.policy import Policy


class OneTextPerRecord(Gate):
    """Counts record ids that stand in more than one row: 16 bytes per row for the id and for each text are compared."""

    catches = (
        "Two releases of one record side by side: the files of a retried or speculative task next to those of the "
        "first attempt, a backfill appended to what it replaces, a join that multiplies rows. Two draws of a text "
        "average out its noise."
    )
    stages = frozenset(Stage)
    order = 90

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self._texts = [item.name for item in self.policy.columns]
        # digests of the record id and of each text
        self.state = {"records": Repeats(BYTES * (1 + len(self._texts)), candidate.scratch)}

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:
        return (policy.id,) if policy.synthetic is None else None

    def rows(self, batch: pl.DataFrame) -> None:
        """Take the digests of a batch; `rows_ledgered` judges rows without an id."""
        if self.policy.id not in batch.columns:
            return
        rows = with_id(batch, self.policy.id)
        if rows.height:
            canonical = canonical_ids(rows[self.policy.id].to_arrow())
            ids = short_digests(pl.Series(canonical, dtype=pl.String))
            self.state["records"].add(np.hstack([ids, *(_column(rows, name) for name in self._texts)]))

    def verdict(self) -> Verdict:
        rows, records, distinct, _ = self.state["records"].counts()
        repeated, conflicting = rows - records, distinct - records
        counts = {"rows": rows, "repeated": repeated, "conflicting": conflicting}
        message = f"all {rows:,} rows are of different records"
        if repeated:
            message = f"of {rows:,} rows {repeated:,} repeat a record id, {conflicting:,} of them with another text"
        return self.outcome(counts, message, passed=not repeated)


def _column(rows: pl.DataFrame, name: str) -> ByteRows:
    """Return the digests of a column, shape (rows, 16); zeros for a column that is missing or holds no strings."""
    if rows.schema.get(name) != pl.String:
        return np.zeros((rows.height, BYTES), np.uint8)
    return short_digests(rows[name])
