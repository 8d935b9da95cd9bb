"""Publish to a table with a log of its own: one commit of the table shows a version to its readers.

The parts of a version and its manifest are in place before the commit, as in any sink. The commit holds the number of
the version. So a run that was killed right before it commits the same version next time, and one that was killed right
after it finds the version there and commits nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dptext_etl.checks.sink import MANIFEST, TABLE
from dptext_etl.errors import InputError, PolicyError, counted, seam
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Manifest, scan
from dptext_etl.runner.source.table import READ_HINT, schema_of
from dptext_etl.table_formats import DataFile, TableState

_PART = re.compile(r"v\d+(-[0-9a-f]{12})?/part-\d+\.parquet")
_RESTORE = "restore the version that a run committed (its log names it `dptext`), or name another sink and release"


def require_own(layout: Layout) -> None:
    """Refuse a table that another writer made or changed: a publication takes the place of all its rows."""
    table = layout.table_format
    if table is not None:
        _require_own(table.state(), Manifest.read(layout), layout)


def _require_own(state: TableState | None, manifest: Manifest | None, layout: Layout) -> None:
    if state is None:
        return
    if state.release is None:
        msg = f"the sink {layout.sink} is a table that no run of dptext made"
        raise InputError(msg, "publication takes the place of the whole table: name a new one")
    if manifest is None or state.release > manifest.version:
        found = "is missing" if manifest is None else f"is that of version {manifest.version}"
        msg = f"the table {layout.sink} shows version {state.release}, and its manifest {found}"
        raise InputError(msg, f"bring back {layout.manifest}")
    listed = {part.path for part in manifest.parts}
    shown = state.release == manifest.version
    if (shown and state.files != listed) or not all(map(_PART.fullmatch, state.files)):
        msg = f"another writer has changed the rows of the table {layout.sink} (its version {state.version})"
        raise InputError(msg, _RESTORE)


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
        raise PolicyError(
            f"the sink {layout.sink} is a table with a log", "write its format into the policy: table = { format = … }"
        )
    state = table.state()
    _require_own(state, manifest, layout)
    if state is not None and state.release == manifest.version:
        return
    with seam("reading the parts of a version", InputError, READ_HINT):
        sizes = {part.path: layout.published.size(part.path) for part in manifest.parts}
    files = [DataFile(part.path, part.rows, sizes[part.path]) for part in manifest.parts]
    table.commit(files, schema_of(scan(layout, manifest)), manifest.version, manifest.digest, state)


def record(layout: Layout, manifest: Manifest, ledger: Ledger, refs: Iterable[ReleaseRef]) -> None:
    """Name the table's version in the ledger, next to the publication that it shows."""
    table = layout.table_format
    if table is None:
        return
    here = [ref for ref in refs if not _is_named(manifest, ledger, ref, layout.place)]
    version = table.version_of(manifest.digest) if here else None
    if version is not None:
        name = f"{manifest.name}@{table.name}-{version}"
        ledger.releases.record_publication(here, name, manifest.digest, manifest.rows, sink=layout.place)


def _is_named(manifest: Manifest, ledger: Ledger, ref: ReleaseRef, sink: str) -> bool:
    return any(version.startswith(f"{manifest.name}@") for version in ledger.releases.published(ref, sink))
