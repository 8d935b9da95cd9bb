"""Find the records of people in a release, and publish a new version without them.

The ledger retires the older versions, so that no one can restore one unnoticed. Charges stay, as HMACs of ids, because
the texts were released. Copies of readers cannot be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl import keys
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.data_types import by_name
from dptext_etl.errors import InputError, LedgerError, PolicyError, UnknownIdError, bare, counted, seam
from dptext_etl.files import literal
from dptext_etl.keys import canonical_ids, normalized
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.types import Mask
from dptext_etl.policy import LedgerSpec, Policy, PolicyLike, resolve, tables_of
from dptext_etl.policy.terms import TABLE
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.progress import Checkpoint, nothing
from dptext_etl.runner.publish import versions
from dptext_etl.runner.publish.manifest import as_stored, published_manifest, require_whole, scan
from dptext_etl.runner.publish.parts import HiddenIds, Writer, blank_ids, ids_of_parts, keep_id_lists
from dptext_etl.runner.publish.versions import alone_at, show
from dptext_etl.runner.shard.attempt import remember, require_same_ledger
from dptext_etl.runner.shard.charging import subjects_of
from dptext_etl.runner.shard.staging import LISTS, UNIT, VECTORS, Staging
from dptext_etl.runner.source import selection
from dptext_etl.runner.source.column_types import logical_types, restored
from dptext_etl.runner.source.roles import in_pinned_order, open_table
from dptext_etl.runner.source.table import READ_HINT, Files, batches, existing_paths, naming_file, schema_of
from dptext_etl.storage import Storage

_BATCH_ROWS = 1 << 18
AS_IN_TABLE = "name ids as the table holds them"


class Listed(NamedTuple):
    """Canonical ids of records to forget, with the published ones and the ones that the source still holds."""

    records: frozenset[str]
    published: frozenset[str]
    in_source: frozenset[str]

    def require_gone_from_source(self) -> None:
        """Refuse records that the source still holds: they are not erased there."""
        if self.in_source:
            msg = f"the source still holds {len(self.in_source):,} of these records, and nothing erases them there"
            raise InputError(msg, "remove them from the source first")


def subject_ids(policy: Policy, subjects: Sequence[str]) -> pa.Array:
    return normalized(pa.array(subjects, pa.large_string()), policy.normalize)


def look_up(
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
        ids, subjects_there, wanted = place
        people |= np.array([person in subjects_there for person in wanted], np.bool_)
        rows |= np.array([record in ids for record in records], np.bool_)
    return people, rows


def _places(
    policy: Policy, layout: Layout, units: list[bytes], subjects: list[str]
) -> Iterator[tuple[set[str], set[bytes] | set[str], list[bytes] | list[str]]]:
    """Yield the ids and the people of each list in staging and of the source, and how the people are named there."""
    for folder in layout.memory.subfolders():
        for name in [name for pattern in LISTS for name in folder.glob(pattern)]:
            with seam("reading lists in staging", InputError, READ_HINT):
                rows = pl.read_parquet(literal(folder.local_path(name, fresh=True)))
            ids = set[str]()
            if policy.id in rows.columns:
                ids = set(canonical_ids(rows[policy.id].to_arrow().drop_null()).to_pylist())
            yield ids, set(rows[UNIT]) if UNIT in rows.columns else set[bytes](), units
    source = source_of(policy, layout, with_subjects=bool(subjects))
    if source is not None:
        yield {*source["id"]}, {*source["subject"]}, subjects


def require_known(policy: Policy, layout: Layout, ledger: Ledger, subjects: pa.Array, records: Sequence[str]) -> None:
    """Refuse people and records that nothing here knows, such as ids with a typing error."""
    masks = zip(look_up(policy, [layout], ledger, subjects, records), ("subject", "record"), strict=True)
    unknown = [f"{int((~mask).sum())} of {counted(len(mask), what)}" for mask, what in masks if not mask.all()]
    if unknown:
        raise UnknownIdError(f"{' and '.join(unknown)}: unknown here; nothing was changed", AS_IN_TABLE)


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
        msg = f"the published table has ids = {manifest.ids!r}, and the policy says {policy.ids!r}"
        raise LedgerError(msg, "name the policy that published it, or run this one first")
    published = set[str]()
    for ids in () if manifest is None else published_ids(layout, policy.ledger, manifest):
        published.update(ids.drop_nulls())
    source = source_of(policy, layout, with_subjects=len(subjects) > 0)
    there = set() if source is None else {*source["id"]}
    gone = {*records}
    if len(subjects):
        candidates = pa.array(sorted(published | there), pa.large_string())
        gone |= set(
            candidates.filter(pa.array(ledger.people.of_subjects(policy.dataset, subjects, candidates))).to_pylist()
        )
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
    """Yield the canonical ids of published rows, if they are known; null where forgotten in another table."""
    if manifest.ids != "keep":
        yield from ids_of_parts(layout.staging, spec, (part.sha256 for part in manifest.parts))
    elif manifest.id is not None:
        for batch in batches(scan(layout, manifest).select(by_name(manifest.id)), _BATCH_ROWS):
            yield pl.Series(canonical_ids(batch[manifest.id].to_arrow()), dtype=pl.String)


def forgotten_among(ledger: Ledger, dataset: str, ids: pl.Series, units: pl.Series | None = None) -> pl.Series:
    """Return which records are forgotten; ids of some that were are null (`blank_ids`)."""
    ids = ids.alias("id")
    gone, there = ids.is_null().to_numpy(writable=True), ids.is_not_null()
    hashes = None if units is None else pa.array(units.filter(there).to_list(), pa.binary(32))
    gone[there.to_numpy()] = ledger.people.forgotten(dataset, canonical_ids(ids.drop_nulls().to_arrow()), hashes)
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
        are = counted(count, "row of the published table is", "rows of the published table are")
        msg = f"{are} of people or records that were forgotten in another release or sink"
        raise LedgerError(msg, "`dptext forget` removes them: name the same people for this policy, too")


def source_of(policy: Policy, layout: Layout, *, with_subjects: bool) -> pl.DataFrame | None:
    """Return the canonical ids, and the subjects if asked for, of the source; None if there is none."""
    elsewhere = is_remote(layout.source) or layout.source.startswith(TABLE)
    if not elsewhere and not existing_paths(layout.source):
        return None
    names = (policy.id, policy.subject) if with_subjects and policy.subject is not None else (policy.id,)
    files = Files.find(layout)
    scanned = restored(files.scan(all_text=True), logical_types(files))
    schema = schema_of(scanned)
    if set(names) <= set(schema):
        rows = in_pinned_order(scanned.select(map(by_name, names)), schema, policy)
    else:  # a column in the names of folders
        rows = open_table(policy, layout).frame.select(map(by_name, names))
    with naming_file(lambda: files, names), seam("reading record ids", InputError, READ_HINT):
        table = rows.collect(engine="streaming")
        ids = pl.Series("id", canonical_ids(table[policy.id].to_arrow()), dtype=pl.String)
        subjects = subjects_of(table, policy) if len(names) > 1 else None
        named = pl.Series("subject", pa.nulls(len(ids), pa.string()) if subjects is None else subjects, dtype=pl.String)
    return pl.DataFrame([ids, named])


_WHOM = 'name them: subjects, records, or missing=True ("--missing": all that the source no longer holds)'


@dataclass(frozen=True)
class ForgetSummary:
    """The result for a published table."""

    version: int  # the version that readers see now
    removed: int  # number of published rows that were removed
    rows: int  # number of rows that stay published
    versions: list[str]  # folders of older versions that were deleted
    staged: int  # number of files in staging that were removed, or written without these people
    noted: int  # number of records that the ledger did not know as forgotten before
    withdrawn: bool = False  # whether the table was a shuffled release, which holds no ids: all of it is gone
    stays: bool = False  # whether the table is a synthetic one: its statistic was charged, and stays as it is
    audiences: dict[str, ForgetSummary] = field(default_factory=dict)  # of their tables that are published, by name


Forgets = Callable[..., pl.Series]
"""Says which records are forgotten, given by ids, and also by keyed hashes of their units where these are listed."""


@bare
def forget(
    policy: PolicyLike,
    *,
    partition: str | None = None,
    subjects: Sequence[str] = (),
    records: Sequence[str] = (),
    missing: bool = False,
    checked: bool = False,
    dry_run: bool = False,
    checkpoint: Checkpoint = nothing,
) -> ForgetSummary:
    """Publish a version without some people, retire the older ones, and delete their files.

    A shuffled release that holds them is withdrawn as a whole, because a reader of a version without them would know
    their texts from the difference. Publish those who stay under a new release name.

    A synthetic table stays: its noisy statistic was charged. The people are noted in the ledger, so no later
    release holds them; a table without them needs a new release name, and charges all others again.

    Remove the rows from the source first: a source that still holds them is refused. If a call was killed, the same
    call completes it. If the ledger, lists in staging, and the source do not know a person or record, nothing is
    changed; `checked` leaves this check out, for a caller that looked in other places as well. With `dry_run`, say what
    would change, without locks; files in staging are not counted.

    The tables of audiences follow the policy's own table, in order.
    """
    own, *others = tables_of(resolve(policy))
    named: dict[str, Any] = {"partition": partition, "subjects": subjects, "records": records, "missing": missing}
    of_table: Callable[..., ForgetSummary] = _preview if dry_run else partial(forget_table, checkpoint=checkpoint)
    done, also = of_table(own, **named, checked=checked), dict[str, ForgetSummary]()
    for item in others:
        if Manifest.read(Layout.of(item, partition)) is not None:
            also[str(item.audience)] = of_table(item, **named, checked=True)
        elif not dry_run and (subjects or records):
            forget_drafts(item, partition=partition, subjects=subjects, records=records)
    return replace(done, audiences=also)


def forget_table(
    policy: Policy,
    *,
    partition: str | None = None,
    subjects: Sequence[str] = (),
    records: Sequence[str] = (),
    missing: bool = False,
    checked: bool = False,
    checkpoint: Checkpoint = nothing,
) -> ForgetSummary:
    """Publish a version of one table without some people, as `forget` does."""
    layout = Layout.of(policy, partition)
    _require(policy, subjects, records, missing=missing)
    manifest = Manifest.read(layout)
    if manifest is None:  # a table that was never published may have no ledger
        hint = "`dptext forget POLICY --everywhere` also removes people from staging; `dptext run POLICY` publishes"
        raise InputError(f"nothing is published at {layout.sink}", hint)
    storage = layout.staging
    with _opened(layout, policy, manifest) as ledger, alone_at(layout) as (_, renew_lock):
        versions.require_alone(layout)
        before = published_manifest(layout)
        refs = _refs(ledger, policy, before)
        if policy.ids != "keep":  # another key would give all others other ids
            for ref in refs:
                ledger.releases.require_key(ref, keys.resolve(policy.key))
        ids = subject_ids(policy, subjects)
        if not checked:
            require_known(policy, layout, ledger, ids, records)
        people = listed(policy, layout, before, ledger, ids, records, missing=missing)
        people.require_gone_from_source()
        # the ledger first: if this call is killed, no later run releases these people, and the same call completes it
        new = ledger.people.forget(policy.dataset, pa.array(sorted(people.records), pa.large_string()), ids)
        remember(ledger, policy)
        checkpoint("forgotten")
        is_forgotten = partial(forgotten_among, ledger, policy.dataset)
        now, lists = before, set[str]()
        if policy.synthetic is None and (identified(before) or any(ledger.people.count_forgotten(ref) for ref in refs)):
            now, lists = _publish_without(is_forgotten, layout, policy, before, ledger, refs, checkpoint, renew_lock)
        else:
            show(layout, before)  # a run that was killed may not have done so, and older versions go
        with suppress(LedgerError):  # a revoked or frozen release accepts no more records; the commit holds the digest
            versions.record(layout, now, ledger, refs)
        remember(ledger, policy)
        checkpoint("shown")
        older = versions.unlisted(layout, now)
        versions.delete(layout, older, every_older=True)
        keep_id_lists(storage, (part.sha256 for part in now.parts), lists)
        selection.carry(storage, before.digest, now.digest)
        staged = _take_out_of_staging(layout, policy, is_forgotten, by_subject=len(ids) > 0)
    withdrawn = not identified(before) and before.rows > now.rows
    stays = policy.synthetic is not None
    return ForgetSummary(now.version, before.rows - now.rows, now.rows, older, staged, new, withdrawn, stays)


def _preview(
    policy: Policy,
    *,
    partition: str | None,
    subjects: Sequence[str],
    records: Sequence[str],
    missing: bool,
    checked: bool,
) -> ForgetSummary:
    layout = Layout.of(policy, partition)
    _require(policy, subjects, records, missing=missing)
    before = published_manifest(layout)
    with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
        require_same_ledger(ledger, layout, policy, before, freezing=False)
        refs, ids = _refs(ledger, policy, before), subject_ids(policy, subjects)
        if not checked:
            require_known(policy, layout, ledger, ids, records)
        people = listed(policy, layout, before, ledger, ids, records, missing=missing)
        people.require_gone_from_source()
        named = pa.array(sorted(people.records), pa.large_string())
        new, held = ledger.people.would_forget(policy.dataset, named, ids, refs)
    stays = policy.synthetic is not None
    withdrawn = not identified(before) and not stays and held
    removed = before.rows if withdrawn else len(people.published)
    older = versions.unlisted(layout, before)
    if removed:  # the current version goes, too
        older = versions.unlisted(layout, None)
    version = before.version + (1 if removed else 0)
    return ForgetSummary(version, removed, before.rows - removed, older, 0, new, withdrawn, stays)


@bare
def forget_drafts(
    policy: Policy, *, partition: str | None, subjects: Sequence[str], records: Sequence[str]
) -> tuple[int, int]:
    """Remove people from the staging of a table that was never published; count newly noted records, and files."""
    layout = Layout.of(policy, partition)
    _require(policy, subjects, records, missing=False)
    with _opened(layout, policy, Manifest.read(layout)) as ledger:
        ids = subject_ids(policy, subjects)
        new = ledger.people.forget(policy.dataset, pa.array(sorted(records), pa.large_string()), ids)
        remember(ledger, policy)
        is_forgotten = partial(forgotten_among, ledger, policy.dataset)
        return new, _take_out_of_staging(layout, policy, is_forgotten, by_subject=len(ids) > 0)


@contextmanager
def _opened(layout: Layout, policy: Policy, manifest: Manifest | None) -> Iterator[Ledger]:
    """Lock the staging folder, which a release that did not run yet lacks, and open the ledger."""
    layout.staging.prepare()
    # no run of this release may stage or publish these people while they are removed
    with (
        layout.staging.lock("of this release is under way"),
        Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False) as ledger,
    ):
        require_same_ledger(ledger, layout, policy, manifest)
        yield ledger


def _take_out_of_staging(layout: Layout, policy: Policy, is_forgotten: Forgets, *, by_subject: bool) -> int:
    changed = 0
    for folder in layout.memory.subfolders():
        changed += _take_out(folder, policy, is_forgotten, by_subject=by_subject) + blank_ids(
            folder, policy.ledger, is_forgotten
        )
    return changed


def _require(policy: Policy, subjects: Sequence[str], records: Sequence[str], *, missing: bool) -> None:
    if not (subjects or records or missing):
        raise PolicyError("no one is named who is to be forgotten", _WHOM)
    if subjects and policy.unit == "record":
        raise PolicyError('the policy\'s unit is "record": its ledger knows no subjects', "name records")


def _refs(ledger: Ledger, policy: Policy, manifest: Manifest) -> list[ReleaseRef]:
    """Return the published releases, if the ledger knows this manifest."""
    refs = list(ledger.releases.find_all(policy).values())
    recorded = [
        {*ledger.releases.published(ref).values(), *ledger.releases.retired(ref)} for ref in refs
    ]  # in any sink
    if (manifest.dataset, manifest.release) != (policy.dataset, policy.release) or len(refs) < len(policy.text_columns):
        raise LedgerError("the published table is not a release of this policy", "name the policy that published it")
    if not all(manifest.digest in digests for digests in recorded):
        raise LedgerError("the ledger did not record the manifest of this sink", "`dptext check` says more")
    return refs


def _publish_without(  # noqa: PLR0917
    is_forgotten: Forgets,
    layout: Layout,
    policy: Policy,
    before: Manifest,
    ledger: Ledger,
    refs: list[ReleaseRef],
    checkpoint: Checkpoint,
    renew_lock: Callable[[], None],
) -> tuple[Manifest, set[str]]:
    """Publish a version without these records if the current one holds some; return it and its lists of own ids."""
    require_whole(layout, before)
    hidden = HiddenIds.of(policy)
    column = before.id if hidden is None else hidden.column
    digests = (part.sha256 for part in before.parts)
    own_ids = None if hidden is None else ids_of_parts(layout.staging, policy.ledger, digests)
    with Writer(layout, Staging(layout.staging), before.version + 1, hidden=hidden) as writer:
        writer.format = before.file_format  # the source may have another one by now
        for number, part in enumerate(before.parts):
            with seam("reading the published table", InputError, READ_HINT):
                rows = as_stored(layout, before, (layout.part(part.path),)).collect()
            if own_ids is not None:
                rows = rows.with_columns(own_ids[number].alias(str(column)))
            left = rows.clear() if column is None else rows.filter(~is_forgotten(rows[column]))
            if left.height:
                writer.add_rows(left)
        if not writer.parts:  # a table of no rows has its columns still
            writer.add_rows(left)
        parts = writer.parts
        retired = any(before.digest in ledger.releases.retired(ref, layout.place) for ref in refs)
        if sum(part.rows for part in parts) == before.rows and not retired:
            show(layout, before)
            return before, writer.lists
        now = replace(before, version=writer.version, parts=parts)
        place = "" if now.partition is None else f"{now.partition}/"
        checkpoint("parts written")
        ledger.releases.retire(refs, place, now.name, now.digest, now.rows, sink=layout.place)
        checkpoint("recorded")
        writer.finish(renew_lock)
    now.write(layout, before)
    checkpoint("manifest written")
    show(layout, now)
    return now, writer.lists


def _take_out(storage: Storage, policy: Policy, is_forgotten: Forgets, *, by_subject: bool) -> int:
    """Remove the records from lists and kept bytes, and staged shards that hold them or do not show whose they are.

    A list holds records that may never have been charged, so only the units in it show whose they are.
    """
    changed, action = 0, "removing records from staging"
    with seam(action, InputError, "call this again: it continues from here"):
        vectors = storage.glob(f"{VECTORS}-*")  # they do not show whose they are
        storage.delete(*vectors)
        changed += len(vectors)
        lists = {name for pattern in LISTS for name in storage.glob(pattern)}
        for name in storage.glob("*.parquet"):
            frame, stem = pl.read_parquet(literal(storage.local_path(name, fresh=True))), name.removesuffix(".parquet")
            units = frame[UNIT] if UNIT in frame.columns else None
            identifies = policy.id in frame.columns and not (name in lists and by_subject and units is None)
            every = pl.Series([True] * frame.height, dtype=pl.Boolean)
            forgotten = is_forgotten(frame[policy.id], units) if identifies else every
            if not forgotten.any():
                continue
            changed += 1
            draws, posts = f"{stem}.draws", storage.glob(f"{stem}-*.post")
            if name.startswith("shard-") or not identifies:
                storage.delete(f"{stem}.json", f"{stem}.post", *posts, draws, name)
                continue
            for post in posts:  # row by row the same records
                rows = _without(pl.read_parquet(literal(storage.local_path(post, fresh=True))), forgotten)
                storage.write(post, rows.write_parquet, action=action)
            if (path := storage.local_path(draws, fresh=True)).exists():
                storage.write(draws, _without(pl.read_ipc(literal(path)), forgotten).write_ipc, action=action)
            storage.write(name, _without(frame, forgotten).write_parquet, action=action)
    return changed


def _without(rows: pl.DataFrame, forgotten: pl.Series) -> pl.DataFrame:
    """Remove records, unless an interrupted call has already removed them from this file."""
    return rows.filter(~forgotten) if rows.height == len(forgotten) else rows
