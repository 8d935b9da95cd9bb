"""Keep what is computed but not published, inside the boundary: one file per shard, with a record of what it holds.

Two attempts at one shard (a task that is retried, or that runs twice at once) never write the same file. The names of
their files hold a tag of each attempt, and the driver of the run decides whose files count.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from dptext_etl.checks.canaries import CANARY
from dptext_etl.errors import InputError, seam
from dptext_etl.files import sha256
from dptext_etl.runner import durable
from dptext_etl.runner.computed import Places
from dptext_etl.runner.shard.records import Facts, KeptShard, StagedShard, recorded
from dptext_etl.runner.staging_files import Shelf

_KEPT = "kept"
_CHANGED = "changed"
_POST = ".post"
_SOON_REMOVED: Final = "uncompressed"  # read twice and removed: a quarter of the time of lz4
_KEPT_LONG: Final = "lz4"
_AGAIN = "run the same policy again: it goes on from what is committed"


class Staging:
    """The staging folder of one release and partition.

    Attributes:
        shelf: The files of the folder.
        folder: The folder; where the files lie in an object store, one of this process.
    """

    def __init__(self, shelf: Shelf | Path, tag: str = "") -> None:
        self.shelf = Shelf(shelf) if isinstance(shelf, Path) else shelf
        self.folder = self.shelf.folder
        self._tag = tag

    def prepare(self) -> None:
        """Make the folder."""
        self.shelf.prepare()

    def path(self, shard: StagedShard) -> Path:
        """Return the file of a shard."""
        return self._path(shard.index, shard.tag)

    def save(
        self,
        index: int,
        frame: pl.DataFrame,
        draws: pl.DataFrame,
        inputs: str,
        facts: Facts,
        *,
        keeps: bool = False,
    ) -> StagedShard:
        """Write a shard, its draw counts, and then its record. All of them are durable when this returns."""
        path = self._path(index, self._tag)
        self.shelf.remove(_record(path), _post(path))
        rows = partial(frame.write_parquet, compression=_KEPT_LONG if keeps else _SOON_REMOVED)
        for place, fill in ((_draws(path), draws.write_ipc), (path, rows)):
            self.shelf.write(place, fill, action="staging a shard", listed=False)  # the record's write lists them, too
        return self.say(StagedShard(index, sha256(path), inputs, *facts, self._tag))

    def say(self, shard: StagedShard) -> StagedShard:
        """Write the record of a shard, durably, and return it; what post-processing made of it comes first."""
        if shard.post:
            self.shelf.put(self.post(shard))
        text = json.dumps(shard.as_dict()).encode()  # in one line: long records are written by C code alone
        self.shelf.write(_record(self.path(shard)), lambda file: file.write(text), action="staging a shard")
        return shard

    def post(self, shard: StagedShard) -> Path:
        """Return the file of what post-processing made of a shard."""
        return _post(self.path(shard))

    def outcome(self, shard: StagedShard) -> pl.DataFrame:
        """Read a shard as it is to be published, canary rows included, and check its hash."""
        if not shard.post:
            return self.read(shard)
        self.require(shard)
        with seam("reading what was staged", hint=_AGAIN):
            return pl.read_parquet(self.post(shard))

    def find(self, index: int, inputs: str) -> list[StagedShard]:
        """Return the whole attempts at a shard that were computed from these inputs."""
        found = self._recorded(f"{self._path(index, '').stem}*.json")
        return [shard for shard in found if self._whole(shard, index, inputs)]

    def _recorded(self, pattern: str) -> Iterator[StagedShard]:
        """Read the records that can be read."""
        for path in self.shelf.found(pattern):
            shard = recorded(self.shelf.here(path, fresh=True))
            if shard is not None:
                yield shard

    def _whole(self, shard: StagedShard, index: int, inputs: str) -> bool:
        try:
            if (shard.index, shard.inputs) != (index, inputs):
                return False
            held = self._holds(self.path(shard), shard.sha256)
            return held and self.shelf.here(_draws(self.path(shard)), fresh=True).is_file()
        except OSError:
            return False

    def _holds(self, file: Path, digest: str) -> bool:
        """Return whether a file holds these bytes; one that was fetched before others wrote it is fetched again."""
        if sha256(self.shelf.here(file)) == digest:
            return True
        return self.shelf.remote and sha256(self.shelf.here(file, fresh=True)) == digest

    def holds_post(self, shard: StagedShard) -> bool:
        """Return whether what post-processing made of a shard is there and whole."""
        try:
            return bool(shard.post) and self._holds(self.post(shard), shard.post["sha256"])
        except OSError:
            return False

    def draws(self, shard: StagedShard) -> pl.DataFrame:
        """Return the draw counts of a shard, one column per text column."""
        with seam("reading what was staged", hint=_AGAIN):
            return pl.read_ipc(self.shelf.here(_draws(self.path(shard))))

    def read(self, shard: StagedShard) -> pl.DataFrame:
        """Read a staged shard and check its hash."""
        self.require(shard)
        with seam("reading what was staged", hint=_AGAIN):
            return pl.read_parquet(self.path(shard))

    def require(self, shard: StagedShard) -> None:
        """Refuse a staged file that is gone or has changed."""
        files = {self.path(shard): shard.sha256}
        if shard.post:
            files[self.post(shard)] = shard.post["sha256"]
        with seam("reading what was staged", hint=_AGAIN):
            for path, digest in files.items():
                if not self._holds(path, digest):
                    raise _changed(path)

    def schema(self, shard: StagedShard) -> pl.Schema:
        """Return the columns and types that a staged shard will be published with."""
        with seam("reading what was staged", hint=_AGAIN):
            found = self.shelf.schema(self.post(shard) if shard.post else self.path(shard))
        return pl.Schema({name: dtype for name, dtype in found.items() if name != CANARY})

    def columns(self, shard: StagedShard) -> pl.Schema:
        """Return the columns and types of a staged shard, the mark of canary rows included."""
        return self.shelf.schema(self.path(shard))

    def quarantine(self, index: int, ids: pl.DataFrame) -> None:
        """Store the ids of records over the cap, inside staging only; an empty frame removes the list."""
        path = self.folder / f"quarantine-{index:05d}.parquet"
        if not ids.height:
            self.shelf.remove(path)
            return
        if self.shelf.remote:
            self.shelf.write(path, ids.write_parquet, action="staging a quarantine list")
            return
        own = path.with_stem(f"{path.stem}{self._tag and f'-{self._tag}'}")
        durable.write(own, ids.write_parquet, action="staging a quarantine list")
        own.replace(path)

    def no_changes(self) -> None:
        """Remove the lists of changed records of the run before."""
        self.shelf.remove(*self.shelf.found(f"{_CHANGED}-*"))

    def changed(self, ids: pl.DataFrame) -> None:
        """Store ids of records whose texts changed, inside staging only."""
        path = self.folder / f"{_CHANGED}-{secrets.token_hex(8)}.parquet"
        self.shelf.write(path, ids.write_parquet, action="staging a list of changed records")

    def discard(self, index: int) -> None:
        """Remove the files that this attempt staged of a shard."""
        path = self._path(index, self._tag)
        self.shelf.remove(*reversed(_files(path)))

    def keep_only(self, shards: Collection[StagedShard]) -> None:
        """Remove the files of all other shards and attempts, drafts and quarantine lists included."""
        self.shelf.hold()
        files = {file for shard in shards for file in _files(self.path(shard))}
        lists = {f"quarantine-{shard.index:05d}" for shard in shards}
        shown = _records_first(self.shelf.found("shard-*"))
        there = [*shown, *self.shelf.found("quarantine-*"), *self.folder.glob(".*-*.draft")]
        self.shelf.remove(*(path for path in there if path not in files and path.stem not in lists))

    def clear(self) -> None:
        """Remove staged shards; quarantine lists stay."""
        self.shelf.hold()
        self.shelf.remove(*_records_first(self.shelf.found("shard-*")))

    def set_aside(self) -> None:
        """Give staged files a second name that no run overwrites or removes; replays of models read it."""
        for shard in self._recorded("shard-*.json"):
            path = self.path(shard)
            name = f"{_KEPT}-{shard.index:05d}-{shard.sha256[:16]}"
            self._note(self.folder / f"{name}.json", shard.computed)
            if shard.post:
                self.shelf.name_again(_post(path), self.folder / f"{name}-{shard.post['sha256'][:16]}{_POST}")
            for file in (_draws(path), path):  # rows come last: with them, all is there
                self.shelf.name_again(file, self.folder / f"{name}{file.suffix}")

    def keeps(self, index: int, digest: str) -> bool:
        """Return whether published rows with this hash are kept."""
        return bool(self.shelf.found(f"{_KEPT}-{index:05d}-{digest[:16]}.parquet"))

    def keep(self, index: int, digest: str, frame: pl.DataFrame, draws: pl.DataFrame) -> None:
        """Keep published rows, as if they had been set aside."""
        path = self.folder / f"{_KEPT}-{index:05d}-{digest[:16]}.parquet"
        for place, fill in ((_draws(path), draws.write_ipc), (path, frame.write_parquet)):
            self.shelf.write(place, fill, action="keeping what is published")

    def kept(self, index: int) -> Iterator[KeptShard]:
        """Read what was set aside, shards near `index` first."""
        files = self.shelf.found(f"{_KEPT}-*.parquet")
        rewritten = self.shelf.found(f"{_KEPT}-*{_POST}")
        for path in sorted(files, key=lambda path: abs(int(path.name.split("-")[1]) - index)):
            with seam("reading what was staged", hint=_AGAIN):
                theirs = (post for post in rewritten if post.name.startswith(f"{path.stem}-"))
                posts = tuple(pl.read_parquet(self._fresh(post)) for post in theirs)
                frame, draws = pl.read_parquet(self._fresh(path)), pl.read_ipc(self._fresh(_draws(path)))
                yield KeptShard(frame, draws, _noted(self._fresh(path.with_suffix(".json"))), posts)

    def _fresh(self, path: Path) -> Path:
        return self.shelf.here(path, fresh=True)

    def _note(self, path: Path, computed: Places) -> None:
        """Write next to what is set aside where it was computed, once."""
        if computed and not self.shelf.here(path).exists():
            text = json.dumps(computed, indent=1).encode()
            self.shelf.write(path, lambda file: file.write(text), action="keeping what was staged")

    def _path(self, index: int, tag: str) -> Path:
        return self.folder / f"shard-{index:05d}{tag and f'-{tag}'}.parquet"


def _record(path: Path) -> Path:
    return path.with_suffix(".json")


def _noted(path: Path) -> Places:
    """Read what `Staging._note` wrote; nothing where it wrote nothing, or is damaged: no byte depends on it."""
    try:
        return dict(json.loads(path.read_text(encoding="ascii")))
    except (OSError, ValueError, TypeError):
        return {}


def _draws(path: Path) -> Path:
    return path.with_suffix(".draws")


def _post(path: Path) -> Path:
    return path.with_suffix(_POST)


def _files(path: Path) -> tuple[Path, ...]:
    return path, _draws(path), _post(path), _record(path)


def _changed(path: Path) -> InputError:
    return InputError(f"the staged file {path.name} has changed since it was staged", _AGAIN)


def _records_first(paths: Iterable[Path]) -> list[Path]:
    """Put records before their files: who dies while removing leaves no record without its files."""
    return sorted(paths, key=lambda path: path.suffix != ".json")
