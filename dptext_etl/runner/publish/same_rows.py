"""See whether two sets of parts hold the same rows in another order: then readers need no new version.

Engines cut and order rows in ways of their own, and a record has one text in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from dptext_etl.errors import InputError, seam
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.publish.reading import whole
from dptext_etl.runner.source.table import READ_HINT, Files

_SEEDS = (0, 1)


def same_rows(layout: Layout, before: Manifest, drafts: Sequence[Path], rows: int) -> bool:
    """Return whether whole published files hold the rows of local drafts; columns and claims are compared elsewhere."""
    if layout.remote_sink or before.rows != rows or not whole(layout, before):
        return False
    published = tuple(layout.part(part.path) for part in before.parts)
    names = tuple(before.schema)
    with seam("comparing with what is published", InputError, READ_HINT):
        return _sums(published, before.file_format, names) == _sums(map(str, drafts), before.file_format, names)


def _sums(paths: Iterable[str], file_format: str, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return sums of 64-bit hashes of rows, which no order changes."""
    frame = Files(tuple(paths), file_format, {}).scan(names)
    row = pl.struct(pl.col(name) for name in names)
    sums = frame.select(row.hash(seed).sum().alias(str(seed)) for seed in _SEEDS).collect(engine="streaming")
    return tuple(sums.row(0))
