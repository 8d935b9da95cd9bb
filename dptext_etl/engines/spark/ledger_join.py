"""Compare staged cells with the ledger on the executors: each range of its index is read once, by one task.

Cells travel twice. Those of one range of hashed ids meet in a task, which finds their places in the ledger; those of
one batch of the ledger meet in another, which reads what was committed there. Counts come back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dptext_etl.checks.buckets import Cells
from dptext_etl.checks.gate import Gate
from dptext_etl.checks.ledger_comparison import LookedUp, batches_of, compared, located, range_bits
from dptext_etl.engines.spark.digest_counts import Pack, grouped, met, of_kind, packed
from dptext_etl.engines.spark.shard_jobs import refusal
from dptext_etl.errors import DPTextError, bare, seam
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.retrying import patient
from dptext_etl.policy import LedgerSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dptext_etl.ledger.audit.committed_index import Lookup

CELLS, PLACED = "i", "p"
"""Kinds of packs: cells by range of their hashed ids, and cells with their places by batch of the ledger."""
FOUND = "found"
"""Kind of the packs that hold counts."""

Buckets = Iterable[tuple[int, Cells]]
Answer = Callable[["Lookup", str, Cells], tuple[LookedUp, list[Pack]]]
"""Looks cells up: what it counted, and packs for the next step."""


@dataclass(frozen=True)
class LookUps:
    """What executors need to look cells up: names and references, but no key.

    Attributes:
        ledger: The ledger, as workers find it.
        releases: The release and the chain of post-processing of every list of cells, by name.
        bits: By how many leading bits the index is cut into ranges.
    """

    ledger: LedgerSpec
    releases: dict[str, tuple[ReleaseRef, str | None]]
    bits: int

    @classmethod
    def of(cls, gates: dict[str, Gate], ledger: LedgerSpec) -> LookUps:
        """Say what gates look up."""
        every = {
            f"{name}:{what}": cells.lookup for name, gate in gates.items() for what, cells in gate.lookups().items()
        }
        most = max((lookup.entries() for lookup in every.values()), default=0)
        return cls(ledger, {name: (lookup.ref, lookup.chain) for name, lookup in every.items()}, range_bits(most))


def cells_of(gates: dict[str, Gate], bits: int) -> Iterator[Pack]:
    """Pack the cells that gates hold, by range of their hashed ids."""
    for name, gate in gates.items():
        for what, held in gate.lookups().items():
            for cells in held.drain():
                yield from packed(f"{name}:{what}", cells, CELLS, bits)


def looked_up(packs: DataFrame, order: LookUps, tasks: int) -> DataFrame:
    """Let executors compare the cells in a frame of packs with the ledger, and count digests on the way."""
    placed = met(packs, tasks, **{CELLS: partial(_answered, order, _locate)})
    return met(placed, tasks, **{PLACED: partial(_answered, order, _compare)})


def found_in(packs: Iterable[Pack]) -> dict[str, LookedUp]:
    """Add up the counts of cells, by the name of their list."""
    total: dict[str, LookedUp] = {}
    for name, counts in of_kind(packs, FOUND):
        total[name] = total.get(name, LookedUp()).plus(LookedUp(*counts))
    return total


def _locate(lookup: Lookup, name: str, cells: Cells) -> tuple[LookedUp, list[Pack]]:
    placed = located(lookup, cells)
    batches = batches_of(placed)
    stand = batches >= 0
    return LookedUp(uncommitted=int((~stand).sum())), list(grouped(name, placed[stand], batches[stand], PLACED))


def _compare(lookup: Lookup, _: str, cells: Cells) -> tuple[LookedUp, list[Pack]]:
    return compared(lookup, cells), []


@bare
def _answered(order: LookUps, answer: Answer, name: str, buckets: Buckets) -> Iterator[Pack]:
    """Answer bucket by bucket, with the ledger open for as long as the task has cells of this name.

    A shard may have shown its rows to a gate that another shard lacks the columns for: such a gate is left out.
    """
    if name not in order.releases:
        return
    os.environ.setdefault("DPTEXT_THREADS", "1")
    try:
        with seam("looking up staged rows on an executor", DPTextError), ExitStack() as stack:
            opened = partial(Ledger.open, order.ledger.url, order.ledger.id_key, create=False)
            lookup = stack.enter_context(patient(opened)).lookup(*order.releases[name])
            total = LookedUp()
            for _, cells in buckets:
                counts, packs = patient(partial(answer, lookup, name, cells))
                total = total.plus(counts)
                yield from packs
            yield Pack(f"{name} {FOUND}", -1, json.dumps(total).encode())
    except DPTextError as failure:
        yield refusal(failure)
