"""What a call gives, as JSON can hold it: the exact type and values of a column, or the exact words of a refusal."""

import hashlib

import numpy as np
import pyarrow as pa

AT_MOST = 64
"""Longer lists are kept as their first values and a hash over all."""


def of_column(column):
    """Type, whether it may hold nulls, and every row of a column of the kernel."""
    ours = not isinstance(column, pa.Array)
    array = pa.array(column) if ours else column
    array.validate(full=True)
    field = pa.field(column) if ours else array.type
    return {"field": str(field), "nulls": array.null_count, "rows": values(array.to_pylist())}


def values(rows):
    """Rows as JSON holds them; many numbers or hashes are shortened."""
    written = [_plain(row) for row in rows]
    if len(written) <= AT_MOST or isinstance(written[0], (str, dict)):
        return written
    whole = hashlib.sha256("\n".join(map(str, written)).encode()).hexdigest()
    return {"count": len(written), "first": written[:8], "sha256": whole}


def attempted(call):
    """What `call` returns, or the class and words of its refusal; Polars adds where in the plan it was."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001  (whatever it is, it is what was frozen)
        said = str(error).partition("\n\nThis error occurred")[0].partition("\n\nResolved plan until")[0]
        return {"refused": f"{type(error).__name__}: {said}"}


def _plain(value):
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return repr(value) if isinstance(value, float) else value
