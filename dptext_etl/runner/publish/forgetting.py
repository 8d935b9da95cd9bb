"""Remove people from a published table: publish a new version without them, and delete all files of older versions.

The ledger retires the older versions, so that no one can restore one unnoticed. Charges stay, as HMACs of ids, because
the texts were released. Copies of readers cannot be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import polars as pl
import pyarrow as pa

from dptext_etl import keys
from dptext_etl.errors import InputError, LedgerError, PolicyError, bare, seam
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.storage.store import ledger_exists
from dptext_etl.policy import Policy, PolicyLike, resolve
from dptext_etl.runner import left_out
from dptext_etl.runner.anchoring import remember, require_same_ledger
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Checkpoint, nothing
from dptext_etl.runner.publish import own_ids, tables, versions
from dptext_etl.runner.publish.manifest import Manifest, as_stored, is_whole, published_manifest, require_whole
from dptext_etl.runner.publish.own_ids import HiddenIds
from dptext_etl.runner.publish.parts import Writer
from dptext_etl.runner.publish.people import forgotten_among, identified, listed, require_known, subject_ids
from dptext_etl.runner.publish.versions import alone_at, show
from dptext_etl.runner.shard.staging import LISTS, UNIT, Staging
from dptext_etl.runner.source.table import READ_HINT
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
    known: bool = False,
    checkpoint: Checkpoint = nothing,
) -> Forgotten:
    """Publish a version without some people, retire the older ones, and delete their files.

    An unlinked release that holds them is withdrawn as a whole, because a reader of a version without them would know
    their texts from the difference. Publish those who stay under a new release name.

    A synthetic table stays: its noisy statistic is what was charged. The people are noted in the ledger, so no later
    release holds them; a table without them takes a new release name, and charges all others again.

    Remove the rows from the source first: a source that still holds them is refused. If a call was killed, the same
    call completes it. If the ledger, lists in staging, and the source do not know a person or record, nothing is
    changed; `known` leaves this check out, for a caller that looked in other places as well.
    """
    policy = resolve(policy)
    layout = Layout.of(policy, partition)
    _require(policy, subjects, records, missing=missing)
    if Manifest.read(layout) is None:  # a table that was never published may have no ledger
        hint = "`dptext forget POLICY --everywhere` also takes people out of staging; `dptext run POLICY` publishes"
        raise InputError(f"nothing is published at {layout.sink}", hint)
    storage = layout.staging
    with _opened(layout, policy) as ledger, alone_at(layout) as renew_lock:
        tables.require_alone(layout)
        before = published_manifest(layout)
        refs = _refs(ledger, policy, before)
        if policy.ids != "keep":  # another key would give all others other ids
            for ref in refs:
                ledger.releases.require_key(ref, keys.resolve(policy.key))
        ids = subject_ids(policy, subjects)
        if not known:
            require_known(policy, layout, ledger, ids, records)
        found = listed(policy, layout, before, ledger, ids, records, missing=missing)
        found.require_gone_from_source()
        new = ledger.people.forget(policy.dataset, pa.array(sorted(found.records), pa.large_string()), ids)
        remember(ledger, layout.memory, policy)
        checkpoint("forgotten")
        is_forgotten = partial(forgotten_among, ledger, policy.dataset)
        now, lists = before, set[str]()
        if policy.synthetic is None and (identified(before) or any(ledger.people.count_forgotten(ref) for ref in refs)):
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
        staged = _take_out_of_staging(layout, policy, is_forgotten, by_subject=len(ids) > 0)
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
        new = ledger.people.forget(policy.dataset, pa.array(sorted(records), pa.large_string()), ids)
        remember(ledger, layout.memory, policy)
        is_forgotten = partial(forgotten_among, ledger, policy.dataset)
        return new, _take_out_of_staging(layout, policy, is_forgotten, by_subject=len(ids) > 0)


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


def _take_out_of_staging(layout: Layout, policy: Policy, is_forgotten: Forgets, *, by_subject: bool) -> int:
    changed = 0
    for folder in layout.staging.parent.parent.subfolders():
        changed += _take_out(folder, policy, is_forgotten, by_subject=by_subject) + own_ids.blank(
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
    known = [{*ledger.releases.published(ref).values(), *ledger.releases.retired(ref)} for ref in refs]  # in any sink
    if (manifest.dataset, manifest.release) != (policy.dataset, policy.release) or len(refs) < len(policy.text_columns):
        raise LedgerError("what is published is no release of this policy", "name the policy that published it")
    if not all(manifest.digest in digests for digests in known):
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
    own = None if hidden is None else own_ids.of_parts(layout.staging, policy.ledger, digests)
    with Writer(layout, Staging(layout.staging), before.version + 1, hidden=hidden) as writer:
        for number, part in enumerate(before.parts):
            with seam("reading what is published", InputError, READ_HINT):
                rows = as_stored(layout, before, (layout.part(part.path),)).collect()
            if own is not None:
                rows = rows.select(own[number].alias(str(column)), pl.exclude(str(column)))
            left = rows.clear() if column is None else rows.filter(~is_forgotten(rows[column]))
            if left.height:
                writer.add_rows(left)
        if not writer.parts:  # a table of no rows has its columns still
            writer.add_rows(left)
        parts = writer.parts
        retired = any(before.digest in ledger.releases.retired(ref, layout.place) for ref in refs)
        if sum(part.rows for part in parts) == before.rows and not retired and not before.carries:
            show(layout, before)
            return before, writer.lists
        now = replace(before, version=writer.version, parts=parts, schema=before.kinds)
        place = "" if now.partition is None else f"{now.partition}/"
        checkpoint("parts written")
        ledger.releases.retire(refs, place, now.name, now.digest, now.rows, sink=layout.place)
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


def _take_out(storage: Storage, policy: Policy, is_forgotten: Forgets, *, by_subject: bool) -> int:
    """Remove the records from lists and kept bytes, and staged shards that hold them or do not show whose they are.

    A list holds records that may never have been charged, so only the units in it show whose they are.
    """
    changed, action = 0, "taking records out of staging"
    with seam(action, InputError, "call this again: it goes on from here"):
        lists = {name for pattern in LISTS for name in storage.glob(pattern)}
        for name in storage.glob("*.parquet"):
            frame, stem = pl.read_parquet(storage.local_path(name, fresh=True)), name.removesuffix(".parquet")
            units = frame[UNIT] if UNIT in frame.columns else None
            known = policy.id in frame.columns and not (name in lists and by_subject and units is None)
            every = pl.Series([True] * frame.height, dtype=pl.Boolean)
            forgotten = is_forgotten(frame[policy.id], units) if known else every
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
