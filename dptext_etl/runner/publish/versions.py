"""Show one version of a published table to readers, delete the versions that they no longer see, and clean staging.

The parts of a version and its manifest are in place before the commit, as in any sink. The commit holds the number of
the version. A run that was killed right before the commit makes the same commit next time. A run that was killed right
after it finds the version there, and commits nothing.

Readers of a folder look at `<sink>`, which holds only the current data files, under names in row order, so a glob meets
every row once. A version is made in `<sink>.versions`, where files that stay are further names of those before. When
the manifest names it, it changes places with the folder that readers see. A run that was killed in between leaves a
manifest whose files are not shown yet, or not under their lasting names; the next run completes this first.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from dptext_etl import files
from dptext_etl.checks.sink_files import MANIFEST, TABLE, LocalSink, Manifest, is_inside, part_name
from dptext_etl.errors import BusyError, InputError, PolicyError, counted, seam
from dptext_etl.file_formats import FORMATS
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.storage.store import POSTGRES, resolve_url, sqlite_path
from dptext_etl.policy import Policy, PolicyLike, resolve, tables_of
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import scan
from dptext_etl.runner.shard.staging import NOTE, READING, VECTORS
from dptext_etl.runner.source.table import READ_HINT, schema_of

if TYPE_CHECKING:
    from dptext_etl.table_formats import TableState

log = logging.getLogger("dptext_etl.runner")
_PART = re.compile(r"v\d+(-[0-9a-f]{12})?/part-\d+\.parquet")
_REWRITTEN = "rewritten"
"""Holds the version of a table whose files another tool rewrote, until the next commit replaces them."""
_RESTORE = "restore the version that a run committed (its log names it `dptext`), or name another sink and release"


def require_own(layout: Layout) -> TableState | None:
    """Refuse a table that another writer made or changed: a publication replaces all its rows.

    Another tool may write the same rows into other files, as OPTIMIZE does; then the state of the table is returned.
    """
    table = layout.table_format
    return None if table is None else _require_own(table.state(), Manifest.read(layout), layout)


def _require_own(state: TableState | None, manifest: Manifest | None, layout: Layout) -> TableState | None:
    if state is None:
        return None
    if state.release is None:
        msg = f"the sink {layout.sink} is a table that no run of dptext made"
        raise InputError(msg, "publication replaces the entire table: name a new one")
    if manifest is None or state.release > manifest.version:
        problem = "is missing" if manifest is None else f"is for version {manifest.version}"
        msg = f"the table {layout.sink} shows version {state.release}, and its manifest {problem}"
        raise InputError(msg, f"bring back {layout.manifest}")
    from dptext_etl.table_formats import rewrites

    listed = {part.path for part in manifest.parts}
    if state.release < manifest.version:  # a run was killed before its commit; the files before are in no manifest
        rewritten = layout.described.read(_REWRITTEN) == state.version.encode()
        known = rewritten or all(map(_PART.fullmatch, state.files))
    else:
        rewritten = state.files != listed and rewrites(layout.published, listed - state.files, state.files - listed)
        known = rewritten or (state.files == listed and all(map(_PART.fullmatch, state.files)))
    if not known:
        msg = f"another writer has changed the rows of the table {layout.sink} (its version {state.version})"
        raise InputError(msg, _RESTORE)
    return state if rewritten else None


def require_alone(layout: Layout) -> None:
    """Refuse to delete all that the table does not list where other published data lie in its folder."""
    if not layout.logged:
        return
    with seam("looking at the files of the table", InputError, READ_HINT):
        names = [name for name in layout.published.names() if name.endswith(MANIFEST)]
    others = len({*names} - {f"{TABLE}/{MANIFEST}"})
    if others:
        lying = counted(others, "other published table lies", "other published tables lie")
        msg = f"{lying} in the folder of the table {layout.sink}; nothing was changed"
        raise InputError(msg, "move them: files in it that this table does not list are deleted, theirs as well")


def commit(layout: Layout, manifest: Manifest) -> None:
    """Commit a version whose parts and manifest are in place, unless the table shows it already."""
    table = layout.table_format
    if table is None:
        hint = "write its format into the policy: table = { format = … }"
        raise PolicyError(f"the sink {layout.sink} is a table with a log", hint)
    from dptext_etl.table_formats import DataFile, Facts  # other sinks start without it

    state = table.state()
    _require_own(state, manifest, layout)
    if state is not None and state.release == manifest.version:
        return
    with seam("reading the parts of a version", InputError, READ_HINT):
        sizes = {part.path: layout.published.size(part.path) for part in manifest.parts}
    files = [DataFile(part.path, part.rows, sizes[part.path]) for part in manifest.parts]
    # the claims on each text column, per unit, for readers of a catalog
    names = {"guarantee": "class", "unit": "unit", "epsilon": "unit_epsilon", "delta": "unit_delta"}
    columns = {
        f"dptext.{column['name']}.{name}": str(column[entry])
        for column in manifest.columns
        for name, entry in names.items()
    }
    properties = {"dptext.release_name": manifest.release, **columns}
    facts = Facts(manifest.version, manifest.digest, properties)
    table.commit(files, schema_of(scan(layout, manifest)), facts, state)


def record(layout: Layout, manifest: Manifest, ledger: Ledger, refs: Iterable[ReleaseRef]) -> None:
    """Name the table's version in the ledger, next to the publication that it shows."""
    table = layout.table_format
    if table is None:
        return
    refs, rewritten = list(refs), require_own(layout)
    versions = [table.version_of(manifest.digest), None if rewritten is None else rewritten.version]
    for version in filter(None, versions):
        name = f"{manifest.name}@{table.name}-{version}"
        here = [ref for ref in refs if name not in ledger.releases.published(ref, layout.place)]
        if here:
            ledger.releases.record_publication(here, name, manifest.digest, manifest.rows, sink=layout.place)


