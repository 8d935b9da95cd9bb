"""Count persons as a policy spells them, and as all steps of `normalize` would: every spelling has its own cap."""

from __future__ import annotations

from collections.abc import Sequence
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
_PLAIN = r"^[!-@\[-~]([ -@\[-~]*[!-@\[-~])?$"
"""Matches ASCII without capital letters and outer blanks."""
EVERY_STEP: tuple[Normalization, ...] = get_args(Normalization)


class Spelled:
    """Count persons in bounded memory, by hashes of 64 bits in the folder `scratch`, batch by batch."""

    def __init__(self, how: Sequence[Normalization] = (), scratch: Path | None = None) -> None:
        self._counted = [(steps, Buckets(8, scratch)) for steps in (how, EVERY_STEP)]

    def add(self, persons: pl.Series) -> None:
        """Take persons as the source has them; nulls do not count, nor persons that are not strings."""
        if persons.dtype == pl.String:
            names = persons.drop_nulls().unique()
            plain = names.str.contains(_PLAIN)  # no step changes them
            for steps, found in self._counted:
                found.add(_hashes(names.filter(plain).to_arrow()))
                found.add(_hashes(normalized(names.filter(~plain).to_arrow(), steps)))

    def counts(self) -> dict[str, int]:
        """Return the distinct `persons` as `how` spells them, and `alike` with every step; nothing without any."""
        persons, alike = (found.distinct() for _, found in self._counted)
        for _, found in self._counted:
            found.close()
        return {"persons": persons, "alike": alike} if persons else {}


def spellings(
    frame: pl.LazyFrame, column: str, how: Sequence[Normalization] = (), scratch: Path | None = None
) -> dict[str, int]:
    """Count the persons of a column as `Spelled` does."""
    spelled = Spelled(how, scratch)
    with seam("counting the spellings of persons", InputError, READ_HINT):
        for batch in batches(frame.select(column), BATCH_ROWS):
            spelled.add(batch.to_series())
        return spelled.counts()


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
