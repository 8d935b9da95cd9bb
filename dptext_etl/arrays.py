"""Turn Arrow arrays into NumPy arrays and back without pandas, and print types of Arrow.

PyArrow's own ways look for pandas and import it where it is installed, which is slower than reading a table. Polars
imports `numpy.ma` for a NumPy array, and nothing for an Arrow array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.errors import counted


def to_numpy(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return numbers or truths as a NumPy array; numbers with nulls become floats, and nulls NaN.

    >>> to_numpy(pa.array([3, 4], pa.uint8()))
    array([3, 4], dtype=uint8)
    """
    numbers = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if numbers and len(array) and not array.null_count and isinstance(array, pa.Array):
        values = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
        return values[array.offset : array.offset + len(array)]
    import polars as pl

    return pl.Series(array).to_numpy()


def to_arrow(values: npt.NDArray[Any] | Sequence[str]) -> pa.Array:
    """Return numbers, truths or words as an Arrow array."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf" and values.ndim == 1:
        bits = values.dtype == np.bool_
        buffer = np.packbits(values, bitorder="little") if bits else np.ascontiguousarray(values)
        kind = pa.bool_() if bits else pa.from_numpy_dtype(values.dtype)
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(buffer)])
    import polars as pl

    return pl.Series(values).to_arrow()


def starts(ordered: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return where each distinct value begins in sorted values; `numpy.unique` imports `numpy.ma`, which is slow.

    >>> starts(np.array([3, 3, 8]))
    array([0, 2])
    """
    if not len(ordered):
        return np.zeros(0, np.intp)
    return np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))


def distinct_counts(counts: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """Return the distinct values of counts in ascending order, and the place of every count among them.

    Counts of words are small, so a table of all smaller counts needs a fraction of the time of sorting.

    >>> distinct_counts(np.array([7, 2, 7], np.uint32))
    (array([2, 7], dtype=uint32), array([1, 0, 1]))
    """
    largest, least = int(counts.max(initial=0)), int(counts.min(initial=0))
    if least < 0 or largest > max(len(counts), 1 << 10):
        distinct, where = np.unique(counts, return_inverse=True)
        return distinct, where
    there = np.zeros(largest + 1, np.bool_)
    there[counts] = True
    return np.flatnonzero(there).astype(counts.dtype), (np.cumsum(there) - 1)[counts]


def is_string(dtype: pa.DataType) -> bool:
    """Return whether a type of Arrow holds strings, in any layout."""
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype))


def arrow_kind(dtype: pa.DataType) -> str:  # noqa: PLR0911  (one per kind)
    """Print a type of Arrow without text that a user wrote, such as names of fields (docs/spec/privacy.md#data-types).

    >>> arrow_kind(pa.struct([("raw", pa.list_(pa.int64()))]))
    'struct of 1 field (list of int64)'
    """
    if isinstance(dtype, pa.BaseExtensionType):
        return "extension"
    if pa.types.is_dictionary(dtype):
        return f"dictionary of {arrow_kind(dtype.value_type)}"
    if pa.types.is_struct(dtype):
        inner = ", ".join(arrow_kind(field.type) for field in dtype)
        return f"struct of {counted(len(dtype), 'field')} ({inner})"
    if pa.types.is_map(dtype):
        return f"map of {arrow_kind(dtype.key_type)} to {arrow_kind(dtype.item_type)}"
    if pa.types.is_union(dtype) or pa.types.is_run_end_encoded(dtype):
        return "union" if pa.types.is_union(dtype) else "run_end_encoded"
    if pa.types.is_nested(dtype):
        return f"list of {arrow_kind(dtype.value_type)}"
    return f"timestamp[{dtype.unit}]" if pa.types.is_timestamp(dtype) and dtype.tz else str(dtype)
