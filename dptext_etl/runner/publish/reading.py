"""Read a published table by its manifest, so that nobody sees half a version."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from dptext_etl.errors import InputError
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.source.incremental import scan_parts


def published_manifest(layout: Layout) -> Manifest:
    """Return the manifest of a sink.

    Raises:
        InputError: Nothing is published there.
    """
    manifest = Manifest.read(layout)
    if manifest is None:
        raise InputError(f"nothing is published at {layout.sink}", "`dptext run POLICY` publishes")
    return manifest


def scan_published(sink: str, storage_options: Mapping[str, str] | None = None) -> pl.LazyFrame:
    """Scan the current version of a published table.

    Args:
        sink: Folder or object-store URL.
        storage_options: Options for object stores; values may be "env:NAME".

    Returns:
        A lazy frame in row order.

    Raises:
        InputError: Nothing is published there.
    """
    layout = Layout.of_sink(sink, dict(storage_options or {}))
    manifest = published_manifest(layout)
    return scan_parts(manifest, layout, as_written=(manifest.id,))
