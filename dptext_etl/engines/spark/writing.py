"""Write the parts of a version on the executors: into the folder of the sink, or into its object store.

In a folder, the driver puts the parts in place. In a store, parts are drafted among the files of staging first, because
the name of a version follows from their hashes. Objects of the sink are written when the ledger has recorded the
publication. No row passes the driver.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dptext_etl.engines.spark.digest_counts import Pack, over_shards, over_texts, refuse
from dptext_etl.engines.spark.task_messages import TaskMessages, watched
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
    staging = writer.staging.absolute()
    messages = TaskMessages(staging, f"{secrets.token_hex(16)}-publish")
    with writer.elsewhere() as folder:
        config = PartTaskConfig(staging, folder, writer.format, writer.hidden, messages)
        packs = written(over_shards(spark, shards, partial(draft, config)), messages, each, len(shards))
        for pack in sorted(packs, key=lambda pack: pack.bucket):
            writer.take(folder / pack.name, *json.loads(pack.cells))


def written(frame: DataFrame, messages: TaskMessages, each: Callable[[int], object], wanted: int) -> list[Pack]:
    """Let executors do what a frame says, and return a pack for every part."""
    with watched(messages, each, idle=True), seam("writing a version on Spark", InputError, AGAIN):
        packs = [Pack(row[0], row[1], bytes(row[2])) for row in frame.collect()]
    refuse(packs)
    if len(packs) != wanted:
        raise InputError(f"executors wrote {len(packs)} of {wanted} parts", AGAIN)
    return packs


@dataclass(frozen=True)
class PartTaskConfig:
    """What executors need to draft parts."""

    staging: Storage  # the staged shards
    folder: Path  # the folder for drafts
    file_format: str  # "parquet", "csv" or "ndjson"
    hidden: HiddenIds | None
    messages: TaskMessages


def draft(config: PartTaskConfig, place: int, shard: StagedShard) -> Iterator[Pack]:
    """Draft the part of a shard, unless no one waits for it any more."""
    if config.messages.stopped:
        return
    path = config.folder / f"{place:05d}-{secrets.token_hex(8)}"
    with config.staging.with_own_copies() as storage:
        rows, digest, kept = write_part(Staging(storage), shard, path, config.file_format, config.hidden)
    config.messages.done(place, rows)
    yield Pack(path.name, place, json.dumps([rows, digest, kept]).encode())


@dataclass(frozen=True)
class StoreTaskConfig:
    """What executors need to draft and to move parts."""

    staging: Storage  # the staged shards
    sink: Storage  # the published table
    file_format: str  # "parquet", "csv" or "ndjson"
    hidden: HiddenIds | None
    messages: TaskMessages

    @classmethod
    def of(cls, writer: Writer) -> StoreTaskConfig:
        """Return the config for a version, with messages of its own."""
        messages = TaskMessages(writer.staging, f"{secrets.token_hex(16)}-publish")
        return cls(writer.staging.absolute(), writer.published, writer.format, writer.hidden, messages)


def write_to_store(
    spark: SparkSession, writer: Writer, shards: Iterable[StagedShard], each: Callable[[int], object]
) -> None:
    """Let executors draft the parts, and move them later (see `Engine.write`)."""
    shards = list(shards)
    if not shards:
        return
    config = StoreTaskConfig.of(writer)
    packs = written(over_shards(spark, shards, partial(draft_object, config)), config.messages, each, len(shards))
    packs.sort(key=lambda pack: pack.bucket)
    writer.take_objects(((pack.name, *json.loads(pack.cells)) for pack in packs), partial(_moved, spark, writer))


def draft_object(config: StoreTaskConfig, place: int, shard: StagedShard) -> Iterator[Pack]:
    """Draft the part of a shard among the files of staging, unless no one waits for it any more."""
    if config.messages.stopped:
        return
    with config.staging.with_own_copies() as storage:
        path = storage.folder / f"draft-{shard.index:05d}-{secrets.token_hex(8)}"
        rows, digest, kept = write_part(Staging(storage), shard, path, config.file_format, config.hidden)
        storage.put(path.name, path)
        size = path.stat().st_size
    config.messages.done(place, rows)
    yield Pack(path.name, place, json.dumps([rows, digest, kept, size]).encode())


def _moved(
    spark: SparkSession, writer: Writer, parts: Sequence[tuple[str, str, str]], each: Callable[[], object]
) -> int:
    """Let executors move parts, and return how many were missing in the sink or held other bytes."""
    config = StoreTaskConfig.of(writer)
    frame = over_texts(spark, [json.dumps(part) for part in parts], partial(move, config))
    packs = written(frame, config.messages, lambda _: each(), len(parts))
    return sum(int(pack.cells) for pack in packs)


def move(config: StoreTaskConfig, place: int, part: str) -> Iterator[Pack]:
    """Move a part from the store of staging to that of the sink, and look at what the sink holds then."""
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
    yield Pack(name, place, b"%d" % missing)