_NAME = re.compile(r"v(\d+)(?:-[0-9a-f]{12}|\.files)?")
_DRAFTS = r"\.v\d+(-[0-9a-f]+)?\.incomplete(\.elsewhere)?"
_IN_TABLE = re.compile(rf"_dptext|_delta_log|metadata|v\d+|{_DRAFTS}")
"""Names in a table before its first commit."""
_DATA_FILE = r"part-\d+(-[0-9a-f]{16})?\."
"""Names in a folder that a run published, or in a copy of one."""
_AGAIN = "is there room and access? Run the same policy again: it continues from here"
_MOUNT = 'name a folder in it, such as sink = "MOUNT/published"; no budget used'
PUBLISHING = "is publishing to this sink"
_BUSY = (f"another run {PUBLISHING}", "wait for it, or stop it; then run again")


def require_sink(layout: Layout, *, making: bool = True) -> None:
    """Refuse a sink that could not be published to, before anything is spent; make its folders if need be."""
    if layout.remote_sink:
        layout.described.read(MANIFEST)
        require_own(layout)
        return
    sink = layout.local
    if layout.logged and LocalSink(sink.path).manifest.is_file():
        msg = f"the sink {sink.path} holds plain files that a run published, and the policy has an entry table"
        raise InputError(msg, "name a separate folder as the sink")
    if sink.table and not layout.logged:
        msg = f"the sink {sink.path} holds a table with a log, and the policy has no entry table"
        raise InputError(msg, "describe it in an entry table of the policy, or name a separate folder as the sink")
    with seam(f"looking at the sink {sink.path}", InputError, _AGAIN):
        if layout.plain and sink.path.is_mount():
            raise InputError(f"the sink {sink.path} is a mount point, so no other folder can replace it", _MOUNT)
        if not sink.path.is_dir():
            foreign = int(sink.path.exists())
        else:
            published = sink.manifest.is_file() or sink.versions.is_dir()
            parts = re.compile(f"{_DATA_FILE}({'|'.join(FORMATS)})")
            written = _IN_TABLE if sink.table else parts if published else None
            foreign = sum(written is None or not written.fullmatch(item.name) for item in sink.path.iterdir())
    table = layout.table_format
    if foreign and (table is None or table.state() is None):  # `require_own` checks the files that a table lists
        what = counted(foreign, "file or folder", "files or folders")
        msg = f"the sink {sink.path} holds {what} that no run of dptext wrote"
        raise InputError(msg, "publication replaces the entire folder: name one that is new or empty")
    for folder in (sink.path.parent, sink.versions, *((layout.described.folder,) if layout.logged else ())):
        files.require_writable(folder, making=making)
    require_own(layout)


@contextmanager
def alone_at(layout: Layout) -> Iterator[tuple[Manifest | None, Callable[[], None]]]:
    """Let one release at a time publish to a sink, after it completes the work of a killed run there.

    The block gets the manifest of the sink, and a function that renews the lock.
    """
    require_sink(layout)
    described = layout.described
    with described.lock(PUBLISHING):
        if layout.described != described:  # another run has made it a table meanwhile
            raise BusyError(*_BUSY)
        if layout.logged:
            rewritten = require_own(layout)  # another run may have published since the first look
            if rewritten is not None:
                log.info("another tool wrote the rows of the table into other files (version %s)", rewritten.version)
                described.write(_REWRITTEN, rewritten.version.encode())
        manifest = Manifest.read(layout)
        if manifest is not None and layout.plain:  # `clean` commits nothing to a table
            show(layout, manifest)
        yield manifest, described.renew_lock


