"""Describe staged files of shards in counts and hashes, as JSON and Parquet hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.arrays import to_arrow
from dptext_etl.mechanism import Released

_VERSION = 5

Hardware = Mapping[str, str]
"""A device and a number type. Scores of models differ in their last digits between them, so records name them."""
ColumnHardware = Mapping[str, Sequence[Hardware]]
"""Where models computed, by text column, sorted; columns without a model are left out."""


def merge_hardware(parts: Iterable[ColumnHardware]) -> ColumnHardware:
    """Unite the hardware of several shards, each once, in order."""
    found: dict[str, set[tuple[tuple[str, str], ...]]] = {}
    for part in parts:
        for column, items in part.items():
            found.setdefault(column, set()).update(tuple(sorted(item.items())) for item in items)
    return {column: [dict(item) for item in sorted(items)] for column, items in found.items() if items}


@dataclass(frozen=True)
class StagedShard:
    """The record of one staged file."""

    index: int  # number of the shard in its run
    sha256: str  # hash of the file
    draws: str  # hash of the file of its draw counts
    # hash of what the file was computed from (keyed hashes of texts, kept values); a resumed run compares it
    inputs: str
    counts: Mapping[str, int]  # whole numbers: rows by kind, words
    spends: Mapping[str, int | float]  # sums and maxima in millionths, by name
    # texts that equal their originals, by column (`checks.leaks`); stays inside the boundary
    copies: Mapping[str, Mapping[str, Any]]
    computed: ColumnHardware = field(default_factory=dict)  # where the texts' models computed; none without a model
    # what models failed on, by column: `texts`, and `draws` that were uniform; none where none failed, and inside the
    # boundary
    failures: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    # canary rows that were computed twice (`rows`), that agree (`equal`), and that got the release of another text
    # (`moved`), by column
    recomputed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    statistic: str = ""  # the noisy sums that a synthetic table was drawn from, in base64; empty for released texts
    # how texts were read, by column (`checks.reports.count_reading`); stays in staging
    read: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    tag: str = ""  # what names the files of one attempt; empty where attempts cannot meet
    # what post-processing made of it: `sha256` of the file next to it, `chains` by column, how many texts a model
    # `failed` on, by column, and `copies` among its results, as above; none where nothing is post-processed, or before
    # it was
    post: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """The name of its files, without their suffixes."""
        return stem_of(self.index, self.tag)

    @property
    def by_ids(self) -> bool:
        """Whether ids and counts alone decided which rows it holds, as on Spark; else raw texts filled it."""
        return bool(self.tag)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        values = dict(facts)
        if values.pop("version") != _VERSION:
            msg = "another version of the record"
            raise ValueError(msg)
        return cls(**values)

    @classmethod
    def parse(cls, facts: Mapping[str, Any] | None) -> Self | None:
        try:
            return cls.from_dict(facts or {})
        except (ValueError, KeyError, TypeError):
            return None

    def as_dict(self) -> dict[str, Any]:
        facts = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("computed", "failures", "recomputed", "statistic", "read", "post"):  # left out where empty
            if not facts[name]:
                del facts[name]
        return {"version": _VERSION, **facts}


def stem_of(index: int, tag: str = "") -> str:
    return f"shard-{index:05d}{tag and f'-{tag}'}"


class WholeTable(NamedTuple):
    """The records of a table that a release takes, in numbers (docs/spec/unlinked.md#one-batch)."""

    records: int  # records, those without a text included
    draws: int  # records with a draw
    digest: str  # sum of their identities modulo 2^256, 64 hex digits
    labels: dict[str, int] | None = None  # records with a draw by label; None without labels


class Facts(NamedTuple):
    counts: Mapping[str, int]
    spends: Mapping[str, int | float]
    copies: Mapping[str, Mapping[str, Any]]
    computed: ColumnHardware
    failures: Mapping[str, Mapping[str, int]]
    recomputed: Mapping[str, Mapping[str, int]]
    statistic: str = ""
    read: Mapping[str, Mapping[str, int]] = MappingProxyType({})


class KeptShard(NamedTuple):
    """A shard that was kept for replays."""

    frame: pl.DataFrame  # its rows, canary rows included
    draws: pl.DataFrame | None  # draws made, one column per text column; None where no record vouches for them
    computed: ColumnHardware  # where the texts' models computed
    posts: tuple[pl.DataFrame, ...] = ()  # what post-processing made of its rows, a frame for each time


def write_draws(released: Released) -> pl.Series:
    """Return the draw counts of a column: numbers, or a struct of `positions` and `steps`, shape (rows,)."""
    positions = pl.Series("positions", released.positions, dtype=pl.UInt32)
    if released.steps is None:
        return positions
    return pl.DataFrame([positions, pl.Series("steps", released.steps, dtype=pl.UInt32)]).to_struct()


def read_draws(written: pl.Series) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32] | None]:
    """Read what `write_draws` wrote: charged draws, and those really made or None, shape (rows,)."""
    if not isinstance(written.dtype, pl.Struct):
        return written.to_numpy(), None
    return written.struct.field("positions").to_numpy(), written.struct.field("steps").to_numpy()


def read_released(texts: pl.Series, written: pl.Series, failed: pa.Array | None) -> Released:
    """Join staged texts with the draw counts that `write_draws` wrote."""
    positions, steps = read_draws(written)
    text = texts.to_arrow().cast(pa.large_string())
    return Released(text, to_arrow(positions), None if steps is None else to_arrow(steps), failed)
