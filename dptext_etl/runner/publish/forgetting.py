"""Remove people from a published table: publish a new version without them, and delete all files of older versions.

The ledger retires the older versions, so that no one can restore one unnoticed. Charges stay, as HMACs of ids, because
the texts were released. Copies of readers cannot be reached.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import polars as pl
import pyarrow as pa

from dptext_etl.errors import InputError, LedgerError, PolicyError, bare, seam
from dptext_etl.id_forms import normalized
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.storage.store import ledger_exists
from dptext_etl.policy import Policy, PolicyLike, resolve
from dptext_etl.runner import left_out
from dptext_etl.runner.anchoring import remember, require_same_ledger
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.progress import Checkpoint, nothing
from dptext_etl.runner.publish import own_ids, tables, versions
from dptext_etl.runner.publish.manifest import Manifest, is_whole, published_manifest, require_whole, scan
from dptext_etl.runner.publish.own_ids import HiddenIds
from dptext_etl.runner.publish.parts import Writer
from dptext_etl.runner.publish.versions import alone_at, show
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.logical_types import logical_types
from dptext_etl.runner.source.roles import in_pinned_order, scan_source
from dptext_etl.runner.source.table import READ_HINT, Files, schema_of
from dptext_etl.storage import Storage

_RENEWING = "renewing"
"""File of staging that says that a version is replaced because of its types."""
_WHOM = 'name them: subjects, records, or missing=True ("--missing": all that the source no longer holds)'


@dataclass(frozen=True)
class Forgotten:
    """The result for a published table."""

    version: int  # the version that readers see now
    removed: int  # number of published rows that were removed
    rows: int  # number of rows that stay published
    versions: list[str]  # folders of older versions that were deleted
    staged: int  # number of files in staging that were removed, or written without these people
    noted: int  # number of records that the ledger did not know as forgotten before
    withdrawn: bool = False  # whether the table was an unlinked release, which holds no ids: all of it is gone
    stays: bool = False  # whether the table is a synthetic one: its statistic was charged, and stays as it is


class Listed(NamedTuple):
    """Canonical ids of records to forget, those of them that are published, and those that the source still holds."""

    records: frozenset[str]
    published: frozenset[str]
    in_source: frozenset[str]

    def require_gone_from_source(self) -> None:
        """Refuse records that the next run would publish again."""
        if self.in_source:
            count = len(self.in_source)
            msg = f"the source still holds {count} of these records: the next run would publish them again"
            raise InputError(msg, "take them out of the source first")


Forgets = Callable[[pl.Series], pl.Series]
"""Says which record ids are forgotten."""


@bare
def forget(
    policy: PolicyLike,
    *,
    partition: str | None = None,
    subjects: Sequence[str] = (),
    records: Sequence[str] = (),
    missing: bool = False,
    checkpoint: Checkpoint = nothing,
) -> Forgotten:
    """Publish a version without some people, retire the older ones, and delete their files.

    An unlinked release that holds them is withdrawn as a whole, because a reader of a version without them would know
    their texts from the difference. Publish those who stay under a new release name.

    A synthetic table stays: its noisy statistic is what was charged. The people are noted in the ledger, so no later
    release holds them; a table without them takes a new release name, and charges all others again.

    Remove the rows from the source first, because the next run would publish them again. If a call was killed, the same
    call completes it.
    """
    policy = resolve(policy)
    layout = Layout.of(policy, partition)
    _require(policy, subjects, records, missing=missing)
    published_manifest(layout)  # a table that was never published may have no ledger
    storage = layout.staging
    with _opened(layout, policy) as ledger, alone_at(layout) as renew_lock:
        tables.require_alone(layout)
        before = published_manifest(layout)
        refs = _refs(ledger, policy, before)
        ids = subject_ids(policy, subjects)
        found = listed(policy, layout, before, ledger, ids, records, missing=missing)
        found.require_gone_from_source()
        new = ledger.forget(policy.dataset, pa.array(sorted(found.records), pa.large_string()), ids)
        remember(ledger, layout.memory, policy)
        checkpoint("forgotten")
        is_forgotten = partial(_is_forgotten, ledger, policy.dataset)
        now, lists = before, set[str]()
        if policy.synthetic is None and (identified(before) or any(ledger.count_forgotten(ref) for ref in refs)):
            now, lists = _publish_without(is_forgotten, layout, policy, before, ledger, refs, checkpoint, renew_lock)
        else:
            show(layout, before)  # a run that was killed may not have done so, and older versions go
        with suppress(LedgerError):  # a revoked or frozen release takes no more records; the commit holds the digest
            tables.record(layout, now, ledger, refs)
        remember(ledger, layout.memory, policy)
        checkpoint("shown")
        older = versions.unlisted(layout, now)
        versions.delete(layout, older, every_older=True)
        own_ids.keep_only(storage, (part.sha256 for part in now.parts), lists)
        left_out.carry(storage, before.digest, now.digest)
        staged = _take_out_of_staging(layout, policy, is_forgotten)
    withdrawn = not identified(before) and before.rows > now.rows
    stays = policy.synthetic is not None
    return Forgotten(now.version, before.rows - now.rows, now.rows, older, staged, new, withdrawn, stays)


@bare
def forget_drafts(
    policy: Policy, *, partition: str | None, subjects: Sequence[str], records: Sequence[str]
) -> tuple[int, int]:
    """Take people out of the staging of a table that was never published; count newly noted records, and files."""
    layout = Layout.of(policy, partition)
    _require(policy, subjects, records, missing=False)
    with _opened(layout, policy) as ledger:
        ids = subject_ids(policy, subjects)
        new = ledger.forget(policy.dataset, pa.array(sorted(records), pa.large_string()), ids)
        remember(ledger, layout.memory, policy)
        return new, _take_out_of_staging(layout, policy, partial(_is_forgotten, ledger, policy.dataset))


@contextmanager
def _opened(layout: Layout, policy: Policy) -> Iterator[Ledger]:
    """Lock the staging folder, which a release that did not run yet lacks, and open the ledger."""
    layout.staging.prepare()
    with (
        layout.staging.lock("of this release is under way"),
        Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False) as ledger,
    ):
        require_same_ledger(ledger, layout, policy)
        yield ledger


def subject_ids(policy: Policy, subjects: Sequence[str]) -> pa.Array:
    return normalized(pa.array(subjects, pa.large_string()), policy.normalize)


def _is_forgotten(ledger: Ledger, dataset: str, ids: pl.Series) -> pl.Series:
    """Return which records are forgotten; ids of some that were are null (`own_ids.blank`)."""
    gone, known = ids.is_null().to_numpy(writable=True), ids.is_not_null().to_numpy()
    gone[known] = ledger.forgotten(dataset, canonical_ids(ids.drop_nulls().to_arrow()))
    return pl.Series(gone, dtype=pl.Boolean)


def _take_out_of_staging(layout: Layout, policy: Policy, is_forgotten: Forgets) -> int:
    folders = layout.staging.parent.parent.subfolders()
    return sum(_take_out(folder, policy, is_forgotten) + own_ids.blank(folder, is_forgotten) for folder in folders)


def _require(policy: Policy, subjects: Sequence[str], records: Sequence[str], *, missing: bool) -> None:
    if not (subjects or records or missing):
        raise PolicyError("no one is named who is to be forgotten", _WHOM)
    if subjects and policy.unit == "record":
        raise PolicyError('the policy\'s unit is "record": its ledger knows no subjects', "name records")


def _refs(ledger: Ledger, policy: Policy, manifest: Manifest) -> list[ReleaseRef]:
    """Return the published releases, if the ledger knows this manifest."""
    refs = list(ledger.find_all(policy).values())
    known = [{*ledger.published(ref).values(), *ledger.retired(ref)} for ref in refs]
    if (manifest.dataset, manifest.release) != (policy.dataset, policy.release) or len(refs) < len(policy.text_columns):
        raise LedgerError("what is published is no release of this policy", "name the policy that published it")
    if not all(manifest.digest in digests for digests in known):
        raise LedgerError("the ledger did not record the manifest of this sink", "`dptext check` says more")
    return refs


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
    if manifest is not None and manifest.ids != "keep":
        parts = own_ids.of_parts(layout.staging, (part.sha256 for part in manifest.parts))
        published.update(*(ids.drop_nulls() for ids in parts))
    elif manifest is not None and manifest.id is not None:
        published.update(_ids(scan(layout, manifest), manifest.id).to_pylist())
    source = _source(policy, layout)
    gone = {*records}
    if len(subjects):
        known = pa.array(sorted(published | (source or set())), pa.large_string())
        gone |= set(known.filter(pa.array(ledger.of_subjects(policy.dataset, subjects, known))).to_pylist())
    if missing:
        if source is None:
            msg = "the source cannot be found, so no one can say which records it no longer holds"
            raise InputError(msg, "name subjects or records")
        gone |= published - source
    return Listed(frozenset(gone), frozenset(gone & published), frozenset(gone & (source or set())))


def identified(manifest: Manifest) -> bool:
    """Return whether it is known whose record a published row is: by the table, or by lists in staging."""
    return manifest.id is not None or manifest.ids != "keep"


def _source(policy: Policy, layout: Layout) -> set[str] | None:
    if not is_remote(layout.source) and not glob.glob(layout.source, recursive=True):  # noqa: PTH207  (as `Files`)
        return None
    files = Files.find(layout)
    scanned = scan_source(files, policy, logical_types(files), (policy.id,))
    return set(_ids(in_pinned_order(scanned, schema_of(scanned), policy), policy.id).to_pylist())


def _ids(frame: pl.LazyFrame, column: str) -> pa.Array:
    with seam("reading record ids", InputError, READ_HINT):
        return canonical_ids(frame.select(column).collect(engine="streaming")[column].to_arrow())


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
    own = None if hidden is None else own_ids.of_parts(layout.staging, (part.sha256 for part in before.parts))
    with Writer(layout, Staging(layout.staging), before.version + 1, hidden=hidden) as writer:
        for number, part in enumerate(before.parts):
            with seam("reading what is published", InputError, READ_HINT):
                files = Files((layout.part(part.path),), before.file_format, layout.storage_options)
                rows = files.scan(all_text=True).collect()
            if own is not None:
                rows = rows.select(own[number].alias(str(column)), pl.exclude(str(column)))
            left = rows.clear() if column is None else rows.filter(~is_forgotten(rows[column]))
            if left.height:
                writer.add_rows(left)
        if not writer.parts:  # a table of no rows has its columns still
            writer.add_rows(left)
        parts = writer.parts
        retired = any(before.digest in ledger.retired(ref) for ref in refs)
        if sum(part.rows for part in parts) == before.rows and not retired and not before.carries:
            show(layout, before)
            return before, writer.lists
        now = replace(before, version=writer.version, parts=parts, schema=before.kinds)
        place = "" if now.partition is None else f"{now.partition}/"
        checkpoint("parts written")
        ledger.retire(refs, place, now.name, now.digest, now.rows)
        checkpoint("recorded")
        writer.finish(renew_lock)
    now.write(layout, before)
    checkpoint("manifest written")
    show(layout, now)
    return now, writer.lists


@bare
def renew_types(policy: Policy, layout: Layout, checkpoint: Checkpoint = nothing) -> None:
    """Publish anew what an older version of dptext-etl published with names or categories in its types, and retire it.

    A run does this first, so that it adds to parts without them. No row changes (docs/spec/privacy.md#data-types). What
    is of another release is left to `publish`, which takes its place.
    """
    before = Manifest.read(layout)
    same = before is not None and (before.dataset, before.release) == (policy.dataset, policy.release)
    storage = layout.staging
    begun = same and storage.read(_RENEWING) is not None  # by a run that was killed
    if before is None or not same or not (before.carries or begun) or before.ids != policy.ids or not policy.publish:
        return
    in_iceberg = layout.table_format is not None and layout.table_format.name == "iceberg"  # its types never change
    if in_iceberg or not ledger_exists(policy.ledger.url) or not (policy.incremental or is_whole(layout, before)):
        return
    with _opened(layout, policy) as ledger, alone_at(layout) as renew_lock:
        tables.require_alone(layout)
        try:
            refs = _refs(ledger, policy, before)
        except LedgerError:  # the run says what is wrong, or takes the place of the table
            return
        storage.write(_RENEWING, b"", action="noting that a version is replaced")
        gone = pl.Series.is_null  # ids of people who were forgotten in another table (`own_ids.blank`)
        now, lists = _publish_without(gone, layout, policy, before, ledger, refs, checkpoint, renew_lock)
        with suppress(LedgerError):
            tables.record(layout, now, ledger, refs)
        remember(ledger, layout.memory, policy)
        versions.delete(layout, versions.unlisted(layout, now), every_older=True)
        own_ids.keep_only(storage, (part.sha256 for part in now.parts), lists)
        left_out.carry(storage, before.digest, now.digest)
        storage.delete(_RENEWING)


def _take_out(storage: Storage, policy: Policy, is_forgotten: Forgets) -> int:
    """Remove the records from lists and kept bytes, and staged shards that hold them or do not show whose they are."""
    changed, action = 0, "taking records out of staging"
    with seam(action, InputError, "call this again: it goes on from here"):
        for name in storage.glob("*.parquet"):
            frame, stem = pl.read_parquet(storage.local_path(name, fresh=True)), name.removesuffix(".parquet")
            known = policy.id in frame.columns
            forgotten = is_forgotten(frame[policy.id]) if known else pl.Series([True] * frame.height, dtype=pl.Boolean)
            if not forgotten.any():
                continue
            changed += 1
            draws, posts = f"{stem}.draws", storage.glob(f"{stem}-*.post")
            if name.startswith("shard-") or not known:
                storage.delete(f"{stem}.json", f"{stem}.post", *posts, draws, name)
                continue
            for post in posts:  # row by row the same records
                rows = _without(pl.read_parquet(storage.local_path(post, fresh=True)), forgotten)
                storage.write(post, rows.write_parquet, action=action)
            if (path := storage.local_path(draws, fresh=True)).exists():
                storage.write(draws, _without(pl.read_ipc(path), forgotten).write_ipc, action=action)
            storage.write(name, _without(frame, forgotten).write_parquet, action=action)
    return changed


def _without(rows: pl.DataFrame, forgotten: pl.Series) -> pl.DataFrame:
    """Take records out, unless a call that was killed half-way has taken them out of this file already."""
    return rows.filter(~forgotten) if rows.height == len(forgotten) else rows
