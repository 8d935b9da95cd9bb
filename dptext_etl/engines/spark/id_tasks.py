"""Count the ids of a frame on the executors: rows, gaps and repeated ids, by digests of 16 bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl.checks.short_digests import short_digests
from dptext_etl.engines.spark.digest_counts import SCHEMA, Pack, batch_of, collected, counts_of, met, packed
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.id_forms import Normalization, normalized
from dptext_etl.keys import canonical_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IDS, _GAPS = "ids", "gaps"
_HELD_ROWS = 1 << 20
"""Digests that a task holds before it sends them on."""


class IdCounts(NamedTuple):
    """Counts over all rows of a frame.

    Attributes:
        rows: Rows.
        null_ids: Rows without an id.
        null_subjects: Rows without a subject.
        repeated: Ids that occur more than once.
    """

    rows: int
    null_ids: int
    null_subjects: int
    repeated: int


def count_ids(frame: DataFrame) -> IdCounts:
    """Count ids in one job: 16 bytes per row travel between executors, and counts alone come back."""
    packs = collected(met(frame.toDF("id", "subject").mapInArrow(task(), SCHEMA)))
    rows, null_ids, null_subjects = np.sum(
        [(0, 0, 0), *(json.loads(pack.cells) for pack in packs if pack.name == _GAPS)], axis=0
    ).tolist()
    found = counts_of(packs).get(_IDS)
    repeated = 0 if found is None else found.digests - (found.rows - found.shared)
    return IdCounts(rows, null_ids, null_subjects, repeated)


def task() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that `mapInArrow` sends to the executors."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for pack in _packs(batches):
            yield batch_of(pack)

    return work


def person_task(how: Sequence[Normalization]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that adds to ids a digest of the person and the place of the record among theirs."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _placed(batch, how)

    return work


@bare
def _placed(batch: pa.RecordBatch, how: Sequence[Normalization]) -> pa.RecordBatch:
    with seam("counting the records of each person on an executor", InputError):
        ids, persons = batch.column(0), normalized(batch.column(1), how)
        digests = [
            pa.array([row.tobytes() for row in short_digests(pl.Series(canonical_ids(column), dtype=pl.String))])
            for column in (persons, ids)
        ]
        return pa.RecordBatch.from_arrays([ids, *digests], ["id", "person", "place"])


@bare
def _packs(batches: Iterator[pa.RecordBatch]) -> Iterator[list[Pack]]:
    os.environ.setdefault("DPTEXT_THREADS", "1")
    held, size, gaps = [], 0, np.zeros(3, np.int64)
    with seam("counting ids on an executor", InputError):
        for batch in batches:
            table = pl.DataFrame(batch)
            known = table["id"].drop_nulls()
            gaps += (table.height, table.height - len(known), int(table["subject"].sum()))
            if len(known):
                canonical = pl.Series(canonical_ids(known.to_arrow()), dtype=pl.String)
                held.append(short_digests(canonical))
                size += len(canonical)
            if size >= _HELD_ROWS:
                yield list(packed(_IDS, np.concatenate(held)))
                held, size = [], 0
        if size:
            yield list(packed(_IDS, np.concatenate(held)))
        yield [Pack(_GAPS, -1, json.dumps(gaps.tolist()).encode())]
