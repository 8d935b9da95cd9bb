"""Remember what look-ups in sorted runs returned, so that the same ids are looked up in new runs alone."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from dptext_etl.ledger.storage.hashed_ids import HashedIds, Index, Sieve, Values
from dptext_etl.ledger.storage.part_cache import MissingPartError
from dptext_etl.ledger.types import Mask

if TYPE_CHECKING:
    from dptext_etl.ledger.storage.sorted_runs import SortedRuns


class LookupMemo:
    """What lookups of the same ids returned before; used for other ids, it forgets all of it.

    Runs never change, so it stays true of those that still exist.
    """

    def __init__(self) -> None:
        self._asked: tuple[SortedRuns, HashedIds] | None = None
        self._sieve: Sieve | None = None
        self.hits: dict[int, list[tuple[Index, Values]]] = {}  # where runs, by id, hold some of the ids, and values
        self.folded: frozenset[int] = frozenset()  # the runs that the answer was folded from
        self.answer: tuple[Mask, Values] | None = None  # which ids have an entry, and folded values, read-only

    def ask(self, runs: SortedRuns, wanted: HashedIds) -> Sieve:
        """Keep which ids are looked up in which map, and return what finds them in a run."""
        if self._asked is not None and not self.is_of(wanted):
            self.hits, self._sieve, self.answer = {}, None, None
        if self._sieve is None:
            self._sieve = Sieve(wanted.hi)
        self._asked = (runs, wanted)
        return self._sieve

    def is_of(self, wanted: HashedIds) -> bool:
        return self._asked is not None and all(map(np.array_equal, wanted, self._asked[1]))

    def catch_up(self) -> None:
        """Look the ids up in runs that are new since; one that vanishes meanwhile is left for later."""
        if self._asked is not None:
            with suppress(MissingPartError):
                self._asked[0].search(self._asked[1], self)
