"""Remove the files of stopped runs, and files that the `retention` of a policy no longer keeps: `dptext clean`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from dptext_etl import files
from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.ledger import Ledger
from dptext_etl.ledger.storage.store import POSTGRES, resolve_url, sqlite_path
from dptext_etl.policy import Policy, PolicyLike, resolve, tables_of
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish import versions
from dptext_etl.runner.publish.publication import NOTE
from dptext_etl.runner.publish.versions import alone_at
from dptext_etl.runner.shard.staging import READING, VECTORS
from dptext_etl.storage import Storage

_DAY = 86_400.0
_REMOVING = ("removing expired files", InputError, "the files must be yours")


@dataclass
class Cleaned:
    """The paths that were removed, or would be removed."""

    # names of published versions, and of versions that were never shown to readers; of an audience, below its name
    versions: list[str] = field(default_factory=list)
    stopped: list[Path | str] = field(default_factory=list)  # staging folders of runs that a gate stopped
    staged: list[Path | str] = field(default_factory=list)  # files of rows that were never published
    quarantined: list[Path | str] = field(default_factory=list)  # lists of records over the cap, or with changed texts
    kept: list[Path | str] = field(default_factory=list)  # files of bytes that were kept for replays
    drafts: list[Path | str] = field(default_factory=list)  # folders that killed exports and backups left behind
    busy: list[Path | str] = field(default_factory=list)  # folders that were skipped because a run is using them

    @property
    def removed(self) -> list[Path | str]:
        return [*self.versions, *self.stopped, *self.staged, *self.quarantined, *self.kept, *self.drafts]


def clean(
    policy: PolicyLike, *, partition: str | None = None, dry_run: bool = False, drafts: Iterable[Path] = ()
) -> Cleaned:
    """Remove the staging of runs that a gate stopped, and files that the policy's `retention` no longer keeps.

    Versions that a killed or refused publication left behind go, too, in folders and object stores. The version that
    readers see, the ledger, and folders that a run is using stay.

    Drafts of killed exports and backups go from the working folder, from the folders of the policy, of its ledger, and
    of its sink, and from the folders `drafts`.
    """
    cleaned, policy = Cleaned(), resolve(policy)
    places = {Path(), *drafts, *([policy.folder] if policy.folder else [])}
    for table in tables_of(policy):
        layout = Layout.of(table, partition)
        _clean(table, layout, cleaned, dry_run=dry_run)
        places |= set() if layout.remote_sink else {Path(layout.sink).parent}
    if not (ledger := resolve_url(policy.ledger.url)).startswith(POSTGRES):
        places.add(sqlite_path(ledger).parent)
    with seam(*_REMOVING):
        for place in sorted({place.resolve() for place in places}):
            for draft in files.left_behind(place):
                cleaned.drafts.append(draft)
                if not dry_run:
                    shutil.rmtree(draft)
    return cleaned


def _clean(policy: Policy, layout: Layout, cleaned: Cleaned, *, dry_run: bool) -> None:
    with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
        rows = [row for row in ledger.reports.show() if row["burnt"] and row["dataset"] == policy.dataset]
    revoked = {row["release"] for row in rows}
    for storage in layout.memory.subfolders(layout.staging.name):
        try:
            with storage.lock("of this release is under way"):
                _clean_staging(storage, policy, revoked, cleaned, dry_run=dry_run)
        except PolicyError as problem:
            if isinstance(problem, InputError):
                raise
            cleaned.busy.append(_location(storage))
    with alone_at(layout) as (manifest, _):
        older = versions.unlisted(layout, manifest, newest=policy.retention.versions)
        if not dry_run:
            versions.delete(layout, older)
    cleaned.versions += older if policy.audience is None else [f"{policy.audience}/{name}" for name in older]


def _clean_staging(storage: Storage, policy: Policy, revoked: set[str], cleaned: Cleaned, *, dry_run: bool) -> None:
    retention, now = policy.retention, time.time()
    if storage.glob(NOTE) or unquote(storage.parent.name) in revoked:
        cleaned.stopped.append(_location(storage))
        if not dry_run:
            with seam(*_REMOVING):
                storage.delete_folder()
        return
    for days, pattern, removed in (
        (retention.staging_days, "shard-*", cleaned.staged),
        (retention.staging_days, READING, cleaned.staged),
        (retention.quarantine_days, "quarantine-*", cleaned.quarantined),
        (retention.quarantine_days, "changed-*", cleaned.quarantined),
        (retention.kept_days, "kept-*", cleaned.kept),
        (retention.kept_days, f"{VECTORS}-*", cleaned.kept),
    ):
        if days is not None:
            old = [name for name, written in storage.modified(pattern).items() if now - written > days * _DAY]
            removed.extend(map(storage.location, old))
            if not dry_run:
                with seam(*_REMOVING):
                    storage.delete(*old)


def _location(storage: Storage) -> Path | str:
    return storage.url if storage.remote else storage.folder