def show(layout: Layout, manifest: Manifest) -> None:
    """Let readers see the files of a manifest, in one step: by a folder, or by a commit of a table with a log.

    Plain files in an object store are read by manifest. A folder stays as it is if a file is missing.
    """
    if layout.logged:
        commit(layout, manifest)
    if not layout.plain:
        return
    sink, current = layout.local, layout.local.versions / f"v{manifest.version}"
    parts = {part_name(i, part.sha256, manifest.file_format): part for i, part in enumerate(manifest.parts)}
    with seam("showing a version", InputError, _AGAIN):
        if _names(sink.path) != set(parts):
            ready = current
            if current.is_symlink() or _names(current) != set(parts):
                ready = current.with_name(f".{current.name}-{secrets.token_hex(8)}.incomplete")
                sources = {name: sink.file(part.path) for name, part in parts.items() if is_inside(part.path)}
                if len(sources) < len(parts) or not _fill(ready, sources):
                    return
            files.exchange(sink.path, ready)
        elif not current.is_symlink() and _names(current) == set(parts):  # the same files a second time
            files.remove(current)
        # the name of the current version links to the folder that shows it, and the one before gets its own name: who
        # opened a version by its manifest finds its files there until they expire
        target, linked = Path(os.pardir, sink.path.name), current.is_symlink()
        named = all(part.path == f"{current.name}/{name}" for name, part in parts.items())
        if named and not (linked and current.readlink() == target):
            if not linked and current.is_dir():  # the two have changed places
                before = current.with_name(f"v{manifest.version - 1}")
                files.remove(before)
                current.rename(before)
            files.remove(current)
            current.symlink_to(target)
            files.flush(current.parent)
        for stale in sink.versions.glob(".v*.incomplete*"):
            files.remove(stale)


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _fill(folder: Path, sources: Mapping[str, Path]) -> bool:
    """Make a folder of further names of files, unless one of them is missing, or is a link to files of others."""
    if not all(path.is_file() and not path.is_symlink() for path in sources.values()):
        return False
    folder.mkdir()
    for name, path in sources.items():
        files.link(path, folder / name, mode=files.PUBLIC_FILE, flush_folder=False)
    files.flush(folder)
    return True


def unlisted(layout: Layout, manifest: Manifest | None, *, newest: int | None = 0) -> list[str]:
    """Return the versions that hold no file of the current one, or that a table shows, and are not among the newest.

    Call it under the lock of the sink: then a version that is not older than the current one was left by a publication
    that was killed or refused. No reader was pointed at it.
    """
    with seam("looking at the versions", InputError, "is the sink readable?"):
        if layout.remote_sink:
            names = {name.partition("/")[0] for name in layout.published.names() if "/" in name}
        else:
            names = {path.name for path in layout.local.versions.iterdir() if path.is_dir()}
    table = layout.table_format
    state = None if table is None else table.state()
    paths = [] if manifest is None else [part.path for part in manifest.parts]
    paths += [] if state is None else state.files  # a killed run may not have committed the manifest's parts
    listed = {path.partition("/")[0] for path in paths}
    now = 0 if manifest is None else manifest.version
    numbers = {name: int(match[1]) for name in names - listed if (match := _NAME.fullmatch(name))}
    last = 0 if newest is None else now - newest if newest else now
    old = (name for name, number in numbers.items() if number <= last or number >= now)
    return sorted(old, key=lambda name: (numbers[name], name))


def delete(layout: Layout, versions: Iterable[str], *, every_older: bool = False) -> None:
    """Delete the files of versions. Copies that a store keeps of deleted objects are out of reach.

    A table with a log forgets its own versions that list them; with `every_older`, every version except the current
    one, with all files that it does not list.
    """
    folders, table = list(versions), layout.table_format
    if table is not None and (folders or every_older):
        table.retire(None if every_older else folders)
    with seam("deleting older versions", InputError, "call this again: it continues from here"):
        for version in folders:
            layout.published.delete_folder(version)


def expire(layout: Layout, manifest: Manifest, before: Manifest | None) -> None:
    """Delete the versions of a folder that are neither current, nor the one before, nor among those that stay."""
    if layout.plain:
        last = {part.path.partition("/")[0] for part in (() if before is None else before.parts)}
        delete(layout, [name for name in unlisted(layout, manifest, newest=layout.newest) if name not in last])
    manifest.expire_classifiers(layout, before)


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
    retention, now = policy.retention, time.time()
    expiring = (
        (retention.staging_days, "shard-*", cleaned.staged),
        (retention.staging_days, READING, cleaned.staged),
        (retention.quarantine_days, "quarantine-*", cleaned.quarantined),
        (retention.quarantine_days, "changed-*", cleaned.quarantined),
        (retention.kept_days, "kept-*", cleaned.kept),
        (retention.kept_days, f"{VECTORS}-*", cleaned.kept),
    )
    for storage in layout.memory.subfolders(layout.staging.name):
        place = storage.url if storage.remote else storage.folder
        try:
            with storage.lock("of this release is under way"):
                if storage.glob(NOTE) or unquote(storage.parent.name) in revoked:
                    cleaned.stopped.append(place)
                    if not dry_run:
                        with seam(*_REMOVING):
                            storage.delete_folder()
                    continue
                for days, pattern, removed in expiring:
                    if days is None:
                        continue
                    old = [name for name, written in storage.modified(pattern).items() if now - written > days * _DAY]
                    removed.extend(map(storage.location, old))
                    if not dry_run:
                        with seam(*_REMOVING):
                            storage.delete(*old)
        except PolicyError as problem:
            if isinstance(problem, InputError):
                raise
            cleaned.busy.append(place)
    with alone_at(layout) as (manifest, _):
        older = unlisted(layout, manifest, newest=policy.retention.versions)
        if not dry_run:
            delete(layout, older)
    cleaned.versions += older if policy.audience is None else [f"{policy.audience}/{name}" for name in older]
