"""Count persons as a policy spells them, and as all steps of `normalize` would: every spelling has its own cap."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl.buckets import Buckets
from dptext_etl.errors import InputError, seam
from dptext_etl.id_forms import Normalization, normalized
from dptext_etl.runner.source.table import READ_HINT, batches

BATCH_ROWS = 1 << 18
EVERY_STEP: tuple[Normalization, ...] = get_args(Normalization)


def spellings(
    frame: pl.LazyFrame, column: str, how: Sequence[Normalization] = (), scratch: Path | None = None
) -> dict[str, int]:
    """Count distinct `persons` as `how` spells them, and `alike` with every step; nothing if they are not strings.

    Nulls do not count. Hashes of 64 bits are counted in bounded memory, in the folder `scratch`.
    """
    if frame.collect_schema()[column] != pl.String:
        return {}
    with (
        seam("counting the spellings of persons", InputError, READ_HINT),
        closing(Buckets(8, scratch)) as persons,
        closing(Buckets(8, scratch)) as alike,
    ):
        for batch in batches(frame.select(column), BATCH_ROWS):
            names = batch.to_series().drop_nulls().unique().to_arrow()
            for counted, steps in ((persons, how), (alike, EVERY_STEP)):
                counted.add(_hashes(normalized(names, steps)))
        return {"persons": persons.distinct(), "alike": alike.distinct()}


def _hashes(names: pa.Array) -> Any:
    return pl.Series(names, dtype=pl.String).unique().hash().to_numpy().view(np.uint8).reshape(-1, 8)


def lines(part: dict[str, int]) -> list[str]:
    """Say how many persons have several spellings."""
    if not part:
        return []
    persons, alike = f"{part['persons']:,} persons", f"{part['alike']:,} without case and blanks"
    if part["alike"] == part["persons"]:
        return [persons]
    steps = ", ".join(f'"{step}"' for step in EVERY_STEP)
    return [f"{persons}; {alike}: every spelling has a cap of its own; set normalize = [{steps}] before the first run"]
