"""Look ids up in the files of a source."""

from __future__ import annotations

import polars as pl

from dptext_etl.errors import InputError, seam
from dptext_etl.runner.source.examined import Examined
from dptext_etl.runner.source.table import READ_HINT


def present(source: Examined[pl.LazyFrame], ids: pl.Series) -> pl.Series:
    """Return those of the given ids that the source uses."""
    with seam("comparing canary ids with those of the source", InputError, READ_HINT):
        asked = ids.to_frame().lazy()
        used = source.table.frame.select(ids.name)
        return used.join(asked, on=ids.name, how="semi").collect(engine="streaming").to_series()
