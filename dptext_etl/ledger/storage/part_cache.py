"""Keep pieces of sorted runs in bounded memory."""

from __future__ import annotations

from dptext_etl.errors import LedgerError
from dptext_etl.ledger.types import I64

CACHE_BYTES = 256 << 20


class MissingPartError(LedgerError):
    """A part of a run is not there: it was merged since the runs were listed, or the index is damaged."""


class PartCache:
    """Pieces of parts that were read before, in bounded memory.

    Runs never change and their ids never return, so no entry can be out of date. When the bound is reached, the cache
    takes nothing more: a scan over more than fits would otherwise evict every part just before its next use.
    """

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit = limit
        self._runs: dict[int, dict[tuple[int, int], I64]] = {}
        self.bytes = 0

    def get(self, run: int, part: int, piece: int) -> I64 | None:
        return self._runs.get(run, {}).get((part, piece))

    def put(self, run: int, part: int, piece: int, data: I64) -> None:
        """Keep a piece if there is room. Only piece 0 is searched in; other pieces get half of the room."""
        if self.bytes + data.nbytes <= (self._limit if piece == 0 else self._limit // 2):
            self._runs.setdefault(run, {})[part, piece] = data
            self.bytes += data.nbytes

    def drop(self, run: int) -> None:
        self.bytes -= sum(data.nbytes for data in self._runs.pop(run, {}).values())

    def keep_only(self, live: set[int]) -> None:
        """Drop all runs that are no longer live, because another process has merged them."""
        for run in set(self._runs) - live:
            self.drop(run)


class LastParts(PartCache):
    """Keeps the part of each run that was read last: enough for look-ups in ascending order of id."""

    def put(self, run: int, part: int, piece: int, data: I64) -> None:
        held = self._runs.get(run)
        if held is not None and (part, 0) not in held:
            self.drop(run)
        super().put(run, part, piece, data)
