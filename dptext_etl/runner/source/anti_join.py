"""Leave out the rows of one scan whose ids stand in another, in memory of one bit per row.

Digests of both sides' ids lie in buckets on the disk. A digest has 16 bytes, so two ids of a billion have equal ones
with probability below 1e-20, as in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from dptext_etl.checks.comparison import BYTES, Buckets, Cells, as_rows, short_digests
from dptext_etl.keys import canonical_ids
from dptext_etl.runner.source.table import batches

BATCH_ROWS = 1 << 18
_PLACE = "__dptext_place"


def others(frame: pl.LazyFrame, known: pl.LazyFrame, name: str, scratch: Path | None) -> tuple[pl.LazyFrame, int]:
    """Leave out the rows whose ids are known; the order stays."""
    with closing(Buckets(BYTES + 8, scratch)) as asked, closing(Buckets(BYTES, scratch)) as there:
        for digests in _digests(known, name):
            there.add(digests)
        for digests in _digests(frame.select(name), name):
            places = np.arange(asked.rows, asked.rows + len(digests), dtype="<u8")
            asked.add(np.hstack([digests, places.view(np.uint8).reshape(-1, 8)]))
        chosen, found = np.zeros(asked.rows // 8 + 1, np.uint8), 0
        chosen[-1] = 0xFF << asked.rows % 8 & 0xFF  # no row of the source, or one that came later
        for mine, theirs in zip(asked.aligned(), there.aligned(), strict=True):
            new = mine[~_within(mine[:, :BYTES], theirs)]
            places = np.ascontiguousarray(new[:, BYTES:]).view("<u8").reshape(-1)
            np.bitwise_or.at(chosen, places >> 3, (1 << (places & 7)).astype(np.uint8))
            found += len(places)
    return _at(frame, chosen), found


def _digests(ids: pl.LazyFrame, name: str) -> Iterator[Cells]:
    for batch in batches(ids, BATCH_ROWS):
        yield short_digests(pl.Series(canonical_ids(batch[name].to_arrow()), dtype=pl.String))


def _within(asked: Cells, known: Cells) -> npt.NDArray[np.bool_]:
    """Return which digests are known, shape (asked,)."""
    if not len(known):
        return np.zeros(len(asked), np.bool_)
    fronts, front = _fronts(known), _fronts(asked)
    order = np.argsort(fronts)
    at = order[np.minimum(np.searchsorted(fronts[order], front), len(order) - 1)]
    near = fronts[at] == front
    found: npt.NDArray[np.bool_] = near & (known[at] == asked).all(axis=1)
    unsure = np.flatnonzero(near & ~found)  # equal halves of other digests: none, or very few
    if len(unsure):
        found[unsure] = np.isin(as_rows(asked[unsure]), as_rows(known))
    return found


def _fronts(rows: Cells) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(rows[:, :8]).view("<u8").reshape(-1)


def _at(frame: pl.LazyFrame, chosen: npt.NDArray[np.uint8]) -> pl.LazyFrame:
    """Return the rows whose bit is set, and all that came later, so that anyone who counts rows notices them."""

    def bits(places: pl.Series) -> pl.Series:
        at = places.to_numpy()
        inside = at >> 3 < len(chosen)
        found = np.ones(len(at), np.bool_)
        found[inside] = chosen[at[inside] >> 3] >> (at[inside] & 7).astype(np.uint8) & 1
        return pl.Series(found)

    chosen_rows = pl.col(_PLACE).map_batches(bits, return_dtype=pl.Boolean, is_elementwise=True)
    return frame.with_row_index(_PLACE).filter(chosen_rows).drop(_PLACE)
