"""Keep what is computed but not published, inside the boundary: one file per shard, with a record of what it holds.

Two attempts at one shard (a task that is retried, or that runs twice at once) never write the same file. The names of
their files hold a tag of each attempt, and the driver of the run decides whose files count.
"""

from __future__ import annotations

import hashlib
import io
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa

from dptext_etl import files
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.reports import reading_page
from dptext_etl.errors import InputError, seam
from dptext_etl.files import sha256
from dptext_etl.runner.seals import opened, sealed
from dptext_etl.runner.shard.records import Facts, KeptShard, StagedShard, stem_of
from dptext_etl.storage import Storage

UNIT = "__dptext_unit"
"""Column of the keyed hashes of units in lists of ids: `dptext forget` finds a person by it."""
_KEPT = "kept"
_CHANGED = "changed"
LISTS = ("quarantine-*.parquet", f"{_CHANGED}-*.parquet")
"""The files that list ids of records that were left out, or whose texts changed."""
READING: Final = "texts.txt"
"""The report on the texts of a run: the only file that shows how many hold few known words, or are cut."""
_RECORD: Final = "shard"
_SOON_REMOVED: Final = "uncompressed"  # read twice and removed: a quarter of the time of lz4
_KEPT_LONG: Final = "lz4"
_AGAIN = "run the same policy again: it goes on from what is committed"


