"""Go over sealed batches in bounded memory: each pass takes the ids that begin with the same bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dptext_etl.ledger.storage.columns import Column
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.keyed_ids import Index, KeyedIds, joined, keyed_ids
from dptext_etl.ledger.storage.segments import Segments
from dptext_etl.ledger.terms import Mask

PASS_ROWS = 1 << 22


class Taken(NamedTuple):
    """The rows of a batch that one pass takes.

    Attributes:
        batch: The number of the event that reserved them.
        rows: Their places in the batch.
        ids: Their ids, in row order.
        columns: The other columns that were asked for.
    """

    batch: int
    rows: Index
    ids: KeyedIds
    columns: dict[str, Column]


class Pass(NamedTuple):
    """One pass over batches. It takes the rows whose id begins with the bits `at`.

    Attributes:
        segments: The sealed batches.
        journal: The events of the batches.
        bits: How many leading bits are fixed.
        at: The value of these bits.
    """

    segments: Segments
    journal: Journal
    bits: int
    at: int

    def over(self, batches: Iterable[int], key: str, names: Sequence[str]) -> Iterator[Taken]:
        """Iterate over the rows of batches that this pass takes."""
        for batch in batches:
            columns = self.segments.read(batch, self.journal.facts(batch), [key, *names])
            ids = keyed_ids(columns[key])
            rows = np.flatnonzero(self._meets(ids))
            yield Taken(batch, rows, ids.take(rows), {name: columns[name][rows] for name in names})

    def _meets(self, ids: KeyedIds) -> Mask:
        if not self.bits:
            return np.ones(ids.size, np.bool_)
        met: Mask = ids.hi >> np.uint64(64 - self.bits) == np.uint64(self.at)
        return met


def passes(segments: Segments, journal: Journal, rows: int) -> Iterator[Pass]:
    """Iterate over the passes that so many rows need."""
    bits = max(0, (rows - 1).bit_length() - (PASS_ROWS - 1).bit_length()) if rows else 0
    for at in range(1 << bits):
        yield Pass(segments, journal, bits, at)


def distinct_units(segments: Segments, journal: Journal, batches: Sequence[int], rows: int) -> int:
    """Count the distinct units of batches, without canary rows."""
    counted = 0
    for each in passes(segments, journal, rows):
        found = [item.ids.take(item.columns["canary"] == 0) for item in each.over(batches, "unit", ["canary"])]
        ids = joined(found)
        counted += len(ids.take(ids.order()).starts())
    return counted
