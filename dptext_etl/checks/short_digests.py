"""Digest texts to 16 bytes: two of a billion different texts have equal digests with probability below 1e-20."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel

BYTES = 16
_WHOLE = 32


def short_digests(texts: pl.Series) -> npt.NDArray[np.uint8]:
    """Return the digest of every text, shape (rows, 16); a null has a digest of its own."""
    found = pa.array(_kernel.digests(texts))
    whole = np.frombuffer(found.buffers()[1], dtype=np.uint8, count=_WHOLE * len(found), offset=_WHOLE * found.offset)
    return np.ascontiguousarray(whole.reshape(len(found), _WHOLE)[:, :BYTES])


def as_rows(cells: npt.NDArray[np.uint8]) -> npt.NDArray[np.void]:
    """Return the rows of an array of bytes, each as one value that can be sorted and compared."""
    return np.ascontiguousarray(cells).view(f"V{cells.shape[1]}").reshape(-1)
