"""What is computed but not published, inside the boundary: one file per shard, with a record of what it holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import polars as pl

from dptext_etl.checks.canaries import CANARY
from dptext_etl.errors import InputError, seam
from dptext_etl.runner import durable

_VERSION = 1
_AGAIN = "run the same policy again: it goes on from what is committed"


@dataclass(frozen=True)
class StagedShard:
    """One staged file.

    Attributes:
        index: Number of the shard in its run.
        sha256: Hash of the file.
        inputs: Hash of what the file was computed from (keyed hashes of texts; kept values): a resumed run compares it.
        counts: Whole numbers: rows by kind, words.
        spends: Sums and maxima in millionths, by name.
        copies: Texts that equal their originals, by column (`checks.leaks`); stays inside the boundary.
    """

    index: int
    sha256: str
    inputs: str
    counts: Mapping[str, int]
    spends: Mapping[str, int]
    copies: Mapping[str, Mapping[str, Any]]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a record that `save` wrote."""
        values = json.loads(text)
        if values.pop("version") != _VERSION:
            msg = "another version of the record"
            raise ValueError(msg)
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON holds it."""
        return {"version": _VERSION, **asdict(self)}


class Facts(NamedTuple):
    """What was counted while a shard was computed (see `StagedShard`)."""

    counts: Mapping[str, int]
    spends: Mapping[str, int]
    copies: Mapping[str, Mapping[str, Any]]


class Staging:
    """The staging folder of one release and partition.

    Args:
        folder: Where it is; made if need be, readable by its owner alone.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make the folder.

        Raises:
            InputError: No write access.
        """
        durable.private_folder(self.folder.parent.parent)
        durable.private_folder(self.folder.parent)
        durable.private_folder(self.folder)
        durable.require_writable(self.folder)

    def path(self, index: int) -> Path:
        """Return the file of a shard."""
        return self.folder / f"shard-{index:05d}.parquet"

    def save(self, index: int, frame: pl.DataFrame, inputs: str, facts: Facts) -> StagedShard:
        """Write a shard and then its record, both durable when this returns.

        Args:
            index: Number of the shard.
            frame: Its rows, canary rows included.
            inputs: Hash of what it was computed from.
            facts: What was counted.

        Raises:
            InputError: The disk is full; the shard is not staged.
        """
        path = self.path(index)
        self._record(index).unlink(missing_ok=True)
        durable.write(path, frame.write_parquet, action="staging a shard")
        shard = StagedShard(index, durable.sha256(path), inputs, *facts)
        text = json.dumps(shard.as_dict(), indent=1).encode()
        durable.write(self._record(index), lambda file: file.write(text), action="staging a shard")
        return shard

    def find(self, index: int, inputs: str) -> StagedShard | None:
        """Return a staged shard that was computed from these inputs and is whole, or None."""
        try:
            shard = StagedShard.from_json(self._record(index).read_text())
            whole = shard.index == index and shard.inputs == inputs and durable.sha256(self.path(index)) == shard.sha256
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return shard if whole else None

    def read(self, shard: StagedShard) -> pl.DataFrame:
        """Read a staged shard by its hash.

        Raises:
            InputError: It is gone, or no longer what was staged.
        """
        self.require(shard)
        with seam("reading what was staged", hint=_AGAIN):
            return pl.read_parquet(self.path(shard.index))

    def require(self, shard: StagedShard) -> None:
        """Refuse a staged file that is gone, or no longer what was staged.

        Raises:
            InputError: It is.
        """
        path = self.path(shard.index)
        with seam("reading what was staged", hint=_AGAIN):
            if durable.sha256(path) != shard.sha256:
                raise InputError(f"the staged file {path.name} is no longer what was staged", _AGAIN)

    def schema(self, shard: StagedShard) -> pl.Schema:
        """Return the columns and types that a staged shard will be published with."""
        with seam("reading what was staged", hint=_AGAIN):
            found = pl.read_parquet_schema(self.path(shard.index))
        return pl.Schema({name: dtype for name, dtype in found.items() if name != CANARY})

    def quarantine(self, index: int, ids: pl.DataFrame) -> None:
        """Keep the ids of records over the cap, inside staging only; an empty frame removes the list."""
        path = self.folder / f"quarantine-{index:05d}.parquet"
        if ids.height:
            durable.write(path, ids.write_parquet, action="staging a quarantine list")
        else:
            path.unlink(missing_ok=True)

    def discard(self, index: int) -> None:
        """Remove a staged shard."""
        self._record(index).unlink(missing_ok=True)
        self.path(index).unlink(missing_ok=True)

    def keep_only(self, shards: Collection[int]) -> None:
        """Remove what earlier runs staged under other numbers, quarantine lists included."""
        for path in self.folder.glob("*-*.*"):
            number = path.stem.rpartition("-")[2]
            if number.isdigit() and int(number) not in shards:
                path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove staged shards; quarantine lists stay."""
        for path in self.folder.glob("shard-*"):
            path.unlink(missing_ok=True)

    def _record(self, index: int) -> Path:
        return self.path(index).with_suffix(".json")


def digest_of(*parts: bytes) -> str:
    """Hash byte strings unambiguously, 64 hex digits."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little"))
        whole.update(part)
    return whole.hexdigest()
