"""Compute a run over a Polars frame in this process, as over the files of a policy."""

from __future__ import annotations

import polars as pl

from dptext_etl.engines.local.engine import LocalEngine
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.source.roles import Table, table_of
from dptext_etl.runner.source.table import Files


class FrameEngine(LocalEngine):
    """This process, over a frame in the place of the policy's source."""

    def __init__(self, rows: pl.LazyFrame) -> None:
        self._rows = rows

    def open(self, policy: Policy, layout: Layout) -> Table[pl.LazyFrame]:
        """Check the columns of the frame."""
        return table_of(self._rows, policy, layout)

    def files(self, layout: Layout) -> Files | None:  # noqa: ARG002  (a frame is no file)
        """Find no files: only reading a frame reveals what is in it."""
        return None
