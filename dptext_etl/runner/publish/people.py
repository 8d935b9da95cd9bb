"""Find the records of people who are to be forgotten: in the ledger, what is published, staging, and the source."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl.errors import InputError, LedgerError, UnknownIdError, counted, seam
from dptext_etl.id_forms import normalized
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.types import Mask
from dptext_etl.policy import LedgerSpec, Policy
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.publish import own_ids
from dptext_etl.runner.publish.manifest import Manifest, scan
from dptext_etl.runner.shard.charging import subjects_of
from dptext_etl.runner.shard.staging import LISTS, UNIT
from dptext_etl.runner.source.logical_types import logical_types
from dptext_etl.runner.source.roles import in_pinned_order, open_table, with_logical_types
from dptext_etl.runner.source.table import READ_HINT, Files, batches, schema_of

_BATCH_ROWS = 1 << 18
AS_HELD = "name ids as the table holds them"


class Listed(NamedTuple):
    """Canonical ids of records to forget, those of them that are published, and those that the source still holds."""

    records: frozenset[str]
    published: frozenset[str]
    in_source: frozenset[str]

    def require_gone_from_source(self) -> None:
        """Refuse records that the source still holds: they are not erased there."""
        if self.in_source:
            msg = f"the source still holds {len(self.in_source):,} of these records, and nothing erases them there"
            raise InputError(msg, "take them out of the source first")


def subject_ids(policy: Policy, subjects: Sequence[str]) -> pa.Array:
    return normalized(pa.array(subjects, pa.large_string()), policy.normalize)


def known(
    policy: Policy, layouts: Iterable[Layout], ledger: Ledger, subjects: pa.Array, records: Sequence[str]
) -> tuple[Mask, Mask]:
    """Return which subjects and which records the ledger, lists in staging, or the source of a policy know."""
    named = pa.array(records, pa.large_string())
    people, rows = (
        ledger.people.known_subjects(policy.dataset, subjects),
        ledger.people.known_records(policy.dataset, named),
    )
    units = ledger.people.unit_hashes(subjects).to_pylist()
    places = chain.from_iterable(_places(policy, layout, units, subjects.to_pylist()) for layout in layouts)
    while not (people.all() and rows.all()) and (place := next(places, None)) is not None:
        ids, theirs, asked = place
        people |= np.array([one in theirs for one in asked], np.bool_)
        rows |= np.array([one in ids for one in records], np.bool_)
    return people, rows


def _places(
    policy: Policy, layout: Layout, units: list[bytes], subjects: list[str]
) -> Iterator[tuple[set[str], set[bytes] | set[str], list[bytes] | list[str]]]:
    """Yield the ids and the people of each list in staging and of the source, and how the people are named there."""
    for folder in layout.staging.parent.parent.subfolders():
        for name in [name for pattern in LISTS for name in folder.glob(pattern)]:
            with seam("reading lists in staging", InputError, READ_HINT):
                rows = pl.read_parquet(folder.local_path(name, fresh=True))
            ids = _canonical(rows, policy.id) if policy.id in rows.columns else set[str]()
            yield ids, set(rows[UNIT]) if UNIT in rows.columns else set[bytes](), units
    source = source_of(policy, layout, with_subjects=bool(subjects))
    if source is not None:
        yield {*source["id"]}, {*source["subject"]}, subjects


def _canonical(rows: pl.DataFrame, column: str) -> set[str]:
    return set(canonical_ids(rows[column].drop_nulls().to_arrow()).to_pylist())


def require_known(policy: Policy, layout: Layout, ledger: Ledger, subjects: pa.Array, records: Sequence[str]) -> None:
    """Refuse people and records that nothing here knows, such as ids with a typing error."""
    masks = zip(known(policy, [layout], ledger, subjects, records), ("subject", "record"), strict=True)
    unknown = [f"{int((~mask).sum())} of {counted(len(mask), what)}" for mask, what in masks if not mask.all()]
    if unknown:
        raise UnknownIdError(f"{' and '.join(unknown)}: unknown here; nothing was changed", AS_HELD)


def listed(  # noqa: PLR0917
    policy: Policy,
    layout: Layout,
    manifest: Manifest | None,
    ledger: Ledger,
    subjects: pa.Array,
    records: Sequence[str],
    *,
    missing: bool,
) -> Listed:
    """Return the canonical ids of the records to forget, and those among them that are published or in the source."""
    if missing and (manifest is None or not identified(manifest)):
        msg = "the published table holds no ids, so no one can say which of its records the source no longer holds"
        raise InputError(msg, "name subjects or records")
    if manifest is not None and manifest.ids != policy.ids:
        msg = f"what is published has ids = {manifest.ids!r}, and the policy says {policy.ids!r}"
        raise LedgerError(msg, "name the policy that published it, or run this one first")
    published = set[str]()
    for ids in () if manifest is None else published_ids(layout, policy.ledger, manifest):
        published.update(ids.drop_nulls())
    source = source_of(policy, layout, with_subjects=len(subjects) > 0)
    there = set() if source is None else {*source["id"]}
    gone = {*records}
    if len(subjects):
        held = pa.array(sorted(published | there), pa.large_string())
        gone |= set(held.filter(pa.array(ledger.people.of_subjects(policy.dataset, subjects, held))).to_pylist())
        if source is not None:
            gone |= {*source.filter(pl.col("subject").is_in(subjects.to_pylist()))["id"]}
    if missing:
        if source is None:
            msg = "the source cannot be found, so no one can say which records it no longer holds"
            raise InputError(msg, "name subjects or records")
        gone |= published - there
    return Listed(frozenset(gone), frozenset(gone & published), frozenset(gone & there))


def identified(manifest: Manifest) -> bool:
    """Return whether it is known whose record a published row is: by the table, or by lists in staging."""
    return manifest.id is not None or manifest.ids != "keep"


def published_ids(layout: Layout, spec: LedgerSpec, manifest: Manifest) -> Iterator[pl.Series]:
    """Yield the canonical ids of what is published, if anything knows them; null where forgotten in another table."""
    if manifest.ids != "keep":
        yield from own_ids.of_parts(layout.staging, spec, (part.sha256 for part in manifest.parts))
    elif manifest.id is not None:
        for batch in batches(scan(layout, manifest).select(manifest.id), _BATCH_ROWS):
            yield pl.Series(canonical_ids(batch[manifest.id].to_arrow()), dtype=pl.String)


def forgotten_among(ledger: Ledger, dataset: str, ids: pl.Series, units: pl.Series | None = None) -> pl.Series:
    """Return which records are forgotten; ids of some that were are null (`own_ids.blank`)."""
    gone, there = ids.is_null().to_numpy(writable=True), ids.is_not_null()
    theirs = None if units is None else pa.array(units.filter(there).to_list(), pa.binary(32))
    gone[there.to_numpy()] = ledger.people.forgotten(dataset, canonical_ids(ids.drop_nulls().to_arrow()), theirs)
    return pl.Series(gone, dtype=pl.Boolean)


def refuse_forgotten_base(layout: Layout, spec: LedgerSpec, ledger: Ledger, refs: Iterable[ReleaseRef]) -> None:
    """Refuse to add to a version that holds forgotten records (docs/spec/privacy.md#forgotten).

    Its ids are read only if the release ever held a record that is forgotten now.
    """
    manifest = Manifest.read(layout)
    if manifest is None or not any(ledger.people.count_forgotten(ref) for ref in refs):
        return
    published = published_ids(layout, spec, manifest)
    count = sum(int(forgotten_among(ledger, manifest.dataset, ids).sum()) for ids in published)
    if count:
        are = counted(count, "row of what is published here is", "rows of what is published here are")
        msg = f"{are} of people or records that were forgotten in another release or sink"
        raise LedgerError(msg, "`dptext forget` takes them out: name the same people for this policy, too")


def source_of(policy: Policy, layout: Layout, *, with_subjects: bool) -> pl.DataFrame | None:
    """Return the canonical ids, and the subjects if asked for, of the source; None if there is none."""
    if not is_remote(layout.source) and not glob.glob(layout.source, recursive=True):  # noqa: PTH207  (as `Files`)
        return None
    names = (policy.id, policy.subject) if with_subjects and policy.subject is not None else (policy.id,)
    files = Files.find(layout)
    scanned = with_logical_types(files.scan(names), policy, logical_types(files))
    found = schema_of(scanned)
    if set(names) <= set(found):
        rows = in_pinned_order(scanned.select(names), found, policy)
    else:  # a column in the names of folders
        rows = open_table(policy, layout).frame.select(names)
    with seam("reading record ids", InputError, READ_HINT):
        table = rows.collect(engine="streaming")
        ids = pl.Series("id", canonical_ids(table[policy.id].to_arrow()), dtype=pl.String)
        subjects = subjects_of(table, policy) if len(names) > 1 else None
        named = pl.Series("subject", pa.nulls(len(ids), pa.string()) if subjects is None else subjects, dtype=pl.String)
    return pl.DataFrame([ids, named])
