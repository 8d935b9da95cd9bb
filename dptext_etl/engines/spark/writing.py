"""Write the parts of a version on the executors; the driver puts them in place."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dptext_etl.engines.spark.digest_counts import Pack
from dptext_etl.engines.spark.shard_jobs import over_shards, refuse
from dptext_etl.engines.spark.task_messages import Board
from dptext_etl.engines.spark.watching import watched
from dptext_etl.errors import InputError, seam
from dptext_etl.runner.place import Place
from dptext_etl.runner.publish.parts import Writer, write_part
from dptext_etl.runner.shard.records import StagedShard
from dptext_etl.runner.shard.staging import Staging

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
    staging = writer.inside.absolute()
    board = Board.of(staging, f"{secrets.token_hex(16)}-publish")
    with writer.elsewhere() as folder:
        order = PartOrder(staging, folder, writer.format, board)
        packs = written(over_shards(spark, shards, partial(draft, order)), board, each, len(shards))
        for pack in sorted(packs, key=lambda pack: pack.bucket):
            rows, digest = json.loads(pack.cells)
            writer.take(folder / pack.name, rows, digest)


def written(frame: DataFrame, board: Board, each: Callable[[int], object], wanted: int) -> list[Pack]:
    """Let executors do what a frame says, and return a pack for every part."""
    with watched(board, each, idle=True), seam("writing a version on Spark", InputError, AGAIN):
        packs = [Pack(row[0], row[1], bytes(row[2])) for row in frame.collect()]
    refuse(packs)
    if len(packs) != wanted:
        raise InputError(f"executors wrote {len(packs)} of {wanted} parts", AGAIN)
    return packs


@dataclass(frozen=True)
class PartOrder:
    """What executors need to draft parts.

    Attributes:
        staging: The place of the staged shards.
        folder: The folder for drafts.
        file_format: "parquet", "csv" or "ndjson".
        board: The notice board.
    """

    staging: Place
    folder: Path
    file_format: str
    board: Board


def draft(order: PartOrder, place: int, shard: StagedShard) -> Iterator[Pack]:
    """Draft the part of a shard, unless no one waits for it any more."""
    if order.board.stopped:
        return
    path = order.folder / f"{place:05d}-{secrets.token_hex(8)}"
    with order.staging.opened() as shelf:
        rows, digest = write_part(Staging(shelf), shard, path, order.file_format)
    order.board.done(place, rows)
    yield Pack(path.name, place, json.dumps([rows, digest]).encode())
