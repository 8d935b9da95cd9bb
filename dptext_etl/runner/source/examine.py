"""Examine a source before anything is drawn: check ids and subjects, and choose the rows of the run.

Columns that would be published unchanged although they hold the raw texts of their rows are refused. This answer
depends on raw texts. So it stays inside, comes before any charge, and has no counts
(docs/spec/boundary.md#inside-only).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from dptext_etl.arrays import to_arrow
from dptext_etl.checks.comparison import (
    CELL,
    LEAST_CHARACTERS,
    LEAST_ROWS,
    ROW,
    Buckets,
    compared_columns,
    long_strings,
    too_many,
)
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.data_types import by_name
from dptext_etl.errors import InputError, PolicyError, counted, seam, together
from dptext_etl.guarantee import refuse_more_records
from dptext_etl.keys import canonical_ids, canonical_series
from dptext_etl.mechanism import stated_records
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.publish.manifest import continues
from dptext_etl.runner.shard.charging import kept_rows
from dptext_etl.runner.source import selection
from dptext_etl.runner.source.column_types import require_same_types, rows_by_period
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
        selection.refuse_deletions(policy, manifest, there=wanted - number)
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
        without=lambda rows, manifest: selection.unpublished(rows, policy, layout, manifest),
        mark=lambda rows, manifest: selection.marked(rows, policy, layout, manifest),
        count=count,
        limit_per_person=lambda rows, most: selection.limit_per_person(rows, policy, most, layout.scratch),
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
