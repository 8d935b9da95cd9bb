"""Cut a batch into parts, so that memory does not grow with the batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt


def parts(offsets: npt.NDArray[np.integer[Any]], most: int) -> Iterator[tuple[int, int]]:
    """Cut rows into parts of at most `most` draws or cells; a longer row is a part of its own."""
    ends = offsets.astype(np.int64)
    first, rows = 0, len(ends) - 1
    while first < rows:
        last = int(np.searchsorted(ends, ends[first] + most, side="right")) - 1
        last = max(first + 1, min(last, rows))
        yield first, last
        first = last
