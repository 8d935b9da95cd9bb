"""Choose the records of each person that take part in an unlinked release, so that no one counts more than declared.

The records with the smallest digests of their ids take part: the choice depends on ids alone, in any order of rows.
Specification: docs/spec/unlinked.md#persons.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl.checks.comparison import short_digests
from dptext_etl.errors import InputError, seam
from dptext_etl.id_forms import normalized
from dptext_etl.keys import canonical_ids
from dptext_etl.policy import Policy
from dptext_etl.runner.source.anti_join import BATCH_ROWS, others
from dptext_etl.runner.source.table import READ_HINT, batches

PAIRS = 1 << 128
"""Digests of records with their persons are added modulo this number, in any order of rows."""
Order = Callable[[pa.Array], pl.Series]
"""Gives every canonical id its place among the records of a person, as bytes in ascending order."""
_ORDER, _PERSON = "__dptext_order", "__dptext_person"


def at_most(
    frame: pl.LazyFrame, policy: Policy, most: int, scratch: Path, order: Order | None = None
) -> tuple[pl.LazyFrame, int, int]:
    """Leave out the records of a person beyond the first `most`; return the others, their number, and `sum_of_pairs`.

    The order is that of public digests of ids, unless another one is given.
    """
    assert policy.subject is not None  # noqa: S101  (a policy whose unit is the subject names it)
    pairs = frame.select(policy.id, policy.subject)
    with seam("counting the records of each person", InputError, READ_HINT):
        hashes, total = list[pl.Series](), 0
        for batch in batches(pairs, BATCH_ROWS):
            persons = _persons(batch, policy)
            hashes.append(persons.hash())
            total += sum_of_pairs(canonical_ids(batch[policy.id].to_arrow()), persons)
        found, counts = np.unique(pl.concat(hashes).to_numpy(), return_counts=True)
        crowded = pl.Series(found[counts > most], dtype=pl.UInt64)
        if not len(crowded):
            return frame, int(counts.sum()), total % PAIRS
        parts = []
        for batch in batches(pairs, BATCH_ROWS):
            persons = _persons(batch, policy)
            theirs = batch.select(policy.id).with_columns(persons.alias(_PERSON))
            parts.append(theirs.filter(persons.hash().is_in(crowded.implode())))
        left_out = _beyond(pl.concat(parts), policy.id, most, order)
        total -= sum_of_pairs(canonical_ids(left_out[policy.id].to_arrow()), left_out[_PERSON])
    there = scratch if scratch.is_dir() else None  # a plan makes no folders
    return *others(frame, left_out.lazy().select(policy.id), policy.id, there), total % PAIRS


def sum_of_pairs(ids: pa.Array, persons: pa.Array | pl.Series) -> int:
    """Add up digests of records with their persons: a record that moves to another person changes the sum.

    Args:
        ids: Canonical ids, shape (n,).
        persons: Canonical subjects, shape (n,).
    """
    rows = pl.DataFrame({"id": pl.Series(ids, dtype=pl.String), _PERSON: pl.Series(persons, dtype=pl.String)})
    length = pl.col(_PERSON).str.len_bytes().cast(pl.String)
    both = rows.select(pl.concat_str(length, pl.lit(":"), _PERSON, "id")).to_series()
    places: list[int] = short_digests(both).sum(axis=0, dtype=np.int64).tolist()
    return sum(value << 8 * place for place, value in enumerate(places)) % PAIRS


def _beyond(rows: pl.DataFrame, id: str, most: int, order: Order | None) -> pl.DataFrame:  # noqa: A002
    """Return the records beyond the first `most` of each person, in an order of ids."""
    places = (order or by_digest)(canonical_ids(rows[id].to_arrow()))
    place = pl.int_range(pl.len()).over(_PERSON, order_by=_ORDER)
    return rows.with_columns(places.alias(_ORDER)).filter(place >= most)


def by_digest(ids: pa.Array) -> pl.Series:
    """Return the place of every canonical id by its public digest: 16 bytes."""
    digests = short_digests(pl.Series(ids, dtype=pl.String))
    return pl.Series([row.tobytes() for row in digests], dtype=pl.Binary)


def _persons(batch: pl.DataFrame, policy: Policy) -> pl.Series:
    subjects = normalized(batch[str(policy.subject)].to_arrow(), policy.normalize)
    return pl.Series(canonical_ids(subjects), dtype=pl.String)
