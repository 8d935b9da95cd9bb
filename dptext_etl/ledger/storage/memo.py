"""Remember what look-ups in sorted runs returned, so that the same ids are looked up in new runs alone."""

from __future__ import annotations

from collections.abc import Set
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dptext_etl.ledger.storage.hashed_ids import HashedIds, Index, Sieve, Values
from dptext_etl.ledger.storage.part_cache import MissingPartError, Written
from dptext_etl.ledger.types import Mask

if TYPE_CHECKING:
    from dptext_etl.ledger.storage.sorted_runs import SortedRun, SortedRuns


class Known:
    """The runs of one map whose contents a walk, and its process after it, account for."""

    def __init__(self, runs: set[int]) -> None:
        self.runs = runs
        self._mixed = False

    def covers(self, live: set[int]) -> bool:
        """Return whether all of them are live. Then no other live run holds anything of theirs."""
        return not self._mixed and self.runs <= live

    def note(self, written: Written, *, own: bool) -> None:
        """Note a run that this process wrote; a new one counts only if its contents are accounted for (`own`)."""
        merged = set(written.merged)
        if not merged:
            if own:
                self.runs.add(written.run)
        elif merged <= self.runs:
            self.runs -= merged
            self.runs.add(written.run)
        elif merged & self.runs:
            self._mixed = True


class Prefetched(NamedTuple):
    """What known runs hold of sorted ids: which have an entry, and folded values, shape (ids,) and (values, ids)."""

    known: Known
    found: Mask
    values: Values


class LookupMemo:
    """What lookups of the same ids returned before; used for other ids, it forgets all of it.

    Runs never change, so it stays true of those that still exist.
    """

    def __init__(self, prefetched: Prefetched | None = None, only: Set[int] | None = None) -> None:
        self._asked: tuple[SortedRuns, HashedIds] | None = None
        self._sieve: Sieve | None = None
        self._prefetched = prefetched
        self._only = only  # look in these runs alone, which must be there
        self.hits: dict[int, list[tuple[Index, Values]]] = {}  # where runs, by id, hold some of the ids, and values
        self.folded: frozenset[int] = frozenset()  # the runs that the answer was folded from
        self.answer: tuple[Mask, Values] | None = None  # which ids have an entry, and folded values, read-only

    def ask(self, runs: SortedRuns, wanted: HashedIds) -> Sieve:
        """Keep which ids are looked up in which map, and return what finds them in a run."""
        if self._asked is not None and not self.is_of(wanted):
            self.hits, self._sieve = {}, None
            self.forget_prefetched()
        if self._sieve is None:
            self._sieve = Sieve(wanted.hi)
        self._asked = (runs, wanted)
        return self._sieve

    def is_of(self, wanted: HashedIds) -> bool:
        return self._asked is not None and all(map(np.array_equal, wanted, self._asked[1]))

    def of(self, wanted: HashedIds) -> LookupMemo | None:
        """Return what is known of all these ids, or, if it was prefetched, of some; None if others are among them."""
        if self._asked is None or self.is_of(wanted):
            return None if self._asked is None else self
        asked = self._asked[1]
        if self._prefetched is None or not asked.size:
            return None
        at = np.minimum(np.searchsorted(asked.hi, wanted.hi), asked.size - 1)
        if not asked.take(at).equal(wanted).all():
            return None
        known, found, values = self._prefetched
        return LookupMemo(Prefetched(known, found[at], values[:, at]))

    def not_prefetched(self, runs: list[SortedRun]) -> list[SortedRun]:
        """Return the runs to look in: those that are not known, or all if a known one was merged by another writer."""
        if self._only is not None:
            return [run for run in runs if run.id in self._only]
        if self._prefetched is None:
            return runs
        known = self._prefetched.known
        if known.covers({run.id for run in runs}):
            return [run for run in runs if run.id not in known.runs]
        self.forget_prefetched()
        return runs

    def forget_prefetched(self) -> None:
        self._prefetched = self.answer = None

    def start(self, size: int, values: int) -> tuple[Mask, Values]:
        """Return what is known of the ids before any run is looked at."""
        if self._prefetched is None:
            return np.zeros(size, np.bool_), np.zeros((values, size), np.int64)
        return self._prefetched.found.copy(), self._prefetched.values.copy()

    def learn(self, places: Index, values: Values) -> None:
        """Take up what was written of some of the ids, if known runs hold it."""
        if self._prefetched is not None:
            self._prefetched.found[places], self._prefetched.values[:, places] = True, values
            self.answer = None

    def catch_up(self) -> None:
        """Look the ids up in runs that are new since; one that vanishes meanwhile is left for later."""
        if self._asked is not None:
            with suppress(MissingPartError):
                self._asked[0].search(self._asked[1], self)
