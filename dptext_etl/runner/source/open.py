"""Open the source of a run: check that it fits the policy, and find its new rows."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from dptext_etl.errors import InputError, seam
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.source.identity import examine
from dptext_etl.runner.source.incremental import continues, unpublished
from dptext_etl.runner.source.roles import Table
from dptext_etl.runner.source.table import READ_HINT


@dataclass(frozen=True)
class Opened:
    """A checked source.

    Attributes:
        table: The source, projected to the columns of the policy.
        frame: The rows that the run takes, lazily.
        total: Rows of the source.
        wanted: Rows that the run takes; fewer where an incremental run finds some published.
        base: Digest of the manifest that an incremental run adds to, or None.
        first: Number of the first shard; an incremental run counts on, so that its canary rows are new, too.
    """

    table: Table
    frame: pl.LazyFrame
    total: int
    wanted: int
    base: str | None
    first: int = 0


def open_source(policy: Policy, layout: Layout, table: Table, progress: Listener | None = None) -> Opened:
    """Check the ids of a source and, for an incremental run, drop what is published.

    Args:
        policy: The policy of the run.
        layout: The places of the run.
        table: The source.
        progress: Called with counts and rate.

    Raises:
        InputError: Ids are bad, or files cannot be read.
        PolicyError: The sink holds something that the run does not fit.
    """
    manifest = Manifest.read(layout)
    adds = continues(policy, layout, manifest)
    total = examine(table, policy, progress)
    if manifest is None or not adds:
        return Opened(table, table.frame, total, total, None)
    frame = unpublished(table.frame, policy, layout, manifest)
    with seam("comparing the source with what is published", InputError, READ_HINT):
        wanted = int(frame.select(pl.len()).collect(engine="streaming").item())
    return Opened(table, frame, total, wanted, manifest.digest, len(manifest.parts))
