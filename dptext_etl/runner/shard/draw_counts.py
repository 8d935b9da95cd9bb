"""Write draw counts with staged texts: the draws that were charged and, if refundable, those really made."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.arrays import to_arrow
from dptext_etl.mechanism import Released

Counts = npt.NDArray[np.uint32]


def draws(released: Released) -> pl.Series:
    """Write the draw counts of a column: numbers, or a struct of `positions` and `steps`, shape (rows,)."""
    positions = pl.Series("positions", released.positions, dtype=pl.UInt32)
    if released.steps is None:
        return positions
    return pl.DataFrame([positions, pl.Series("steps", released.steps, dtype=pl.UInt32)]).to_struct()


def counts(written: pl.Series) -> tuple[Counts, Counts | None]:
    """Read what `draws` wrote: charged draws, and those really made or None, shape (rows,)."""
    if not isinstance(written.dtype, pl.Struct):
        return written.to_numpy(), None
    return written.struct.field("positions").to_numpy(), written.struct.field("steps").to_numpy()


def released(texts: pl.Series, written: pl.Series) -> Released:
    """Join staged texts with the draw counts that `draws` wrote."""
    positions, steps = counts(written)
    text = texts.to_arrow().cast(pa.large_string())
    return Released(text, to_arrow(positions), None if steps is None else to_arrow(steps))
