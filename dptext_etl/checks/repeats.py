"""Count rows whose digest occurs more than once among any number of rows, in bounded memory.

Counts of rows with different digests add up. So parts of the rows can be counted anywhere, as long as all rows of one
digest are counted together: bucket by bucket on a disk, or group by group on the executors of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dptext_etl.arrays import distinct
from dptext_etl.checks.buckets import Buckets, Cells
from dptext_etl.checks.short_digests import BYTES, as_rows


class Counted(NamedTuple):
    """Counts of rows; the first 16 bytes of a row are its digest.

    Attributes:
        rows: All rows.
        digests: Different digests.
        distinct: Different rows.
        shared: Rows whose digest is that of another row, too.
    """

    rows: int = 0
    digests: int = 0
    distinct: int = 0
    shared: int = 0

    def plus(self, other: Counted) -> Counted:
        """Add the counts of rows that have other digests."""
        return Counted(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def counted(rows: Cells) -> Counted:
    """Count rows; all rows of a digest must be among them."""
    if not len(rows):
        return Counted()
    front = np.ascontiguousarray(rows[:, :8]).view("<u8").reshape(-1)
    order = np.argsort(front)
    equal = front[order[1:]] == front[order[:-1]]
    near = np.zeros(len(rows), np.bool_)  # rows whose digest begins like another one; no other row can be repeated
    near[:-1] = equal
    near[1:] |= equal
    some = np.ascontiguousarray(rows[order[near]])
    alone = len(rows) - len(some)
    _, times = np.unique(as_rows(some[:, :BYTES]), return_counts=True)
    return Counted(len(rows), alone + len(times), alone + len(distinct(as_rows(some))), int(times[times > 1].sum()))


class Repeats:
    """Takes rows, and counts them at the end."""

    def __init__(self, width: int = BYTES, folder: Path | None = None) -> None:
        self._buckets = Buckets(width, folder)
        self._elsewhere = Counted()

    def add(self, rows: Cells) -> None:
        """Take rows, shape (rows, width)."""
        self._buckets.add(rows)

    def add_counted(self, counts: Counted) -> None:
        """Take counts of rows that were counted elsewhere; no digest of theirs may be added here or counted twice."""
        self._elsewhere = self._elsewhere.plus(counts)

    def drain(self) -> Iterator[Cells]:
        """Yield the rows that were added, a bounded number at a time, then forget them: others will count them."""
        yield from self._buckets.each()
        self._buckets.close()

    def counts(self) -> Counted:
        """Return the counts of all rows."""
        total = self._elsewhere
        for rows in self._buckets.each():
            total = total.plus(counted(rows))
        return total
