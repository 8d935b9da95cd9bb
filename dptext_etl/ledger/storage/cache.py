"""Remember parts of runs that were read before, in bounded memory.

Runs never change and their ids never return, so no entry can be out of date. When the bound is reached, the cache takes
nothing more: a scan over more than fits would otherwise evict every part just before its next use.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LIMIT_BYTES = 256 << 20


class PartCache:
    """Pieces of parts, by run, part and piece."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._held: dict[int, dict[tuple[int, int], npt.NDArray[np.int64]]] = {}
        self.bytes = 0

    def get(self, run: int, part: int, piece: int) -> npt.NDArray[np.int64] | None:
        """Return a piece, or None if the cache does not hold it."""
        return self._held.get(run, {}).get((part, piece))

    def put(self, run: int, part: int, piece: int, data: npt.NDArray[np.int64]) -> None:
        """Hold a piece if there is room. Only piece 0 is searched in; other pieces get half of the room."""
        if self.bytes + data.nbytes <= (self._limit if piece == 0 else self._limit // 2):
            self._held.setdefault(run, {})[part, piece] = data
            self.bytes += data.nbytes

    def forget(self, run: int) -> None:
        """Drop a run that was merged."""
        self.bytes -= sum(data.nbytes for data in self._held.pop(run, {}).values())

    def keep_only(self, live: set[int]) -> None:
        """Drop all runs that are no longer live, because another process has merged them."""
        for run in set(self._held) - live:
            self.forget(run)
