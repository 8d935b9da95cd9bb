"""Bring staged shards from the store of staging to the store of the sink on the executors; no row passes the driver.

Parts are drafted among the files of staging first, because the name of a version follows from their hashes. Objects of
the sink are written when the ledger has recorded the publication.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dptext_etl.engines.spark.digest_counts import Pack
from dptext_etl.engines.spark.shard_jobs import over_shards, over_texts
from dptext_etl.engines.spark.task_messages import Board
from dptext_etl.engines.spark.writing import AGAIN, written
from dptext_etl.errors import InputError, seam
from dptext_etl.files import sha256
from dptext_etl.runner.place import Place
from dptext_etl.runner.publish.parts import Writer, write_part
from dptext_etl.runner.shard.records import StagedShard
from dptext_etl.runner.shard.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class StoreOrder:
    """What executors need to draft and to move parts.

    Attributes:
        staging: The place of the staged shards.
        sink: The place of the published table.
        file_format: "parquet", "csv" or "ndjson".
        board: The notice board.
    """

    staging: Place
    sink: Place
    file_format: str
    board: Board

    @classmethod
    def of(cls, writer: Writer) -> StoreOrder:
        """Return the order for a version, with a board of its own."""
        board = Board.of(writer.inside, f"{secrets.token_hex(16)}-publish")
        return cls(writer.inside, writer.sink, writer.format, board)


def write_to_store(
    spark: SparkSession, writer: Writer, shards: Iterable[StagedShard], each: Callable[[int], object]
) -> None:
    """Let executors draft the parts, and move them later (see `Engine.write`)."""
    shards = list(shards)
    if not shards:
        return
    order = StoreOrder.of(writer)
    packs = written(over_shards(spark, shards, partial(draft, order)), order.board, each, len(shards))
    for pack in sorted(packs, key=lambda pack: pack.bucket):
        writer.take_object(pack.name, *json.loads(pack.cells))
    writer.moved_by(partial(_moved, spark, writer))


def draft(order: StoreOrder, place: int, shard: StagedShard) -> Iterator[Pack]:
    """Draft the part of a shard among the files of staging, unless no one waits for it any more."""
    if order.board.stopped:
        return
    with order.staging.opened() as shelf:
        path = shelf.folder / f"draft-{shard.index:05d}-{secrets.token_hex(8)}"
        rows, digest = write_part(Staging(shelf), shard, path, order.file_format)
        shelf.put(path)
        size = path.stat().st_size
    order.board.done(place, rows)
    yield Pack(path.name, place, json.dumps([rows, digest, size]).encode())


def _moved(
    spark: SparkSession, writer: Writer, parts: Sequence[tuple[str, str, str]], each: Callable[[], object]
) -> int:
    """Let executors move parts, and return how many were missing in the sink or held other bytes."""
    order = StoreOrder.of(writer)
    frame = over_texts(spark, [json.dumps(part) for part in parts], partial(move, order))
    packs = written(frame, order.board, lambda _: each(), len(parts))
    return sum(int(pack.cells) for pack in packs)


def move(order: StoreOrder, place: int, part: str) -> Iterator[Pack]:
    """Move a part from the store of staging to that of the sink, and look at what the sink holds then."""
    if order.board.stopped:
        return
    name, target, digest = json.loads(part)
    store, missing = order.sink.objects(), 0
    if store.digest(target) != digest:
        missing = 1
        with order.staging.opened() as shelf, seam("reading what was staged", InputError, AGAIN):
            path = shelf.here(shelf.folder / name)
            if sha256(path) != digest:
                raise InputError(f"the staged file {name} has changed since it was staged", AGAIN)
            store.put_file(target, path)
        if store.digest(target) != digest:
            raise InputError(f"the object store does not hold {target} as it was written", AGAIN)
    order.board.done(place, missing)
    yield Pack(name, place, b"%d" % missing)
