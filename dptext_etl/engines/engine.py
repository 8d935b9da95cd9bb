"""Define the base of engines: an engine examines the raw table of a run, numbers its shards, and computes them.

All other parts of a run (keys, canary rows, ledger, gates, publication) are the same for all engines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Self

import polars as pl

from dptext_etl import extensions
from dptext_etl.checks import Candidate, Verdict
from dptext_etl.checks.canaries import CanaryPlan
from dptext_etl.errors import PolicyError
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Checkpoint, Listener, Meter
from dptext_etl.runner.publish.parts import Writer
from dptext_etl.runner.publish.publication import judge_here
from dptext_etl.runner.row_counts import Expected
from dptext_etl.runner.shard.attempt import Attempt
from dptext_etl.runner.shard.charging import Column
from dptext_etl.runner.shard.shard import Phase, ShardResult
from dptext_etl.runner.shard.staging import StagedRun, StagedShard, Staging
from dptext_etl.runner.source.examine import Examined
from dptext_etl.runner.source.roles import Rows, Table
from dptext_etl.runner.source.table import Files


@dataclass(frozen=True)
class Work(Generic[Rows]):
    """The shards that an engine computes, with everything that it needs for them."""

    attempt: Attempt  # policy, places, columns, and the name of the attempt in the ledger
    source: Examined[Rows]
    plans: Sequence[CanaryPlan]  # sets of canary rows, in the order of the shards that take them
    refs: Mapping[str, ReleaseRef]  # the pinned release of each text column
    staging: Staging
    checkpoint: Checkpoint
    digest: str = ""  # of the synthetic table that records are compared and committed with, 64 hex digits


class Engine(ABC, Generic[Rows]):
    """Base of engines, which compute the shards of a run. One engine serves one run at a time.

    Engines are entry points of the group `dptext_etl.engines`, whose names `dptext run --engine` takes.
    """

    @classmethod
    @contextmanager
    def started(cls, policy: Policy, partition: str | None) -> Iterator[Self]:  # noqa: ARG003  (`open` reads the source)
        """Start the engine for a run over the source that a policy names, and stop it after the block."""
        yield cls()

    @abstractmethod
    def open(self, policy: Policy, layout: Layout) -> Table[Rows]:
        """Open the raw table and check its columns, before anything is written or charged."""

    def files(self, layout: Layout) -> Files | None:  # noqa: ARG002  (most engines take frames)
        """Return the local files, or the version of a table, that a run reads; None where nothing says so."""
        return None

    @abstractmethod
    def examine(self, table: Table[Rows], policy: Policy, layout: Layout, progress: Listener | None) -> Examined[Rows]:
        """Check ids and subjects; in an incremental run, leave out rows that are published already."""

    @abstractmethod
    def present(self, source: Examined[Rows], ids: pl.Series) -> pl.Series:
        """Return those of the given ids that the source uses; they have the type of its id column."""

    @abstractmethod
    def canary_sets(self, source: Examined[Rows], policy: Policy) -> range:
        """Number the sets of canary rows; every attempt at a run gets the same, however long the texts are."""

    @staticmethod
    @abstractmethod
    def trace(source: Examined[Any], policy: Policy) -> dict[str, Any]:
        """Count the rows that kept columns single out (`runner.table_check.traceable.of_source`)."""

    @abstractmethod
    def look(
        self, work: Work[Rows], meter: Meter, columns: list[Column], ledger: Ledger | None, rows: Rows
    ) -> Expected:
        """Count what a run will find in some rows of the source (`runner.preview`); list the ids of changed records.

        A model that is needed and fails on public texts is refused where it will compute.
        No release is pinned yet: `work` has no refs, and `columns` have those that are known.
        """

    @abstractmethod
    def compute(self, work: Work[Rows], phase: Phase, meter: Meter) -> list[ShardResult]:
        """Take all shards through a phase; of a table that is summed, one result may stand for several of them."""

    def close(self) -> None:
        """Remove what the engine keeps between the steps of a run; called after them, also if one of them refused."""

    def judge(self, staged: StagedRun, candidate: Candidate, seen: Callable[[int], object]) -> tuple[Verdict, ...]:
        """Check the hashes of staged files and judge their rows by every gate; in this process unless overridden."""
        return judge_here(staged, candidate, seen)

    def write(self, writer: Writer, shards: Iterable[StagedShard], each: Callable[[int], object]) -> None:
        """Write staged shards as parts of a version; in this process unless overridden."""
        writer.add(shards, each)


def named(name: str) -> type[Engine[Any]]:
    """Return the engine of a name, from whatever package brings it."""
    engine = extensions.loaded("engines", name)
    if not (isinstance(engine, type) and issubclass(engine, Engine)):
        package = extensions.installed("engines")[name].value
        raise PolicyError(f"the entry point {name} of dptext_etl.engines must name an Engine; it names {package}")
    return engine
