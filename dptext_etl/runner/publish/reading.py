"""Read a published table by its manifest, so that no one sees half a version."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from dptext_etl.errors import InputError, seam
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.source.selection import scan_parts


def published_manifest(layout: Layout) -> Manifest:
    """Return the manifest of a sink."""
    manifest = Manifest.read(layout)
    if manifest is None:
        raise InputError(f"nothing is published at {layout.sink}", "`dptext run POLICY` publishes")
    return manifest


def require_whole(layout: Layout, manifest: Manifest) -> None:
    """Refuse files that are not those of the manifest, byte for byte."""
    changed = [part.path for part in manifest.parts if _digest(layout, part.path) != part.sha256]
    if changed:
        msg = f"{len(changed)} of {len(manifest.parts)} published files are not those of their manifest: {changed[0]}"
        raise InputError(msg, "`dptext check` says more; the same policy, run again, writes what is damaged anew")


def whole(layout: Layout, manifest: Manifest) -> bool:
    """Return whether all files of a manifest are there, byte for byte."""
    return all(_digest(layout, part.path) == part.sha256 for part in manifest.parts)


def _digest(layout: Layout, path: str) -> str | None:
    with seam("reading a published file", InputError, "is it readable? `dptext check` says more"):
        return layout.published.sha256(path)


def scan_published(sink: str, storage_options: Mapping[str, str] | None = None, *, verify: bool = True) -> pl.LazyFrame:
    """Scan the current version of a published table, and check first that its files are those of its manifest."""
    layout = Layout.of_sink(sink, dict(storage_options or {}))
    return scan(layout, current(layout, verify=verify))


def current(layout: Layout, *, verify: bool) -> Manifest:
    """Return the manifest of a sink, its files checked if asked for (see `scan_published`)."""
    manifest = published_manifest(layout)
    if verify:
        require_whole(layout, manifest)
    return manifest


def scan(layout: Layout, manifest: Manifest) -> pl.LazyFrame:
    """Scan the files of a manifest in row order."""
    as_written = [column["name"] for column in manifest.columns] if manifest.id is None else [manifest.id]
    return scan_parts(manifest, layout, as_written)
