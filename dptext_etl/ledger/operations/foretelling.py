"""Say what the ledger would answer to a batch, before anything is written. Caps are left to the caller.

What fits a cap depends on all records before, which stand in other batches; a forecast adds them up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.ledger.operations.balances import balances
from dptext_etl.ledger.operations.batch import BatchIds, ColumnCharge
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.operations.foresight import Foresight
from dptext_etl.ledger.operations.reserve import CHARGED, Request, compare
from dptext_etl.ledger.operations.scopes import Pinned, components
from dptext_etl.ledger.terms import I64, NEW, U8, Mask, Scope, State


class Foretold(NamedTuple):
    """What the ledger would answer to a batch.

    Attributes:
        outcome: An `Outcome` per record as if there was no cap, shape (records,).
        charged: Whether a column of a record would be charged, shape (columns, records).
        kept: Whether every changed column of a record holds a committed text, shape (records,).
        units: Hashes of the units, shape (records,).
        used: What the units have used by component of the cap, shape (components, records).
    """

    outcome: U8
    charged: Mask
    kept: Mask
    units: npt.NDArray[np.uint64]
    used: I64


def foretell(book: Book, scope: Scope, batch: BatchIds, columns: list[ColumnCharge], *, again: bool) -> Foretold:
    """Judge a batch without a look at the cap. Call it inside a snapshot."""
    pinned = book.scopes.find(scope) or Pinned(NEW, scope.unit, None, ())
    request = Request(book, "", scope, pinned, batch, again)
    seen, outcome = compare(request, columns, Foresight())
    asking = np.isin(outcome, CHARGED)
    committed = [~item.changed | (item.changed & (item.held.state == State.COMMITTED)) for item in seen]
    used = np.zeros((len(components(pinned)), batch.size), np.int64)
    if pinned.measure is not None:
        order = batch.unit_order
        used[:, order] = balances(book.store, book.cache, pinned).find(batch.unit_ids.take(order))[1]
    charged = np.stack([item.fresh & asking for item in seen])
    return Foretold(outcome, charged, np.all(committed, axis=0), batch.unit_ids.hi, used)
