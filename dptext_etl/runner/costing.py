"""Count what the shards of a plan cost. Nothing is drawn or written; the ledger is only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.arrays import to_numpy
from dptext_etl.checks.reports.copies import gate_delta
from dptext_etl.column import INFINITE, worst_case
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Ledger
from dptext_etl.ledger.storage.store import there_is
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner.claims import with_gate
from dptext_etl.runner.shard.charging import subjects_of, views_of


@contextmanager
def ledger_of(policy: Policy) -> Iterator[Ledger | None]:
    """Open the ledger of a policy to read it, or yield None; a plan makes no ledger."""
    if not there_is(policy.ledger.url):
        yield None
        return
    with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
        yield ledger


class Costs(NamedTuple):
    """What a shard takes (see `Forecast.add`).

    Attributes:
        words: Draws over all text columns.
        held: Records that the release has seen in every column.
        worst: Worst cases in millionths, shape (components, rows).
        asked: The same, 0 where the release holds the record.
        units: Canonical ids of the units, shape (rows,).
        charged: Positions that are charged, shape (columns, rows).
    """

    words: int
    held: int
    worst: npt.NDArray[np.int64]
    asked: npt.NDArray[np.int64]
    units: pa.Array
    charged: npt.NDArray[np.uint32]


def costs_of(
    frame: pl.DataFrame,
    policy: Policy,
    columns: list[ColumnPolicy],
    ledger: Ledger | None,
    components: tuple[str, ...],
) -> Costs:
    """Count the draws of a shard and their worst-case cost. Nothing is drawn."""
    ids = canonical_ids(frame[policy.id].to_arrow())
    words, delta = 0, gate_delta(policy)
    worst, asked = (np.zeros((len(components), frame.height), dtype=np.int64) for _ in range(2))
    charged = np.zeros((len(columns), frame.height), dtype=np.uint32)
    seen = np.ones(frame.height, dtype=bool)
    for place, column in enumerate(columns):
        texts = views_of(frame, column.column or "")
        positions = column.mechanism.positions(texts)
        words += int(to_numpy(positions).sum())
        charged[place], worst_amounts = worst_case(column.mechanism, positions, texts, (*components, "delta"))
        amounts = with_gate(worst_amounts, delta)
        ref = None if ledger is None else ledger.find(column)
        known = np.zeros(frame.height, dtype=bool) if ledger is None or ref is None else ledger.known(ref, ids)
        seen &= known
        for at, name in enumerate(components):
            worst[at] = _plus(worst[at], amounts[name])
            asked[at] = _plus(asked[at], np.where(known, 0, amounts[name]))
    units = subjects_of(frame, policy)
    return Costs(words, int(seen.sum()), worst, asked, ids if units is None else units, charged)


def _plus(total: npt.NDArray[np.int64], amounts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    endless = (amounts == INFINITE) | (total == INFINITE)
    return np.where(endless, INFINITE, total + np.where(endless, 0, amounts))
