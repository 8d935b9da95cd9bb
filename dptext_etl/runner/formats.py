"""Write rows as readers get them, in the format of the sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO

import polars as pl


def writer(frame: pl.DataFrame, file_format: str) -> Callable[[IO[bytes]], object]:
    """Return what writes rows into an open file; equal rows give equal bytes.

    Args:
        frame: The rows.
        file_format: "parquet", "csv" or "ndjson".
    """
    lazy = frame.lazy()
    writers: dict[str, Callable[[IO[bytes]], object]] = {
        "parquet": lazy.sink_parquet,
        "csv": lazy.sink_csv,
        "ndjson": lazy.sink_ndjson,
    }
    return writers[file_format]
