"""Show one version of a published table to readers, and delete the versions that they no longer see.

Readers of a folder look at `<sink>`. It is a link to a folder that holds the current data files alone, under names in
row order, so a glob meets every row once. A new version gets a folder of its own, and one rename points the link at it.
The files in that folder are further names of those in `<sink>.versions`: a version costs no second copy.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dptext_etl import files
from dptext_etl.checks.sink import MANIFEST, LocalSink, shown_name
from dptext_etl.errors import BusyError, InputError, counted, seam
from dptext_etl.files import flush, sha256
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish import tables
from dptext_etl.runner.publish.manifest import Manifest

_NAME = re.compile(r"v(\d+)(?:-[0-9a-f]{12})?")
_DRAFTS = r"\.v\d+(-[0-9a-f]+)?\.incomplete(\.elsewhere)?|\.dptext-[0-9a-f]+"
_IN_TABLE = re.compile(rf"_dptext|_delta_log|metadata|v\d+|{_DRAFTS}")
"""What a table holds before its first commit."""
_SHOWN = re.compile(r"part-\d+\.(parquet|csv|ndjson)")
"""What a copy that followed the link of a sink holds."""
_AGAIN = "is there room and access? Run the same policy again: it goes on from here"
PUBLISHING = "is publishing to this sink"
_BUSY = (f"another run {PUBLISHING}", "wait for it, or stop it; then run again")


def require_sink(layout: Layout, *, making: bool = True) -> None:
    """Refuse a sink that could not be published to, before anything is spent; make its folders if need be."""
    if layout.remote_sink:
        layout.described.read(MANIFEST)
    else:
        sink = layout.local
        _refuse_foreign(sink, layout)
        files.require_writable(sink.path.parent, making=making)
        files.require_writable(sink.versions, making=making)
        if layout.logged:
            files.require_writable(layout.described.folder, making=making)
    tables.require_own(layout)


@contextmanager
def alone_at(layout: Layout) -> Iterator[Callable[[], None]]:
    """Let one release at a time publish to a sink."""
    require_sink(layout)
    described = layout.described
    with described.lock(PUBLISHING):
        if layout.described != described:  # another run has made it a table meanwhile
            raise BusyError(*_BUSY)
        if layout.logged:
            tables.require_own(layout)  # another run may have published since the first look
        yield described.renew_lock


def show(layout: Layout, manifest: Manifest) -> None:
    """Point readers at the files of a manifest, in one step: by a link, or by a commit of a table with a log.

    Plain files in an object store are read by manifest.
    """
    if layout.logged:
        tables.commit(layout, manifest)
        return
    if layout.remote_sink:
        return
    sink = layout.local
    with seam("showing a version", InputError, _AGAIN):
        folder = _fill_folder(sink, manifest)
        target = Path(sink.versions.name) / folder.name
        before = sink.path.readlink() if sink.path.is_symlink() else None
        if before != target:
            for stale in sink.versions.glob(".current-*"):
                stale.unlink()
            draft = sink.versions / f".current-{secrets.token_hex(8)}"
            draft.symlink_to(target)  # it holds where it will stand, not where it stands now
            if sink.copied:
                sink.path.rename(sink.versions / "v0.files")
            draft.replace(sink.path)
            flush(sink.path.parent)
        for stale in sink.versions.glob("v*.files"):
            if stale != folder:
                for path in stale.glob("part-*"):
                    path.unlink()
                if not any(stale.iterdir()):  # files of someone else stay
                    stale.rmdir()


def _fill_folder(sink: LocalSink, manifest: Manifest) -> Path:
    """Make the folder that shows a version, or mend it."""
    target = sink.versions / f"v{manifest.version}.files"
    folder = target if target.is_dir() else sink.versions / f".v{manifest.version}.files.incomplete"
    if folder != target:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    for stale in folder.glob(".*.draft"):
        stale.unlink()
    for number, part in enumerate(manifest.parts):
        path, version = folder / shown_name(number, manifest.file_format), sink.versions / part.path
        same = path.is_file() and version.is_file() and (path.samefile(version) or sha256(path) == part.sha256)
        if same or not version.is_file():
            continue
        draft = files.draft_of(path)
        files.link(version, draft, mode=files.PUBLIC_FILE, flush_folder=False)
        draft.replace(path)
    flush(folder)
    if folder != target:
        folder.rename(target)
        flush(sink.versions)
    return target


def _refuse_foreign(sink: LocalSink, layout: Layout) -> None:
    """Refuse to take the place of files that no run wrote, or of a table of another kind."""
    plain = LocalSink(sink.path)
    if layout.logged and (plain.linked or plain.manifest.is_file()):
        msg = f"the sink {sink.path} holds plain files that a run published, and the policy has an entry table"
        raise InputError(msg, "name a folder of its own as the sink")
    if sink.table and not layout.logged:
        msg = f"the sink {sink.path} holds a table with a log, and the policy has no entry table"
        raise InputError(msg, "describe it in an entry table of the policy, or name a folder of its own as the sink")
    with seam(f"looking at the sink {sink.path}", InputError, _AGAIN):
        if not sink.copied:
            foreign = int(sink.path.exists() and not sink.path.is_dir())
        else:
            ours = _IN_TABLE if sink.table else _SHOWN if sink.manifest.is_file() else None
            foreign = sum(ours is None or not ours.fullmatch(item.name) for item in sink.path.iterdir())
    table = layout.table_format
    if foreign and table is not None and table.state() is not None:
        return  # `tables.require_own` looks at what it lists
    if foreign:
        msg = (
            f"the sink {sink.path} holds {counted(foreign, 'file or folder', 'files or folders')} "
            "that no run of dptext wrote"
        )
        raise InputError(msg, "publication takes the place of the whole folder: name one that is new or empty")


def unlisted(layout: Layout, manifest: Manifest | None, *, newest: int | None = 0) -> list[str]:
    """Return the versions that hold no file of the current one, or that a table shows, and are not among the newest.

    Call it alone at the sink: then a version that is not older than the current one was left by a publication that was
    killed or refused. No reader was pointed at it.
    """
    with seam("looking at the versions", InputError, "is the sink readable?"):
        if layout.remote_sink:
            found = {name.partition("/")[0] for name in layout.published.names() if "/" in name}
        else:
            found = {path.name for path in layout.local.versions.iterdir() if path.is_dir()}
    table = layout.table_format
    state = (
        None if table is None else table.state()
    )  # a run that was killed may not have committed the manifest's parts
    paths = [] if manifest is None else [part.path for part in manifest.parts]
    listed = {path.partition("/")[0] for path in (*paths, *(() if state is None else state.files))}
    numbers = {name: int(known[1]) for name in found - listed if (known := _NAME.fullmatch(name))}
    now = 0 if manifest is None else manifest.version
    last = 0 if newest is None else now - newest if newest else now
    old = (name for name, number in numbers.items() if number <= last or number >= now)
    return sorted(old, key=lambda name: (numbers[name], name))


def delete(layout: Layout, versions: Iterable[str], *, every_older: bool = False) -> None:
    """Delete the files of versions. Copies that a store keeps of deleted objects are out of reach.

    A table with a log forgets its own versions that list them; with `every_older`, all but the current one, with all
    files that it does not list.
    """
    folders, table = list(versions), layout.table_format
    if table is not None and (folders or every_older):
        table.retire(None if every_older else folders)
    with seam("deleting older versions", InputError, "call this again: it goes on from here"):
        for version in folders:
            layout.published.delete_folder(version)
