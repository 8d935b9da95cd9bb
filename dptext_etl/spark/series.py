"""Convert batches of the pandas form on a worker: Series become Arrow arrays, and results become Series.

pandas has fewer types than Arrow: timestamps arrive without a zone and are refused as ids (cast them to strings, or use
the Arrow form), and a column that holds only nulls has no type.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from dptext_etl.errors import DPTextError, seam
from dptext_etl.spark import worker

_DEFECT = "a column holds strings, or ids of one allowed type; the library's message is not repeated"


def release(carried: str, text: Any, ids: Any, subject: Any) -> Any:
    """Release one batch of Series (see `worker.release`); return structs as a DataFrame."""
    with seam("reading a batch from pandas", DPTextError, _DEFECT):
        columns = [_arrow(text), _arrow(ids), None if subject is None else _arrow(subject)]
    out = worker.release(carried, *columns)
    if pa.types.is_struct(out.type):
        frame = pd.DataFrame({field.name: out.field(field.name).to_pandas() for field in out.type})
        return frame.astype({"positions": "Int32"})
    return out.to_pandas()


def _arrow(series: Any) -> pa.Array:
    if isinstance(series, pd.DataFrame):  # a composite id
        return pa.Table.from_pandas(series, preserve_index=False).to_struct_array().combine_chunks()
    array = pa.array(series, from_pandas=True)
    return array.cast(pa.string()) if pa.types.is_null(array.type) else array
