"""Examine a source before anything is drawn: check ids and subjects, and choose the rows of the run.

Columns that would be published unchanged although they hold the raw texts of their rows are refused. This answer
depends on raw texts. So it stays inside, comes before any charge, and has no counts
(docs/spec/boundary.md#inside-only).

Rows are compared by digests of their ids of 16 bytes, in buckets on the disk: two ids of a billion have equal ones with
probability below 1e-20, as in the ledger.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Generic, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow
from dptext_etl.checks.comparison import (
    BYTES,
    CELL,
    LEAST_CHARACTERS,
    LEAST_ROWS,
    ROW,
    Buckets,
    ByteRows,
    compared_columns,
    long_strings,
    short_digests,
    too_many,
)
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.data_types import by_name, kind_of, named_as
from dptext_etl.errors import InputError, PolicyError, counted, seam, together
from dptext_etl.guarantee import refuse_more_records
from dptext_etl.keys import canonical_ids, canonical_series, normalized
from dptext_etl.mechanism import stated_records
from dptext_etl.policy import Policy
from dptext_etl.runner.forecast import ledger_of
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.publish.manifest import continues, scan
from dptext_etl.runner.publish.parts import ids_of_parts
from dptext_etl.runner.shard.charging import PAIRS, kept_rows, sum_of_pairs
from dptext_etl.runner.source.column_types import HELD, require_same_types, rows_by_period
from dptext_etl.runner.source.roles import Rows, Table
from dptext_etl.runner.source.table import READ_HINT, batches

log = logging.getLogger("dptext_etl.runner")

BATCH_ROWS = 1 << 18
_VERIFIED = 100_000
_SHARDS_PER_VERSION = 1 << 16
"""Numbers of shards, and so of their canary rows, that are reserved for one version of an incremental table."""


Groups = tuple[tuple[str, ...], ...]
Counts = list[tuple[int, int]]
"""For each group of columns: rows whose values no other row has, and rows in groups of fewer than `FEW`."""


class NoRowsError(InputError):
    """A source has no rows: its files are empty, or hold a header only."""


class IdCounts(NamedTuple):
    rows: int
    null_ids: int  # rows without an id
    null_subjects: int  # rows without a subject
    repeated: int | None = None  # ids that occur more than once; not counted where ids are null


@dataclass(frozen=True)
class Examined(Generic[Rows]):
    table: Table[Rows]
    rows: Rows  # of the run, lazily
    total: int  # rows of the source
    wanted: int  # rows of the run; fewer where an incremental run finds some published
    base: str | None  # digest of the manifest that an incremental run adds to
    first: int  # number of the first shard; an incremental run counts on, so that its canary rows are new, too
    manifest: Manifest | None  # of the version that is published now
    present: Callable[[pl.Series], pl.Series]  # the given ids that the source uses, of the type of the id column
    # rows without those that are published now, and their number; rows with the column `column_types.HELD`
    without: Callable[[Rows, Manifest], tuple[Rows, int]]
    mark: Callable[[Rows, Manifest], Rows]
    count: Callable[[Rows, Groups], Counts]
    least: int = 1  # sets of canary rows, at least; the same in every attempt at the run
    shards: int = 0  # how many there are, in an engine that counts them
    beyond: int = 0  # rows that are excluded, because their persons have more than `per_subject`
    pairs: int | None = None  # sum of digests of `version_rows` with their persons; None if it is not known
    nameless: int = 0  # rows that are excluded because they have no subject
    every_row: Rows | None = None  # rows that an incremental run leaves out or uses, lazily; None if it uses all
    rows_before: int = 0  # rows of the version that an incremental run adds to
    # rows that are excluded, `beyond` or `nameless`, by month or year; None if they are not counted
    outside: Mapping[str, int] | None = None
    copied: tuple[str, ...] = ()  # columns that would be published unchanged, and hold raw texts of their rows
    # other counts of the pass over the ids, if there are any: of `count`, and variants of ids of persons
    traced: Counts | None = None
    spellings: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(  # noqa: PLR0917  (what an engine brings)
        cls,
        table: Table[Rows],
        policy: Policy,
        layout: Layout,
        check: Callable[[], tuple[int, int, int | None]],
        with_persons: Callable[[Rows], Rows],
        present: Callable[[pl.Series], pl.Series],
        without: Callable[[Rows, Manifest], tuple[Rows, int]],
        mark: Callable[[Rows, Manifest], Rows],
        count: Callable[[Rows, Groups], Counts],
        limit_per_person: Callable[[Rows, int], tuple[Rows, int, int]],
    ) -> Self:
        manifest = Manifest.read(layout)
        adds = continues(policy, layout, manifest)
        if adds and manifest is not None:
            require_same_types(policy, layout, manifest, table.schema)
        total, null, pairs = check()
        nameless = null if policy.on_null_subject == "quarantine" else 0
        named, rest = with_persons(table.frame) if nameless else table.frame, total - nameless
        most, rows, wanted = policy.records_per_subject, named, rest
        if most is not None:
            rows, wanted, pairs = limit_per_person(named, most)
        places = None, 0, manifest, present, without, mark, count
        examined = cls(table, rows, total, wanted, *places, beyond=rest - wanted, nameless=nameless, pairs=pairs)
        if manifest is None or not adds:
            return examined
        new, number = without(rows, manifest)
        refuse_deletions(policy, manifest, there=wanted - number)
        first = manifest.version * _SHARDS_PER_VERSION
        added = replace(examined, rows=new, wanted=number, base=manifest.digest, first=first)
        return replace(added, every_row=rows, rows_before=manifest.rows)

    def published_exact(self, policy: Policy) -> bool:
        """Return whether values of CSV columns keep their spelling in the published version of this release."""
        manifest = self.manifest
        same = manifest is not None and (manifest.dataset, manifest.release) == (policy.dataset, policy.release)
        return manifest is not None and same and manifest.exact

    @property
    def version_rows(self) -> tuple[Rows, int]:
        """All rows that the version would hold, lazily, and their number."""
        if self.every_row is None:
            return self.rows, self.wanted
        return self.every_row, self.total - self.nameless - self.beyond

    @property
    def published(self) -> int:
        """Rows that an incremental run leaves out because they are published."""
        return self.total - self.wanted - self.beyond - self.nameless


def examine(
    table: Table[pl.LazyFrame],
    policy: Policy,
    layout: Layout,
    progress: Listener | None = None,
) -> Examined[pl.LazyFrame]:
    """Examine the files of a source in this process (see `Examined.of`); few rows are read once, and kept."""
    few = kept_rows(table.frame)
    read = table if few is None else replace(table, frame=few.lazy())
    subject = None if policy.unit == "record" else policy.subject

    def check() -> tuple[int, int, None]:
        counts = count_ids(read.frame, policy.id, subject, layout.scratch, progress)
        refuse_ids(policy, counts)
        return counts.rows, counts.null_subjects, None

    def present(ids: pl.Series) -> pl.Series:
        with seam("comparing canary ids with ids of the source", InputError, READ_HINT):
            used = read.frame.select(by_name(ids.name)).join(ids.to_frame().lazy(), on=by_name(ids.name), how="semi")
            return used.collect(engine="streaming").to_series()

    examined = Examined.of(
        read,
        policy,
        layout,
        check=check,
        with_persons=lambda rows: rows.filter(by_name(str(policy.subject)).is_not_null()),
        present=present,
        without=lambda rows, manifest: unpublished(rows, policy, layout, manifest),
        mark=lambda rows, manifest: marked(rows, policy, layout, manifest),
        count=count,
        limit_per_person=lambda rows, most: limit_per_person(rows, policy, most, layout.scratch),
    )
    copied = copied_columns(read.frame, policy)
    examined = replace(examined, least=-(-examined.wanted // policy.shard_rows), copied=copied)
    if not examined.beyond and not examined.nameless:
        return examined
    every, taken = (rows_by_period(rows, policy) for rows in (read.frame, examined.version_rows[0]))
    return replace(examined, outside={period: count - taken.get(period, 0) for period, count in every.items()})


def count_ids(
    frame: pl.LazyFrame,
    name: str,
    subject: str | None,
    scratch: Path | None = None,
    listener: Listener | None = None,
) -> IdCounts:
    """Count rows, null ids and subjects, and repeated ids, in one pass over a source."""
    rows = null_ids = null_subjects = 0
    columns = [by_name(column) for column in dict.fromkeys((name, subject or name))]
    meter = Meter("ids", None, listener)
    with closing(Buckets(8, scratch)) as hashes:
        for batch in batches(frame.select(columns), BATCH_ROWS):
            rows += batch.height
            null_ids += batch[name].null_count()
            null_subjects += 0 if subject is None else batch[subject].null_count()
            if not null_ids:
                hashes.add(_hashes(batch[name]).view(np.uint8).reshape(-1, 8))
            meter.add(batch.height)
        meter.add(0, last=True)
        suspects = None if null_ids or not rows else hashes.frequent(1)
    repeated = None if suspects is None else 0
    if suspects is not None and len(suspects):  # of ids whose hashes occur more than once, compare the ids themselves
        log.info("ids: %d hashes occur more than once; verifying", len(suspects))
        checked, counts = suspects[:_VERIFIED], Counter[str]()
        for batch in batches(frame.select(by_name(name)), BATCH_ROWS):
            places = np.flatnonzero(np.isin(_hashes(batch.to_series()), checked))
            counts.update(canonical_ids(batch.to_series().to_arrow()).take(to_arrow(places)).to_pylist())
        verified = sum(count > 1 for count in counts.values())
        repeated = verified + len(suspects) - len(checked) if verified else 0
    return IdCounts(rows, null_ids, null_subjects, repeated)


def refuse_ids(policy: Policy, counts: IdCounts) -> None:
    """Refuse a source without rows, ids or subjects, with more rows than a delta was stated for, or with doubled ids.

    The fields of the refusal hold all counts, so that a plan can show them.
    """
    rows, null_ids, null_subjects, repeated = counts
    for item in policy.column_policies() if policy.synthetic is None else ():
        refuse_more_records(rows, stated_records(item.mechanism), f"column {item.column!r}")
    if not rows:
        raise NoRowsError("the source has no rows", "no budget used, nothing published")
    shown = {"rows": rows, "null_ids": null_ids}
    if repeated is not None and not null_ids:
        shown["doubled_ids"] = repeated
    if policy.subject is not None and policy.unit == "subject":
        shown["null_subjects"] = null_subjects
    facts = {"counts": shown}
    problems = list[InputError]()
    if null_ids:
        msg = counted(null_ids, "record id is null", "record ids are null")
        hint = f"every record needs its own id in column {policy.id!r}"
        problems.append(InputError(msg, hint, {"rows": null_ids, "column": policy.id, **facts}))
    if null_subjects and policy.on_null_subject == "refuse":
        nameless = counted(null_subjects, "row has", "rows have")
        msg = f"{nameless} no subject (column {policy.subject!r} is null), and caps are per subject"
        hint = 'on_null_subject = "quarantine" leaves these rows out; "own" treats each of them as a separate person'
        hint = f"fill the column, or write one of these into the policy: {hint}"
        problems.append(InputError(msg, hint, {"rows": null_subjects, "column": policy.subject, **facts}))
    if repeated:
        doubled = counted(repeated, "record id occurs", "record ids occur")
        msg = f"{doubled} more than once in column {policy.id!r}; a record is released once"
        hint = "keep one row of each id, or name a column that is unique per row; no budget used, nothing published"
        problems.append(InputError(msg, hint, {"ids": repeated, "column": policy.id, **facts}))
    if problems:
        raise together(problems)


def _hashes(ids: pl.Series) -> npt.NDArray[np.uint64]:
    hashed: npt.NDArray[np.uint64] = canonical_series(ids).hash().to_numpy()
    return hashed


FEW = 5  # a row is in a small group if fewer rows than this share its values


def groups_of(columns: Sequence[str]) -> Groups:
    """Return the groups of columns that are counted: all together, each of them, and all without each of them."""
    names = tuple(columns)
    others = (tuple(other for other in names if other != name) for name in names)
    groups = [names, *((name,) for name in names), *others]
    return tuple(dict.fromkeys(group for group in groups if group))


def hashes(groups: Groups) -> list[pl.Expr]:
    """Return the 64-bit hash of the values of each group."""
    return [pl.struct(map(by_name, group)).hash().alias(str(place)) for place, group in enumerate(groups)]


def count(rows: pl.LazyFrame, groups: Groups) -> Counts:
    """Count the rows that groups of columns single out."""
    size = pl.col("rows")
    sums = (size == 1).sum().alias("single"), size.filter(size < FEW).sum().alias("few")
    frames = [rows.select(hashed).group_by(pl.all()).len("rows").select(*sums) for hashed in hashes(groups)]
    with seam("counting the rows that kept columns single out", InputError, READ_HINT):
        return [frame.row(0) for frame in pl.collect_all(frames, engine="streaming")]


_COPY_ROWS = 1 << 14
_TEXT = "text"
CopyCounts = Mapping[str, Sequence[int]]
"""By column: rows with a long string and a long text, and how many of these hold it or are in it, whatever the case."""


def copied_columns(frame: pl.LazyFrame, policy: Policy) -> tuple[str, ...]:
    """Return the columns that hold texts of their rows. Texts are read only if another column has long strings."""
    schema = frame.collect_schema()
    names = compared_columns(policy, schema)
    plain = [name for name in names if schema[name] == pl.String]
    if plain:
        with seam("reading the source", InputError, READ_HINT):
            long = frame.select((by_name(name).str.len_chars() >= LEAST_CHARACTERS).sum() for name in plain)
            rows = long.collect(engine="streaming").row(0, named=True)
        names = tuple(name for name in names if rows.get(name, LEAST_ROWS) >= LEAST_ROWS)
    if not names:
        return ()
    read = frame.select(map(by_name, (*names, *policy.text_columns)))
    return copied_over(count_copied(batch, names, policy.text_columns) for batch in batches(read, _COPY_ROWS))


def count_copied(frame: pl.DataFrame, names: Sequence[str], texts: Sequence[str]) -> CopyCounts:
    """Count the rows of a frame, column by column."""
    counts = {}
    for name in names:
        long, copied = [pl.Series(dtype=pl.UInt32)], [pl.Series(dtype=pl.UInt32)]
        for cells in filter(len, long_strings(frame[name])):
            for text in texts:
                pairs = cells.with_columns(frame[text].alias(_TEXT).gather(cells[ROW]))
                pairs = pairs.filter(pl.col(_TEXT).str.len_chars() >= LEAST_CHARACTERS)
                cell, whole = (pl.col(CELL).str.to_lowercase(), pl.col(_TEXT).str.to_lowercase())
                contained = whole.str.contains(cell, literal=True) | cell.str.contains(whole, literal=True)
                long.append(pairs[ROW])
                copied.append(pairs.filter(contained)[ROW])
        counts[name] = [pl.concat(rows).n_unique() for rows in (long, copied)]
    return counts


def copied_over(counts: Iterable[CopyCounts]) -> tuple[str, ...]:
    """Return the columns of which too many rows hold their text; counts of different rows add up."""
    total: dict[str, list[int]] = {}
    for part in counts:
        for name, numbers in part.items():
            total[name] = [sum(pair) for pair in zip(total.get(name, (0, 0)), numbers, strict=True)]
    return tuple(name for name, (long, copied) in total.items() if too_many(long, copied))


def refuse_copies(policy: Policy, columns: Sequence[str]) -> None:
    """Refuse to publish columns that hold the texts of their rows."""
    if not columns:
        return
    names = ", ".join(map(repr, columns))
    holding = f"the column {names} holds" if len(columns) == 1 else f"the columns {names} hold"
    msg = f"{holding} raw texts of the rows, and would be published unchanged; no budget used"
    written = ", ".join(f'"{name}"' for name in columns)
    hint = 'write ids = "keyed"' if policy.id in columns else "leave out what holds them, or coarsen it"
    hint += f"; if readers may see these texts, write keep_copies = [{written}]"
    raise PolicyError(msg, hint, {"columns": list(columns)})


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
    """Return one bit per row, whether its id, which no row repeats, is not among others, and how many bits are set."""
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