class Staging:
    """The staging folder of one release and partition."""

    def __init__(self, storage: Storage | Path, key: bytes = b"", tag: str = "") -> None:
        """Open the folder; `key` seals the records of shards (`runner.seals`), which a reader of known shards lacks."""
        self.storage = Storage(str(storage)) if isinstance(storage, Path) else storage
        self.folder = self.storage.folder
        self._key = key
        self._tag = tag

    def path(self, shard: StagedShard) -> Path:
        return self.folder / f"{shard.stem}.parquet"

    def post(self, shard: StagedShard) -> Path:
        """Return the local path of what post-processing made of a shard."""
        return self.folder / f"{shard.stem}.post"

    def save(
        self, index: int, frame: pl.DataFrame, draws: pl.DataFrame, inputs: str, facts: Facts, *, keeps: bool = False
    ) -> StagedShard:
        """Write a shard, its draw counts, and then its record. All of them are durable when this returns."""
        stem = stem_of(index, self._tag)
        self.storage.delete(f"{stem}.json", f"{stem}.post")
        rows = partial(frame.write_parquet, compression=_KEPT_LONG if keeps else _SOON_REMOVED)
        for name, fill in ((f"{stem}.draws", draws.write_ipc), (f"{stem}.parquet", rows)):
            # the record's write makes these names durable, too
            self.storage.write(name, fill, action="staging a shard", flush_folder=False)
        whole, counts = (sha256(self.folder / f"{stem}.{suffix}") for suffix in ("parquet", "draws"))
        return self.record(StagedShard(index, whole, counts, inputs, *facts, self._tag))

    def save_post(self, shard: StagedShard, frame: pl.DataFrame, facts: Mapping[str, Any]) -> StagedShard:
        """Write what post-processing made of a shard, then its record."""
        name = f"{shard.stem}.post"
        self.storage.write(name, frame.write_parquet, action="staging a shard")
        return self.record(replace(shard, post={"sha256": sha256(self.folder / name), **facts}))

    def record(self, shard: StagedShard) -> StagedShard:
        content = sealed(self._key, _RECORD, shard.as_dict())
        self.storage.write(f"{shard.stem}.json", content, action="staging a shard")
        return shard

    def outcome(self, shard: StagedShard) -> pl.DataFrame:
        """Read a shard as it is to be published, canary rows included, and check its hash."""
        if not shard.post:
            return self.read(shard)
        self.require(shard)
        with seam("reading what was staged", hint=_AGAIN):
            return pl.read_parquet(self.post(shard))

    def find(self, index: int, inputs: str) -> list[StagedShard]:
        """Return the whole attempts at a shard that were computed from these inputs."""
        found = map(self._recorded, self.storage.glob(f"{stem_of(index)}*.json"))
        return [shard for shard in found if shard is not None and self._whole(shard, index, inputs)]

    def _recorded(self, name: str) -> StagedShard | None:
        """Read a record; None if there is none, or if no run under this key and version wrote it."""
        return StagedShard.parse(opened(self._key, _RECORD, self.storage.read(name)))

    def _whole(self, shard: StagedShard, index: int, inputs: str) -> bool:
        try:
            if (shard.index, shard.inputs) != (index, inputs):
                return False
            return all(self._holds(name, digest) for name, digest in _digests(shard).items())
        except OSError:
            return False

    def _holds(self, name: str, digest: str) -> bool:
        """Return whether a file holds these bytes; one that was fetched before others wrote it is fetched again."""
        if sha256(self.storage.local_path(name)) == digest:
            return True
        return self.storage.remote and sha256(self._fresh(name)) == digest

    def holds_post(self, shard: StagedShard) -> bool:
        try:
            return bool(shard.post) and self._holds(f"{shard.stem}.post", shard.post["sha256"])
        except OSError:
            return False

    def draws(self, shard: StagedShard) -> pl.DataFrame:
        """Read the draw counts of a staged shard, and check their hash."""
        name = f"{shard.stem}.draws"
        with seam("reading what was staged", hint=_AGAIN):
            self._require(name, shard.draws)
            return pl.read_ipc(self.storage.local_path(name))

    def read(self, shard: StagedShard) -> pl.DataFrame:
        """Read a staged shard and check its hash."""
        self.require(shard)
        with seam("reading what was staged", hint=_AGAIN):
            return pl.read_parquet(self.path(shard))

    def require(self, shard: StagedShard) -> None:
        """Refuse a staged file that is gone or has changed."""
        digests = {**_digests(shard), **({f"{shard.stem}.post": shard.post["sha256"]} if shard.post else {})}
        with seam("reading what was staged", hint=_AGAIN):
            for name, digest in digests.items():
                self._require(name, digest)

    def _require(self, name: str, digest: str) -> None:
        if not self._holds(name, digest):
            raise InputError(f"the staged file {name} has changed since it was staged", _AGAIN)

    def schema(self, shard: StagedShard) -> pl.Schema:
        """Return the columns and types that a staged shard will be published with."""
        with seam("reading what was staged", hint=_AGAIN):
            found = self._schema(f"{shard.stem}.post" if shard.post else f"{shard.stem}.parquet")
        return pl.Schema({name: dtype for name, dtype in found.items() if name != CANARY})

    def columns(self, shard: StagedShard) -> pl.Schema:
        return self._schema(f"{shard.stem}.parquet")

    def _schema(self, name: str) -> pl.Schema:
        return pl.Schema(pl.read_parquet_schema(self.storage.described(name)))

    def quarantine(self, index: int, ids: pl.DataFrame, units: pa.Array | None = None) -> None:
        """Store the ids of records over the cap and hashes of their units, inside staging only.

        An empty frame removes the list.
        """
        ids = _with_units(ids, units)
        name = f"quarantine-{index:05d}.parquet"
        if not ids.height:
            self.storage.delete(name)
            return
        if self.storage.remote:
            self.storage.write(name, ids.write_parquet, action="staging a list of records that are left out")
            return
        own = self.folder / f"quarantine-{index:05d}{self._tag and f'-{self._tag}'}.parquet"
        files.write(own, ids.write_parquet, action="staging a list of records that are left out")
        own.replace(self.folder / name)

    def no_changes(self) -> None:
        self.storage.delete(*self.storage.glob(f"{_CHANGED}-*"))

    def changed(self, ids: pl.DataFrame, units: pa.Array | None = None) -> None:
        """Store ids of records whose texts changed and hashes of their units, inside staging only."""
        ids = _with_units(ids, units)
        name = f"{_CHANGED}-{secrets.token_hex(8)}.parquet"
        self.storage.write(name, ids.write_parquet, action="staging a list of changed records")

    def discard(self, index: int) -> None:
        self.storage.delete(*_files(stem_of(index, self._tag)))

    def report(self, shards: Collection[StagedShard]) -> None:
        """Write the report on the texts of a run, also where it took none."""
        page = reading_page(shard.read for shard in shards)
        self.storage.write(READING, page.encode(), action="writing the report on the texts")

    def keep_only(self, shards: Collection[StagedShard]) -> None:
        """Remove the files of all other shards and attempts, drafts and quarantine lists included."""
        self.storage.renew_lock()
        keep = {name for shard in shards for name in _files(shard.stem)}
        keep |= {f"quarantine-{shard.index:05d}.parquet" for shard in shards}
        drafts = (path.name for path in self.folder.glob(".*-*.draft"))
        names = [*_records_first(self.storage.glob("shard-*")), *self.storage.glob("quarantine-*"), *drafts]
        self.storage.delete(*(name for name in names if name not in keep))

    def clear(self) -> None:
        """Remove staged shards; quarantine lists stay."""
        self.storage.renew_lock()
        self.storage.delete(*_records_first(self.storage.glob("shard-*")))

    def set_aside(self) -> None:
        """Give staged files a second name that no run overwrites or removes; replays of models read it."""
        for name in self.storage.glob("shard-*.parquet"):
            stem = name.removesuffix(".parquet")
            shard = self._recorded(f"{stem}.json")
            # a shard of an earlier version, too: replays compare each row with the ledger
            digest = sha256(self._fresh(name)) if shard is None else shard.sha256
            kept = f"{_KEPT}-{stem.split('-')[1]}-{digest[:16]}"
            if (post := self._fresh(f"{stem}.post")).exists():
                self.storage.copy(post.name, f"{kept}-{sha256(post)[:16]}.post")
            for suffix in ("json", "draws", "parquet"):  # rows come last: with them, all is there
                self.storage.copy(f"{stem}.{suffix}", f"{kept}.{suffix}")

    def keeps(self, index: int, digest: str) -> bool:
        return bool(self.storage.glob(f"{_KEPT}-{index:05d}-{digest[:16]}.parquet"))

    def keep(self, index: int, digest: str, frame: pl.DataFrame) -> None:
        """Keep published rows, as if they had been set aside."""
        name = f"{_KEPT}-{index:05d}-{digest[:16]}.parquet"
        self.storage.write(name, frame.write_parquet, action="keeping what is published")

    def kept(self, index: int) -> Iterator[KeptShard]:
        """Read what was set aside, shards near `index` first. The ledger vouches for rows, records for all else."""
        names = self.storage.glob(f"{_KEPT}-*.parquet")
        rewritten = self.storage.glob(f"{_KEPT}-*.post")
        for name in sorted(names, key=lambda name: abs(int(name.split("-")[1]) - index)):
            stem = name.removesuffix(".parquet")
            with seam("reading what was staged", hint=_AGAIN):
                posts = tuple(pl.read_parquet(self._fresh(post)) for post in rewritten if post.startswith(f"{stem}-"))
                rows, shard = self._fresh(name).read_bytes(), self._recorded(f"{stem}.json")
                draws = None if shard is None or _sha256(rows) != shard.sha256 else self._kept_draws(stem, shard)
                computed = {} if shard is None else shard.computed
                yield KeptShard(pl.read_parquet(io.BytesIO(rows)), draws, computed, posts)

    def _kept_draws(self, stem: str, shard: StagedShard) -> pl.DataFrame | None:
        content = self.storage.read(f"{stem}.draws") or b""
        return pl.read_ipc(io.BytesIO(content)) if _sha256(content) == shard.draws else None

    def _fresh(self, name: str) -> Path:
        return self.storage.local_path(name, fresh=True)


def _with_units(ids: pl.DataFrame, units: pa.Array | None) -> pl.DataFrame:
    return ids if units is None else ids.with_columns(pl.Series(UNIT, units).cast(pl.Binary))


def _files(stem: str) -> tuple[str, ...]:
    """Return the files of an attempt, in the order in which they are removed (`_records_first`)."""
    return tuple(f"{stem}.{suffix}" for suffix in ("json", "post", "draws", "parquet"))


def _digests(shard: StagedShard) -> dict[str, str]:
    return {f"{shard.stem}.parquet": shard.sha256, f"{shard.stem}.draws": shard.draws}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _records_first(names: Iterable[str]) -> list[str]:
    """Put records before their files: a process that dies while it removes leaves no record without its files."""
    return sorted(names, key=lambda name: not name.endswith(".json"))
