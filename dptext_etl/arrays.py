"""Turn Arrow arrays into NumPy arrays and back without pandas.

PyArrow's own ways look for pandas and import it where it is installed, which takes longer than reading a table. Polars
imports `numpy.ma` for a NumPy array, and nothing for an Arrow array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def to_numpy(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return numbers or truths as a NumPy array; numbers with nulls become floats, and nulls NaN.

    >>> to_numpy(pa.array([3, 4], pa.uint8()))
    array([3, 4], dtype=uint8)
    """
    numbers = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if numbers and len(array) and not array.null_count and isinstance(array, pa.Array):
        held = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
        return held[array.offset : array.offset + len(array)]
    import polars as pl

    return pl.Series(array).to_numpy()


def to_arrow(values: npt.NDArray[Any] | Sequence[str]) -> pa.Array:
    """Return numbers, truths or words as an Arrow array."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf" and values.ndim == 1:
        bits = values.dtype == np.bool_
        held = np.packbits(values, bitorder="little") if bits else np.ascontiguousarray(values)
        kind = pa.bool_() if bits else pa.from_numpy_dtype(values.dtype)
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(held)])
    import polars as pl

    return pl.Series(values).to_arrow()
