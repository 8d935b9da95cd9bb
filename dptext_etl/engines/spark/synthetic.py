"""Charge, sum, and commit the records of a synthetic table on executors: a partial sum per task comes back, and no row.

Every phase reads the rows again, so every evaluation of the frame must give the same rows: the table that is committed
is compared with the one that was pinned. A task that is retried finds its records reserved, and its sums count once. No
plan holds a key: workers resolve the reference, and find the corpus by its hash.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Literal

import polars as pl
import pyarrow as pa

from dptext_etl import _kernel, keys
from dptext_etl.engines.spark.frames import at_most, check, spread, with_persons
from dptext_etl.engines.spark.tasks import Looking, TaskConfig, Worker, policy_json, remember_tasks, run_tasks
from dptext_etl.engines.spark.worker_policy import Location, ship
from dptext_etl.engines.synthetic import WORKERS, EngineRecords, Facts, Phase
from dptext_etl.errors import PolicyError
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.policy import Policy
from dptext_etl.runner.preview import Expected, ledger_of
from dptext_etl.runner.progress import Checkpoint, nothing
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.roles import Table, wanted_columns
from dptext_etl.runner.synthetic.attempt import SyntheticAttempt, order, release_key
from dptext_etl.runner.synthetic.charging import Frames
from dptext_etl.runner.synthetic.preflight import Counts, TablePreview

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TASKS = 256
"""Tasks at most: the driver holds a partial sum of each."""


@dataclass(frozen=True)
class WorkerTable:
    """What makes a policy and its key again on a worker: names, references and hashes, but no key and no text."""

    policy: str  # the run's policy as JSON, without storage options
    corpus: str  # the corpus, in the JSON of `Location`
    cfg: str  # configuration hash that the worker must compute as well


@dataclass(frozen=True, kw_only=True)
class SumConfig(TaskConfig):
    table: WorkerTable
    ref: ReleaseRef
    digest: str  # of the table that is compared or committed
    phase: Phase | Literal["look"]

    def open(self, stack: ExitStack) -> Worker:
        policy, key = _opened(self.table)
        if self.phase == "look":
            return Looking(TablePreview(policy, key, self.ref, stack.enter_context(ledger_of(policy))))
        staging = Staging(stack.enter_context(self.staging.with_own_copies()), tag=secrets.token_hex(8))
        memory = stack.enter_context(self.memory.with_own_copies())
        ledger = stack.enter_context(Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False))
        ledger.require_key(self.ref, keys.resolve(policy.key))  # the reference may name another key on this machine
        frames = Frames(policy, key, ledger, self.ref, self.job, staging, memory, self.checkpoint)
        return WORKERS[self.phase](frames, self.digest)


class SparkRecords(EngineRecords):
    def __init__(self, attempt: SyntheticAttempt, table: Table[DataFrame]) -> None:
        self._attempt, self._spark = attempt, table.frame.sparkSession
        policy, corpus = attempt.policy, attempt.statistic.corpus.artifact
        location = ship(self._spark, {"corpus": corpus})["corpus"]
        self._table = WorkerTable(policy_json(policy), location.model_dump_json(), attempt.statistic.cfg())
        total, nameless = check(table.frame, policy)
        wanted = total - nameless
        rows = with_persons(table.frame, policy) if nameless else table.frame
        if policy.unit == "subject":
            rows, wanted, _ = at_most(rows, policy, attempt.synthetic.per_subject, partial(_order, self._table))
        attempt.refuse_too_many(wanted)
        self.counts = Counts(total, nameless, wanted)
        self._shards = range(max(1, min(_TASKS, -(-wanted // policy.shard_rows))))
        self._rows = spread(rows, self._shards, policy)

    def look(self, ref: ReleaseRef, ledger: Ledger | None) -> Expected:  # noqa: ARG002  (tasks open it themselves)
        config = self._config(ref, f"{self._attempt.job}-look", "look", "", nothing)
        return Expected.total(Expected(**facts) for facts in run_tasks(self._rows, config, lambda _: None))

    def run(self, frames: Frames, phase: Phase, digest: str, report: Callable[[int], object]) -> Sequence[Facts]:
        done = run_tasks(self._rows, self._config(frames.ref, frames.job, phase, digest, frames.checkpoint), report)
        remember_tasks(frames.policy, self._attempt.layout, frames.job)
        return done

    def _config(
        self, ref: ReleaseRef, job: str, phase: Phase | Literal["look"], digest: str, checkpoint: Checkpoint
    ) -> SumConfig:
        policy, layout = self._attempt.policy, self._attempt.layout
        return SumConfig(
            table=self._table,
            names=wanted_columns(policy),
            ref=ref,
            job=job,
            staging=layout.staging.absolute(),
            memory=layout.memory.absolute(),
            step=len(self._shards),
            most=policy.shard_rows,
            phase=phase,
            digest=digest,
            checkpoint=checkpoint,
        )


@lru_cache(maxsize=4)
def _opened(table: WorkerTable) -> tuple[Policy, _kernel.ReleaseKey]:
    """Make the policy and the release key once per worker process; verify the corpus, and resolve the reference."""
    facts = json.loads(table.policy)
    facts["synthetic"]["mechanism"]["corpus"] = str(Location.model_validate_json(table.corpus).find().path)
    policy = Policy.parse(facts)
    if policy.statistic.cfg() != table.cfg:
        msg = "the configuration of the synthetic table has another hash here than on the driver"
        raise PolicyError(msg, "install the same version of dptext-etl on every machine of the cluster")
    return policy, release_key(policy, keys.resolve(policy.key))


def _order(table: WorkerTable, ids: pa.Array) -> pl.Series:
    return order(_opened(table)[1], ids)
