"""Show staged shards to the gates on executors: what each gate has seen comes back, and digests for others to count."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import polars as pl

from dptext_etl.checks.candidate import Candidate
from dptext_etl.checks.gate import Gate
from dptext_etl.checks.judging import feed, feed_rewritten, made
from dptext_etl.checks.staged_rows import batches, count
from dptext_etl.engines.spark.digest_counts import Pack, packed
from dptext_etl.engines.spark.ledger_join import cells_of
from dptext_etl.engines.spark.task_messages import Board
from dptext_etl.engines.spark.tasks import policies
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.retrying import patient
from dptext_etl.runner.place import Place
from dptext_etl.runner.reload import plans_of
from dptext_etl.runner.shard.records import StagedShard
from dptext_etl.runner.shard.staging import Staging

STATES = "states"
"""Name of the packs that hold what gates have seen of a shard."""


@dataclass(frozen=True)
class GateOrder:
    """What executors need to make the gates of a run: names, places, references and ids of canary rows, but no key.

    Attributes:
        policy: The run's policy as JSON, without storage options.
        columns: The policies of its text columns, each in the JSON of `Carried`.
        refs: Pinned release of each text column, by name.
        partition: Name of the partition, or None.
        staging: The place of the run's staging.
        board: The notice board.
        canaries: The canary rows of all shards, as `reload.planted` writes them, in JSON.
        id_type: Type of the record ids.
        rows: Rows of all shards, canary rows included.
        bits: By how many leading bits the ledger's index is cut into ranges.
    """

    policy: str
    columns: tuple[str, ...]
    refs: tuple[tuple[str, ReleaseRef], ...]
    partition: str | None
    staging: Place
    board: Board
    canaries: str
    id_type: pl.DataType
    rows: int
    bits: int = 0


def keyed(gates: Iterable[Gate]) -> dict[str, Gate]:
    """Name gates, so that those of one process find their equals in another.

    >>> keyed([])
    {}
    """
    found: dict[str, Gate] = {}
    for gate in gates:
        found[f"{gate.name}/{sum(name.partition('/')[0] == gate.name for name in found)}"] = gate
    return found


def show(order: GateOrder, place: int, shard: StagedShard) -> Iterator[Pack]:
    """Show a staged shard to every gate."""
    with order.staging.opened() as shelf:
        gates, states = patient(partial(_fed, order, shard, Staging(shelf)))
    yield Pack(STATES, place, pickle.dumps(states))
    yield from cells_of(gates, order.bits)
    for name, gate in gates.items():
        for what, repeats in gate.repeats().items():
            for rows in repeats.drain():
                yield from packed(f"{name}:{what}", rows)


def _fed(order: GateOrder, shard: StagedShard, staging: Staging) -> tuple[dict[str, Gate], dict[str, dict[str, Any]]]:
    """Return the gates of a shard and their states."""
    run = _candidate(order)
    staging.require(shard)
    part = staging.path(shard)
    columns = pl.Schema(pl.read_parquet_schema(part))
    spec = run.policy.ledger
    with Ledger.open(spec.url, spec.id_key, create=False) as ledger:
        gates = keyed(made(replace(run, parts=(part,), ledger=ledger), [columns]))
        for gate in gates.values():
            gate.look_at_columns(columns)
        feed(gates.values(), batches(part))
        if shard.post:
            feed_rewritten(gates.values(), staging.post(shard))
        states = {name: gate.state() for name, gate in gates.items()}
    order.board.done(shard.index, count(part))
    return gates, states


@lru_cache(maxsize=2)
def _candidate(order: GateOrder) -> Candidate:
    """Describe the run once per worker process; planning the canary rows again takes time."""
    policy, columns = policies(order.policy, order.columns)
    policy = policy.placed(columns)
    canaries = plans_of(json.loads(order.canaries), policy, order.partition, order.id_type)
    return Candidate(policy, (), canaries, 0, None, dict(order.refs), counted=order.rows, looked_up_elsewhere=True)
