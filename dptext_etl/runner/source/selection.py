"""Choose the rows of a run: those that are not published yet, and at most a fixed number per person.

Rows are compared by digests of their ids of 16 bytes, in buckets on the disk: two ids of a billion have equal ones with
probability below 1e-20, as in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow
from dptext_etl.checks.comparison import BYTES, Buckets, ByteRows, short_digests
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.data_types import by_name, kind_of, named_as
from dptext_etl.errors import InputError, seam
from dptext_etl.keys import canonical_ids, normalized
from dptext_etl.policy import Policy
from dptext_etl.runner.forecast import ledger_of
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import scan
from dptext_etl.runner.publish.parts import ids_of_parts
from dptext_etl.runner.shard.charging import PAIRS, sum_of_pairs
from dptext_etl.runner.source.column_types import HELD
from dptext_etl.runner.source.table import READ_HINT, batches

BATCH_ROWS = 1 << 18
Order = Callable[[pa.Array], pl.Series]
"""Gives every canonical id its place among the records of a person, as bytes in ascending order."""
_PUBLISHED_HINT = "are the published parts all there?"
STAYS = b"\x00"
"""The first byte of the place of a record that stays under every limit."""
_PLACE, _ORDER, _PERSON = "__dptext_place", "__dptext_order", "__dptext_person"


def unpublished(frame: pl.LazyFrame, policy: Policy, layout: Layout, manifest: Manifest) -> tuple[pl.LazyFrame, int]:
    """Leave out the rows whose ids are published; the order stays."""
    return anti_join(frame, _published_ids(frame, policy, layout, manifest), policy.id, layout.scratch)


def marked(frame: pl.LazyFrame, policy: Policy, layout: Layout, manifest: Manifest) -> pl.LazyFrame:
    """Add the column `HELD` to a frame; the order stays."""
    new, _ = _rest(frame, _published_ids(frame, policy, layout, manifest), policy.id, layout.scratch)
    return frame.with_row_index(_PLACE).with_columns((~_bits(new)).alias(HELD)).drop(_PLACE)


def _published_ids(frame: pl.LazyFrame, policy: Policy, layout: Layout, manifest: Manifest) -> pl.LazyFrame:
    with seam("reading the ids that are published", hint=_PUBLISHED_HINT):
        dtype = frame.collect_schema()[policy.id]
        if manifest.ids == "keep":
            return scan(layout, manifest).select(named_as(by_name(policy.id), dtype).cast(dtype))
        require_plain(policy, dtype)
        ids = ids_of_parts(layout.staging, policy.ledger, (part.sha256 for part in manifest.parts))
        return pl.LazyFrame({policy.id: pl.concat(ids).drop_nulls()}).select(by_name(policy.id).cast(dtype))


def require_plain(policy: Policy, dtype: pl.DataType) -> None:
    """Refuse ids whose canonical strings cannot be read back, where the published table does not hold them."""
    if dtype != pl.String and not dtype.is_integer():
        compared = f"an incremental run with ids = {policy.ids!r} compares ids that are strings or whole numbers"
        hint = "set incremental = false: published rows cost nothing a second time"
        raise InputError(f"{compared}, got {kind_of(dtype)}", hint)


def refuse_deletions(policy: Policy, manifest: Manifest, there: int) -> None:
    """Refuse an incremental source from which records have gone that are still published.

    A source that holds none of the published records counts as one of new rows only.
    """
    gone = manifest.rows - there
    if policy.deletions == "refuse" and there and gone > 0:
        lost = f"{gone:,} of {manifest.rows:,} published records are no longer in the source"
        hint = '`dptext forget POLICY --missing` removes them; deletions = "keep" if the source holds new rows only'
        raise InputError(f"{lost}, and an incremental run only adds", hint)


def by_digest(ids: pa.Array) -> pl.Series:
    """Return the place of every canonical id by its public digest: 16 bytes."""
    return pl.Series([row.tobytes() for row in short_digests(pl.Series(ids, dtype=pl.String))], dtype=pl.Binary)


def by_key(policy: Policy, ids: pa.Array) -> pl.Series:
    """Return the place of every canonical id under the key of the release (docs/spec/stream.md#order-key)."""
    column, *_ = policy.charged_columns()
    return pl.Series(pa.array(_kernel.order_keys(column.release_key(), ids)).cast(pa.binary()))


def released_first(policy: Policy, ids: pa.Array) -> pl.Series:
    """Return places by key, after the places of records that the release holds; these begin with `STAYS`."""
    released = np.zeros(len(ids), np.bool_)
    with ledger_of(policy) as ledger:
        if ledger is not None:
            for ref in ledger.releases.find_all(policy).values():
                released |= ledger.known(ref, ids)
    return pl.select(pl.when(pl.Series(released)).then(STAYS).otherwise(b"\x01") + by_key(policy, ids)).to_series()


def order_of(policy: Policy) -> Order:
    if policy.shuffled is not None:
        return by_digest
    return partial(by_key if policy.synthetic is not None else released_first, policy)


def limit_per_person(
    frame: pl.LazyFrame, policy: Policy, most: int, scratch: Path | None
) -> tuple[pl.LazyFrame, int, int]:
    """Leave out the records of a person beyond the first `most`; return the others, their number, and `sum_of_pairs`.

    The choice depends on ids, in any order of rows, and on the records that a row-wise release holds already
    (docs/spec/shuffled.md#persons, docs/spec/privacy.md#per-subject). A row without a person has no limit.
    """
    pairs = frame.select(by_name(policy.id), by_name(str(policy.subject)))
    with seam("counting the records of each person", InputError, READ_HINT), closing(Buckets(8, scratch)) as hashes:
        total = nameless = 0
        for rows in batches(pairs, BATCH_ROWS):
            batch = rows.filter(by_name(str(policy.subject)).is_not_null())
            nameless += rows.height - batch.height
            persons = persons_of(batch, policy)
            hashes.add(persons.hash().to_numpy().view(np.uint8).reshape(-1, 8))
            total += sum_of_pairs(canonical_ids(batch[policy.id].to_arrow()), persons)
        crowded = pl.Series(to_arrow(hashes.frequent(most)))
        if not len(crowded):
            return frame, hashes.rows + nameless, total % PAIRS
        parts = []
        for rows in batches(pairs, BATCH_ROWS):
            batch = rows.filter(by_name(str(policy.subject)).is_not_null())
            persons = persons_of(batch, policy)
            ids_of_persons = batch.select(by_name(policy.id)).with_columns(persons.alias(_PERSON))
            parts.append(ids_of_persons.filter(persons.hash().is_in(crowded.implode())))
        crowd = pl.concat(parts)
        places = order_of(policy)(canonical_ids(crowd[policy.id].to_arrow()))
        place = pl.int_range(pl.len()).over(_PERSON, order_by=_ORDER)
        excluded = crowd.with_columns(places.alias(_ORDER)).filter(place >= most)
        if policy.per_subject is not None:  # it may have been lowered since
            excluded = excluded.filter(~pl.col(_ORDER).bin.starts_with(STAYS))
        total -= sum_of_pairs(canonical_ids(excluded[policy.id].to_arrow()), excluded[_PERSON])
    return *anti_join(frame, excluded.lazy().select(by_name(policy.id)), policy.id, scratch), total % PAIRS


def persons_of(batch: pl.DataFrame, policy: Policy) -> pl.Series:
    """Return the canonical ids of the persons of rows, as the policy spells them; no row may lack a person."""
    subjects = normalized(batch[str(policy.subject)].to_arrow(), policy.normalize)
    return pl.Series(canonical_ids(subjects), dtype=pl.String)


def anti_join(frame: pl.LazyFrame, others: pl.LazyFrame, name: str, scratch: Path | None) -> tuple[pl.LazyFrame, int]:
    """Leave out the rows whose ids are among others; return the rest, in order, and their number."""
    chosen, count = _rest(frame, others, name, scratch)
    return frame.with_row_index(_PLACE).filter(_bits(chosen)).drop(_PLACE), count


def _rest(
    frame: pl.LazyFrame, others: pl.LazyFrame, name: str, scratch: Path | None
) -> tuple[npt.NDArray[np.uint8], int]:
    """Return one bit per row, whether its id is not among others, and how many bits are set.

    No id of a row is repeated. As far as rows and other ids begin alike, ids are compared as they are.
    """
    with closing(Buckets(BYTES + 8, scratch)) as candidates, closing(Buckets(BYTES, scratch)) as there:
        alike, own_ids, other_ids = _behind_equal(
            _id_batches(frame.select(by_name(name)), name), _id_batches(others, name)
        )
        for ids in other_ids:
            there.add(_digests(ids))
        for ids in own_ids:
            places = np.arange(alike + candidates.rows, alike + candidates.rows + len(ids), dtype="<u8")
            candidates.add(np.hstack([_digests(ids), places.view(np.uint8).reshape(-1, 8)]))
        rows = alike + candidates.rows
        chosen, count = np.zeros(rows // 8 + 1, np.uint8), 0
        chosen[-1] = 0xFF << rows % 8 & 0xFF  # no row of the source, or one that came later
        for own_rows, other_rows in candidates.with_other(there):
            pairs = (np.ascontiguousarray(digests).view("<u8") for digests in (own_rows[:, :BYTES], other_rows))
            own_frame, other_frame = (pl.DataFrame(numbers, schema=["a", "b"]) for numbers in pairs)
            left = own_frame.with_row_index().join(other_frame, on=["a", "b"], how="anti")
            new = own_rows[left["index"].to_numpy()]
            places = np.ascontiguousarray(new[:, BYTES:]).view("<u8").reshape(-1)
            np.bitwise_or.at(chosen, places >> 3, (1 << (places & 7)).astype(np.uint8))
            count += len(places)
    return chosen, count


def _id_batches(ids: pl.LazyFrame, name: str) -> Iterator[pa.Array]:
    for batch in batches(ids, BATCH_ROWS):
        yield canonical_ids(batch[name].to_arrow())


def _behind_equal(
    own_batches: Iterator[pa.Array], other_batches: Iterator[pa.Array]
) -> tuple[int, Iterable[pa.Array], Iterable[pa.Array]]:
    """Return how many ids the equal batches at the start of two lists hold, and what follows these batches."""
    alike = 0
    for own, other in zip_longest(own_batches, other_batches, fillvalue=pa.array([], pa.large_string())):
        if not own.equals(other):
            return alike, chain([own], own_batches), chain([other], other_batches)
        alike += len(own)
    return alike, (), ()


def _digests(ids: pa.Array) -> ByteRows:
    return short_digests(pl.Series(ids, dtype=pl.String))


def _bits(chosen: npt.NDArray[np.uint8]) -> pl.Expr:
    """Return whether the bit of a row is set; also true of all rows that came later, so that counts show them."""

    def bits(places: pl.Series) -> pl.Series:
        at = places.to_numpy()
        inside = at >> 3 < len(chosen)
        mask = np.ones(len(at), np.bool_)
        mask[inside] = chosen[at[inside] >> 3] >> (at[inside] & 7).astype(np.uint8) & 1
        return pl.Series(mask)

    return pl.col(_PLACE).map_batches(bits, return_dtype=pl.Boolean, is_elementwise=True)
