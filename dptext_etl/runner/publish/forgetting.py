"""Find the records of people in a release, and publish a new version without them.

The ledger retires the older versions, so that no one can restore one unnoticed. Charges stay, as HMACs of ids, because
the texts were released. Copies of readers cannot be reached.

`erase` removes people from everything that the policies of a folder publish or stage. Its plan is made first, and
changes nothing. It is refused if a person is unknown, if a source still holds records of theirs, or if a policy does
not say whose records it publishes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, compress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl import keys
from dptext_etl.checks.sink_files import MANIFEST, Manifest
from dptext_etl.checks.sink_files import TABLE as TABLE_FOLDER
from dptext_etl.data_types import by_name
from dptext_etl.errors import InputError, LedgerError, PolicyError, UnknownIdError, bare, counted, seam
from dptext_etl.files import literal
from dptext_etl.keys import canonical_ids, normalized
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.ledger import ledger_exists
from dptext_etl.ledger.types import Mask
from dptext_etl.policy import PARTITION, Policy, PolicyLike, resolve, tables_of
from dptext_etl.policy.terms import TABLE
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.progress import Checkpoint, nothing
from dptext_etl.runner.publish import versions
from dptext_etl.runner.publish.manifest import as_stored, carry_excluded, published_manifest, require_whole
from dptext_etl.runner.publish.parts import HiddenIds, Writer, blank_ids, ids_of_parts, keep_id_lists
from dptext_etl.runner.publish.publication import forgotten_among, published_ids
from dptext_etl.runner.publish.versions import alone_at, show
from dptext_etl.runner.shard.attempt import UNDER_WAY, remember, require_audiences, require_same_ledger
from dptext_etl.runner.shard.charging import subjects_of
from dptext_etl.runner.shard.staging import LISTS, UNIT, VECTORS, Staging
from dptext_etl.runner.source.column_types import logical_types, restored
from dptext_etl.runner.source.roles import in_pinned_order, open_table
from dptext_etl.runner.source.table import READ_HINT, Files, existing_paths, naming_file, schema_of
from dptext_etl.storage import Storage

AS_IN_TABLE = "name ids as the table holds them"


def subject_ids(policy: Policy, subjects: Sequence[str]) -> pa.Array:
    return normalized(pa.array(subjects, pa.large_string()), policy.normalize)


def look_up(
    policy: Policy, layouts: Iterable[Layout], ledger: Ledger, subjects: pa.Array, records: Sequence[str]
) -> tuple[Mask, Mask]:
    """Return which subjects and which records the ledger, lists in staging, or the source of a policy know."""
    people = ledger.people.known_subjects(policy.dataset, subjects)
    rows = ledger.people.known_records(policy.dataset, pa.array(records, pa.large_string()))
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
            listed_ids = rows[policy.id] if policy.id in rows.columns else pl.Series(dtype=pl.String)
            ids = set(canonical_ids(listed_ids.to_arrow().drop_null()).to_pylist())
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
) -> tuple[set[str], set[str]]:
    """Return the canonical ids of the records to forget, and the published ones among them.

    Records that the source still holds are refused: they are not erased there.
    """
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
        mask = ledger.people.of_subjects(policy.dataset, subjects, candidates)
        gone |= set(candidates.filter(pa.array(mask)).to_pylist())
        if source is not None:
            gone |= {*source.filter(pl.col("subject").is_in(subjects.to_pylist()))["id"]}
    if missing:
        if source is None:
            msg = "the source cannot be found, so no one can say which records it no longer holds"
            raise InputError(msg, "name subjects or records")
        gone |= published - there
    if gone & there:
        msg = f"the source still holds {len(gone & there):,} of these records, and nothing erases them there"
        raise InputError(msg, "remove them from the source first")
    return gone, gone & published


def identified(manifest: Manifest) -> bool:
    """Return whether it is known whose record a published row is: by the table, or by lists in staging."""
    return manifest.id is not None or manifest.ids != "keep"


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

    version: int  # the version that readers see now; 0 if none was ever published
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
    named |= {"dry_run": dry_run, "checkpoint": checkpoint}
    done, also = forget_table(own, **named, checked=checked), dict[str, ForgetSummary]()
    for item in others:
        if Manifest.read(Layout.of(item, partition)) is not None:
            also[str(item.audience)] = forget_table(item, **named, checked=True)
        elif not dry_run and (subjects or records):
            forget_table(item, partition=partition, subjects=subjects, records=records, drafts=True)
    return replace(done, audiences=also)


def forget_table(
    policy: Policy,
    *,
    partition: str | None = None,
    subjects: Sequence[str] = (),
    records: Sequence[str] = (),
    missing: bool = False,
    checked: bool = False,
    drafts: bool = False,
    dry_run: bool = False,
    checkpoint: Checkpoint = nothing,
) -> ForgetSummary:
    """Publish a version of one table without some people, as `forget` does; with `dry_run`, only count.

    With `drafts`, the table was never published, and the people are only removed from its staging.
    """
    layout, ids = Layout.of(policy, partition), subject_ids(policy, subjects)
    if not (subjects or records or missing):
        raise PolicyError("no one is named who is to be forgotten", _WHOM)
    if subjects and policy.unit == "record":
        raise PolicyError('the policy\'s unit is "record": its ledger knows no subjects', "name records")
    manifest = Manifest.read(layout)
    if manifest is None and not drafts:  # a table that was never published may have no ledger
        hint = "`dptext forget POLICY --everywhere` also removes people from staging; `dptext run POLICY` publishes"
        raise InputError(f"nothing is published at {layout.sink}", hint)
    storage, stays, spec = layout.staging, policy.synthetic is not None, policy.ledger
    with ExitStack() as opened:
        if not dry_run:  # no run of this release may stage or publish these people while they are removed
            layout.staging.prepare()
            opened.enter_context(layout.staging.lock(UNDER_WAY))
        ledger = opened.enter_context(Ledger.open(spec.url, spec.id_key, create=False, read_only=dry_run))
        require_same_ledger(ledger, layout, policy, manifest, freezing=not dry_run)
        is_forgotten = partial(forgotten_among, ledger, policy.dataset)
        if drafts:
            new = ledger.people.forget(policy.dataset, pa.array(sorted(records), pa.large_string()), ids)
            remember(ledger, policy)
            return ForgetSummary(0, 0, 0, [], _take_out(layout, policy, is_forgotten, by_subject=len(ids) > 0), new)
        if not dry_run:
            _, renew_lock = opened.enter_context(alone_at(layout))
            versions.require_alone(layout)
        before = published_manifest(layout)
        refs = _refs(ledger, policy, before)
        for ref in () if policy.ids == "keep" or dry_run else refs:  # another key would give all others other ids
            ledger.releases.require_key(ref, keys.resolve(policy.key))
        if not checked:
            require_known(policy, layout, ledger, ids, records)
        gone, published = listed(policy, layout, before, ledger, ids, records, missing=missing)
        named = pa.array(sorted(gone), pa.large_string())
        if dry_run:
            new, held = ledger.people.would_forget(policy.dataset, named, ids, refs)
            withdrawn = not identified(before) and not stays and held
            removed = before.rows if withdrawn else len(published)
            older = versions.unlisted(layout, None if removed else before)  # the current version goes, too
            version, left = before.version + (removed > 0), before.rows - removed
            return ForgetSummary(version, removed, left, older, 0, new, withdrawn, stays)
        # the ledger first: if this call is killed, no later run releases these people, and the same call completes it
        new = ledger.people.forget(policy.dataset, named, ids)
        remember(ledger, policy)
        checkpoint("forgotten")
        # a run that was killed may not have shown its version, and older ones go
        now, lists = _publish_without(is_forgotten, layout, policy, before, ledger, refs, checkpoint, renew_lock)
        with suppress(LedgerError):  # a revoked or frozen release accepts no more records; the commit holds the digest
            versions.record(layout, now, ledger, refs)
        remember(ledger, policy)
        checkpoint("shown")
        versions.delete(layout, older := versions.unlisted(layout, now), every_older=True)
        keep_id_lists(storage, (part.sha256 for part in now.parts), lists)
        carry_excluded(storage, before.digest, now.digest)
        staged = _take_out(layout, policy, is_forgotten, by_subject=len(ids) > 0)
    withdrawn, removed = not identified(before) and before.rows > now.rows, before.rows - now.rows
    return ForgetSummary(now.version, removed, now.rows, older, staged, new, withdrawn, stays)


def _refs(ledger: Ledger, policy: Policy, manifest: Manifest) -> list[ReleaseRef]:
    """Return the published releases, if the ledger knows this manifest."""
    refs, releases = list(ledger.releases.find_all(policy).values()), ledger.releases
    if (manifest.dataset, manifest.release) != (policy.dataset, policy.release) or len(refs) < len(policy.text_columns):
        raise LedgerError("the published table is not a release of this policy", "name the policy that published it")
    recorded = ({*releases.published(ref).values(), *releases.retired(ref)} for ref in refs)  # in any sink
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
    if policy.synthetic is not None or not (identified(before) or any(map(ledger.people.count_forgotten, refs))):
        show(layout, before)
        return before, set()
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


def _take_out(layout: Layout, policy: Policy, is_forgotten: Forgets, *, by_subject: bool) -> int:
    """Remove the records from lists and kept bytes, and staged shards that hold them or do not show whose they are.

    A list holds records that may never have been charged, so only the units in it show whose they are.
    """
    changed, action = 0, "removing records from staging"
    for storage in layout.memory.subfolders():
        with seam(action, InputError, "call this again: it continues from here"):
            vectors = storage.glob(f"{VECTORS}-*")  # they do not show whose they are
            storage.delete(*vectors)
            lists = {name for pattern in LISTS for name in storage.glob(pattern)}
            for name in storage.glob("*.parquet"):
                frame = pl.read_parquet(literal(storage.local_path(name, fresh=True)))
                units = frame[UNIT] if UNIT in frame.columns else None
                identifies = policy.id in frame.columns and not (name in lists and by_subject and units is None)
                every = pl.Series([True] * frame.height, dtype=pl.Boolean)
                forgotten = is_forgotten(frame[policy.id], units) if identifies else every
                if not forgotten.any():
                    continue
                changed, stem = changed + 1, name.removesuffix(".parquet")
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
        changed += len(vectors) + blank_ids(storage, policy.ledger, is_forgotten)
    return changed


def _without(rows: pl.DataFrame, forgotten: pl.Series) -> pl.DataFrame:
    """Remove records, unless an interrupted call has already removed them from this file."""
    return rows.filter(~forgotten) if rows.height == len(forgotten) else rows


Outcome = Literal["removed", "withdrawn", "statistic stays", "not published", "not in it"]


@dataclass(frozen=True)
class ErasedTable:
    policy: str  # path of the policy file
    dataset: str  # its dataset
    release: str  # its release
    audience: str | None  # whose table it is; None for the policy's own table
    partition: str | None  # the partition, if the policy has partitions
    # rows are removed; a shuffled release is withdrawn as a whole; a synthetic table keeps its statistic; the table is
    # not published, so only staging changes; or it holds none of these people
    outcome: Outcome
    records: int  # published rows of these people; of a table without ids, their records in its release
    version: int | None = None  # the version that readers see afterwards; None in a dry run
    deleted: list[str] = field(default_factory=list)  # names of older versions whose files were deleted
    staged: int = 0  # files in staging that were removed, or written without these people


@dataclass(frozen=True)
class Erasure:
    """The plan of an erasure, or its result."""

    dry_run: bool  # whether nothing was changed
    people: int  # number of subjects and records that were named
    places: list[ErasedTable]  # one entry per published table of the policies
    # publications that a ledger records under names that no policy here has: look for their files
    elsewhere: list[dict[str, Any]]
    noted: int = 0  # records that the ledgers newly note as forgotten


class _PublishedTable(NamedTuple):
    """One published table, and which of the people its dataset knows."""

    file: Path
    policy: Policy
    partition: str | None
    subjects: list[str]
    records: list[str]


@bare
def erase(
    where: Path,
    *,
    subjects: Sequence[str] = (),
    records: Sequence[str] = (),
    dry_run: bool = False,
    progress: Callable[[ErasedTable], None] | None = None,
) -> Erasure:
    """Remove people from every table that the policies in a file, or in a folder at any depth, publish."""
    chosen = []  # other TOML files of a folder have no dataset
    for file in sorted(where.rglob("*.toml")) if where.is_dir() else [where]:
        with suppress(OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            if file == where or "dataset" in tomllib.loads(file.read_text(encoding="utf-8-sig")):
                chosen.append(file)
    if not chosen:
        raise PolicyError(f"there is no policy file in {where}", "name the folder that holds them, or one policy file")
    policies = [(file, table) for file in chosen for table in tables_of(Policy.load(file))]
    if subjects and any(policy.unit == "record" for _, policy in policies):
        names = ", ".join(sorted(file.name for file, policy in policies if policy.unit == "record"))
        msg = f'{names}: unit is "record", so the ledger does not know whose records they are; nothing was changed'
        hint = "call `dptext forget POLICY --record ID` for these policies, and move them to another folder"
        raise PolicyError(msg, hint)
    tables, elsewhere = _tables_of(policies, list(subjects), list(records))
    seen: dict[tuple[str, str, str | None], str] = {}  # a copy of a policy that was kept describes its table wrongly
    for table in tables:
        policy = table.policy
        other = seen.setdefault((policy.sink, policy.release, table.partition), str(table.file))
        if other != str(table.file):
            msg = f"{other} and {table.file} publish release {policy.release} to one place; nothing was changed"
            raise PolicyError(msg, "keep the one that published it, and move the other to another folder")
    places = [_outcome(table) for table in tables]
    plan = Erasure(True, len({*subjects}) + len({*records}), places, elsewhere)
    if dry_run:
        return plan
    erased, noted = [], 0
    for table, place in zip(tables, places, strict=True):
        changed, drafts = place, place.outcome == "not published"
        named: dict[str, Any] = {"partition": table.partition, "subjects": table.subjects, "records": table.records}
        if table.subjects or table.records:
            done = forget_table(table.policy, checked=True, drafts=drafts, **named)
            if place.outcome == "not in it" and done.removed:  # another table removed their ids from staging before
                changed = replace(place, outcome="removed", records=done.removed)
            version = None if drafts else done.version
            changed = replace(changed, version=version, deleted=done.versions, staged=done.staged)
            noted += done.noted
        erased.append(changed)
        if progress is not None:
            progress(changed)
    return replace(plan, dry_run=False, places=erased, noted=noted)


def _tables_of(
    policies: list[tuple[Path, Policy]], subjects: list[str], records: list[str]
) -> tuple[list[_PublishedTable], list[dict[str, Any]]]:
    """Find the published tables of these people, and publications that no policy here names; refuse unknown people."""
    here = {(policy.dataset, policy.release) for _, policy in policies}
    tables, elsewhere = list[_PublishedTable](), dict[tuple[str, str], dict[str, Any]]()
    seen_subjects, seen_records = np.zeros(len(subjects), bool), np.zeros(len(records), bool)
    for file, policy in policies:
        if not ledger_exists(policy.ledger.url):  # it never ran
            continue
        partitions = partitions_of(policy)
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
            require_audiences(ledger, policy)
            layouts = (Layout.of(policy, partition) for partition in partitions)
            known_subjects, known_records = look_up(policy, layouts, ledger, subject_ids(policy, subjects), records)
            names, rows = list(compress(subjects, known_subjects)), list(compress(records, known_records))
            ids = pa.array(rows, pa.large_string())
            for entry in ledger.people.publications_of(policy.dataset, ids, subject_ids(policy, names)):
                name = policy.dataset, entry["release"]
                if partitions and name not in here:
                    counts = {"versions": entry["versions"], "records": entry["records"]}
                    elsewhere[name] = {"dataset": name[0], "release": name[1], **counts}
        seen_subjects |= known_subjects
        seen_records |= known_records
        tables += [_PublishedTable(file, policy, partition, names, rows) for partition in partitions]
    unknown = int((~seen_subjects).sum()), int((~seen_records).sum())
    if any(unknown):
        msg = f"none of these policies knows {unknown[0]:,} of {len(subjects):,} subjects and {unknown[1]:,} of "
        raise InputError(f"{msg}{len(records):,} records; nothing was changed", AS_IN_TABLE)
    return tables, [*elsewhere.values()]


def partitions_of(policy: Policy) -> list[str | None]:
    """Return the partitions that are published or staged; None means the whole table."""
    if PARTITION not in policy.sink:
        return [None]
    head, _, tail = policy.sink.rstrip("/").partition(PARTITION)
    above, _, begins = head.rpartition("/")
    if is_remote(policy.sink):
        names = Storage.open(above, policy.storage_options).names()
        ends = rf"/(?:{TABLE_FOLDER}/)?{re.escape(MANIFEST)}"
    else:
        root = Path(above or ".")
        names = [path.relative_to(root).as_posix() for path in root.rglob("*")] if root.is_dir() else []
        ends = rf"(?:\.manifest\.json|\.staging|/{TABLE_FOLDER}/manifest\.json)"
    rest = re.escape(tail).replace(re.escape(PARTITION), "(?P=name)")
    pattern = re.compile(rf"{re.escape(begins)}(?P<name>[\w=+-][\w=+.-]*?){rest}{ends}", re.ASCII)
    partitions = {match["name"] for match in map(pattern.fullmatch, names) if match}
    partitions |= {folder.name for folder in Layout.of(policy, "_").memory.subfolders()}

    def is_ours(name: str) -> bool:  # sinks of other policies may lie in the same folder
        layout = Layout.of(policy, name)
        return Manifest.of_release(policy, layout) is not None or layout.staging.folder.is_dir()

    return [*sorted(filter(is_ours, partitions))]


def _outcome(table: _PublishedTable) -> ErasedTable:
    policy, layout = table.policy, Layout.of(table.policy, table.partition)
    manifest, count = Manifest.of_release(policy, layout), 0
    outcome: Outcome = "not in it"
    if table.subjects or table.records:
        named = subject_ids(policy, table.subjects)
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
            gone, published = listed(policy, layout, manifest, ledger, named, table.records, missing=False)
            ids = pa.array(sorted(gone), pa.large_string())
            publications = ledger.people.publications_of(policy.dataset, ids, named)
        if manifest is None:
            outcome = "not published"
        elif not identified(manifest):
            count = max((entry["records"] for entry in publications if entry["release"] == policy.release), default=0)
            outcome = ("statistic stays" if policy.synthetic is not None else "withdrawn") if count else outcome
        elif published:
            outcome, count = "removed", len(published)
    named = policy.dataset, policy.release, policy.audience
    return ErasedTable(str(table.file), *named, table.partition, outcome, count)
