"""Write the parts of a version on the executors: into the folder of the sink, or into its object store.

In a folder, the driver puts the parts in place. In a store, parts are drafted among the files of staging first, because
the name of a version follows from their hashes. Objects of the sink are written when the ledger has recorded the
publication. No row passes the driver.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dptext_etl.engines.spark.exchange import Pack, collected, facts_pack, over_shards, over_texts
from dptext_etl.engines.spark.task_messages import TaskMessages, watched
from dptext_etl.engines.spark.worker_policy import for_workers
from dptext_etl.errors import InputError, seam
from dptext_etl.files import sha256
from dptext_etl.runner.publish.own_ids import HiddenIds
from dptext_etl.runner.publish.parts import Writer, write_part
from dptext_etl.runner.shard.records import StagedShard
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


AGAIN = "see the executors' logs. Readers still see the version before; run the same policy again"


def write(spark: SparkSession, writer: Writer, shards: Iterable[StagedShard], each: Callable[[int], object]) -> None:
    """Write staged shards as parts of a version (see `Engine.write`).

    An attempt drafts a part under a name of its own. The driver takes the one that Spark counts; the others go.
    """
    shards = list(shards)
    if not shards:
        return
    with nullcontext() if writer.staging.remote else writer.elsewhere() as folder:
        config = WriteConfig.of(writer, folder)
        packs = _written(over_shards(spark, shards, partial(draft, config)), config, each, len(shards))
        parts = [(pack.name, *json.loads(pack.cells)) for pack in packs]
        if folder is None:
            writer.take_objects(parts, partial(_moved, spark, writer))
            return
        for name, *facts in parts:
            writer.take(folder / name, *facts)


def _written(frame: DataFrame, config: WriteConfig, each: Callable[[int], object], wanted: int) -> list[Pack]:
    """Let executors do what a frame says, and return a pack for every part, in their order."""
    with watched(config.messages, each, idle=True), seam("writing a version on Spark", InputError, AGAIN):
        packs = collected(frame)
    if len(packs) != wanted:
        raise InputError(f"executors wrote {len(packs):,} of {wanted:,} parts", AGAIN)
    return sorted(packs, key=lambda pack: pack.bucket)


@dataclass(frozen=True)
class WriteConfig:
    staging: Storage  # the staged shards
    sink: Storage  # the published table
    folder: Path | None  # the folder for drafts; None where they lie among the files of staging
    file_format: str  # "parquet", "csv" or "ndjson"
    hidden: HiddenIds | None
    messages: TaskMessages

    @classmethod
    def of(cls, writer: Writer, folder: Path | None = None) -> WriteConfig:
        staging = writer.staging.absolute()
        messages = TaskMessages(staging, f"{secrets.token_hex(16)}-publish")
        hidden = None if writer.hidden is None else replace(writer.hidden, ledger=for_workers(writer.hidden.ledger))
        return cls(staging, writer.published, folder, writer.format, hidden, messages)


def draft(config: WriteConfig, place: int, shard: StagedShard) -> Iterator[Pack]:
    """Draft the part of a shard, unless no one waits for it any more."""
    if config.messages.stopped:
        return
    with config.staging.with_own_copies() as storage:
        if config.folder is None:
            path = storage.folder / f"draft-{shard.index:05d}-{secrets.token_hex(8)}"
        else:
            path = config.folder / f"{place:05d}-{secrets.token_hex(8)}"
        facts: list[Any] = [*write_part(Staging(storage), shard, path, config.file_format, config.hidden)]
        if config.folder is None:
            storage.put(path.name, path)
            facts.append(path.stat().st_size)
    config.messages.done(place, facts[0])
    yield facts_pack("part", facts, path.name, place)


def _moved(
    spark: SparkSession, writer: Writer, parts: Sequence[tuple[str, str, str]], each: Callable[[], object]
) -> int:
    """Let executors move parts, and return how many were missing in the sink or held other bytes."""
    config = WriteConfig.of(writer)
    frame = over_texts(spark, [json.dumps(part) for part in parts], partial(move, config))
    return sum(json.loads(pack.cells) for pack in _written(frame, config, lambda _: each(), len(parts)))


def move(config: WriteConfig, place: int, part: str) -> Iterator[Pack]:
    """Move a part from the store of staging to that of the sink, and check what the sink holds then."""
    if config.messages.stopped:
        return
    name, target, digest = json.loads(part)
    sink, missing = config.sink, 0
    if sink.sha256(target) != digest:
        missing = 1
        with config.staging.with_own_copies() as storage, seam("reading what was staged", InputError, AGAIN):
            path = storage.local_path(name)
            if sha256(path) != digest:
                raise InputError(f"the staged file {name} has changed since it was staged", AGAIN)
            sink.put(target, path)
        if sink.sha256(target) != digest:
            raise InputError(f"the object store does not hold {target} as it was written", AGAIN)
    config.messages.done(place, missing)
    yield facts_pack("moved", missing, name, place)
