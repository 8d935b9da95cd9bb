"""Write the files of a version where no reader looks, then put them in place in one step."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Self

import polars as pl

from dptext_etl import files
from dptext_etl.checks.canaries.rows import CANARY
from dptext_etl.device import threads
from dptext_etl.errors import InputError, seam
from dptext_etl.files import flush, sha256
from dptext_etl.runner.formats import writer
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Part
from dptext_etl.runner.publish.own_ids import Hidden
from dptext_etl.runner.shard.records import StagedShard
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.cutting import ANY_SIZE, cut
from dptext_etl.side_by_side import in_order
from dptext_etl.storage import Storage

_NO_LIMIT = (ANY_SIZE, ANY_SIZE)
_ELSEWHERE = ".elsewhere"
"""Ends the name of a folder where other machines draft parts; it is next to the drafts, and no version holds it."""
_WIDTH = 2
"""Parts that are written at a time, at most: each is in memory."""
_AGAIN = "is there room and access? Readers still see the version before; run the same policy again"


Move = Callable[[Sequence[tuple[str, str, str]], Callable[[], object]], int]
"""Brings parts from the store of staging to that of the sink.

It gets the name of each, the name of its object and its hash, and what to call now and then. It returns how many
objects were missing or held other bytes.
"""


class Writer:
    """Write the parts of one version.

    They are drafted for their owner alone, until the ledger has recorded the publication. A local sink then gets them
    by one rename. An object store gets its objects one by one, under names that no other version has: no manifest names
    them yet, so no reader sees them.

    Attributes:
        version: Number of the version.
        hidden: How ids are published in the place of the records' own; None if they are published as they are.
        lists: Names of the lists of the records' own ids that were kept inside so far.
    """

    def __init__(
        self,
        layout: Layout,
        staging: Staging,
        version: int,
        most: tuple[int, int] = (ANY_SIZE, ANY_SIZE),
        hidden: Hidden | None = None,
    ) -> None:
        self._layout = layout
        self._staging = staging
        self.version = version
        self._most = most
        self.hidden = hidden
        self.lists: set[str] = set()
        self._written: list[tuple[str, int, str]] = []
        self._objects: dict[str, tuple[str, int]] = {}
        self._moved: Move | None = None
        self._drafts = (
            staging.folder / "parts" if layout.remote_sink else layout.local.versions / f".v{version}.incomplete"
        )

    def __enter__(self) -> Self:
        self._remove_drafts()
        with seam("writing a version", InputError, _AGAIN):
            self._drafts.mkdir(mode=files.PRIVATE_FOLDER)
        return self

    def __exit__(self, *_: object) -> None:
        self._remove_drafts()

    @property
    def folder(self) -> str:
        """The folder of the version; in an object store a name of its own, which follows from what is in it."""
        if not self._layout.remote_sink:
            return f"v{self.version}"
        content = "".join(digest for _, _, digest in self._written)
        return f"v{self.version}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that were written so far."""
        return tuple(Part(f"{self.folder}/{name}", rows, digest) for name, rows, digest in self._written)

    @property
    def drafts(self) -> tuple[Path, ...]:
        """The drafts of the parts that were written to this machine so far."""
        return tuple(self._drafts / name for name, _, _ in self._written if name not in self._objects)

    @property
    def size(self) -> int:
        """Bytes of the drafts that were written so far."""
        drafts = (self._drafts / name for name, _, _ in self._written if name not in self._objects)
        return sum(path.stat().st_size for path in drafts) + sum(size for _, size in self._objects.values())

    @property
    def staging(self) -> Storage:
        """The storage of the staged shards."""
        return self._staging.storage

    @property
    def published(self) -> Storage:
        """The storage of the published table."""
        return self._layout.published

    @property
    def format(self) -> str:
        """The format of the parts."""
        return self._layout.sink_format

    def add(self, shards: Iterable[StagedShard], width: int) -> Iterator[int]:
        """Write the rows of staged shards in their order, without canary rows, so many parts at a time.

        Shards of this process end where raw texts fill them, so parts are cut anew: where one ends follows from
        published rows alone (docs/spec/privacy.md#structure). A shard of Spark is a part.
        """
        first = len(self._written)
        parts = self._cut(shards)
        places = ((part, self._drafts / self._name(number)) for number, part in enumerate(parts, first))
        for name, rows, digest, kept in in_order(self._add, places, width):
            self._written.append((name, rows, digest))
            self.lists.add(kept)
            yield rows

    def _cut(self, shards: Iterable[StagedShard]) -> Iterator[pl.DataFrame]:
        for by_ids, some in groupby(shards, key=lambda shard: shard.by_ids):
            rows = (_published(self._staging, shard) for shard in some)
            yield from rows if by_ids else cut(rows, *self._most)

    def _add(self, place: tuple[pl.DataFrame, Path]) -> tuple[str, int, str, str]:
        rows, path = place
        return path.name, *_written(rows, path, self.format, self._staging.storage, self.hidden)

    def add_rows(self, frame: pl.DataFrame) -> None:
        """Write rows as they are to be published."""
        path = self._drafts / self._next()
        rows, digest, kept = _written(frame, path, self.format, self._staging.storage, self.hidden)
        self._written.append((path.name, rows, digest))
        self.lists.add(kept)

    @contextmanager
    def elsewhere(self) -> Iterator[Path]:
        """Make a folder where other machines draft parts, for the block; drafts that no one takes go with it.

        It is next to the drafts of this process, so that an attempt that outlives the block leaves nothing in them.
        """
        folder = self._drafts.with_name(f"{self._drafts.name}{_ELSEWHERE}").absolute()
        with seam("writing a version", InputError, _AGAIN):
            folder.mkdir(mode=files.PRIVATE_FOLDER)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def take(self, path: Path, rows: int, digest: str, kept: str) -> None:
        """Take a part that `write_part` drafted elsewhere as the next one."""
        name = self._next()
        with seam("taking a part", InputError, _AGAIN):
            path.rename(self._drafts / name)
        self._written.append((name, rows, digest))
        self.lists.add(kept)

    def take_object(self, source: str, rows: int, digest: str, kept: str, size: int) -> None:
        """Take a part that lies in the store of staging as the next one; `moved_by` says who moves it."""
        name = self._next()
        self._objects[name] = source, size
        self._written.append((name, rows, digest))
        self.lists.add(kept)

    def moved_by(self, move: Move) -> None:
        """Let someone else bring the parts from the store of staging to that of the sink."""
        self._moved = move

    def _next(self) -> str:
        return self._name(len(self._written))

    def _name(self, number: int) -> str:
        return f"part-{number:05d}.{self.format}"

    def finish(self, each: Callable[[], object] = lambda: None) -> None:
        """Put the version where the manifest will point. Call it when the ledger has recorded the publication."""
        if self._layout.remote_sink:
            self._upload(self.parts, each)
            return
        target = self._layout.local.versions / self.folder
        with seam("putting a version in place", InputError, _AGAIN):
            for path in self._drafts.iterdir():
                path.chmod(files.PUBLIC_FILE)
            flush(self._drafts)  # once for all parts
            self._drafts.chmod(target.parent.stat().st_mode & 0o777)
            if target.exists():  # of a run that was killed before its manifest: no reader was pointed at it
                shutil.rmtree(target)
            self._drafts.rename(target)
            flush(target.parent)

    def restore(self, published: tuple[Part, ...], each: Callable[[], object] = lambda: None) -> int:
        """Restore missing or damaged parts from the parts just written, and return how many."""
        if self._layout.remote_sink:
            return self._upload(published, each)
        restored = 0
        for part, (name, _, _) in zip(published, self._written, strict=True):
            target = self._layout.local.versions / part.path
            if target.is_file() and sha256(target) == part.sha256:
                continue
            with seam("restoring a part", InputError, _AGAIN):
                target.parent.mkdir(exist_ok=True)
                draft = self._drafts / name
                draft.chmod(files.PUBLIC_FILE)
                draft.rename(target)
                flush(target.parent)
            restored += 1
        return restored

    def _upload(self, parts: tuple[Part, ...], each: Callable[[], object]) -> int:
        """Write the objects that are missing or hold other bytes, look at what the store holds then, and count them."""
        if self._moved is not None:
            both = zip(parts, self._written, strict=True)
            return self._moved([(self._objects[name][0], part.path, part.sha256) for part, (name, _, _) in both], each)
        store, written = self._layout.published, 0
        for part, (name, _, _) in zip(parts, self._written, strict=True):
            each()
            if store.sha256(part.path) == part.sha256:
                continue
            store.put(part.path, self._drafts / name)
            if store.sha256(part.path) != part.sha256:
                msg = f"the object store does not hold {part.path} as it was written"
                raise InputError(msg, "readers still see the version before; run the same policy again")
            written += 1
        return written

    def _remove_drafts(self) -> None:
        storage = self._staging.storage
        if storage.remote:
            storage.delete(*storage.glob("draft-*"))
        for path in (self._drafts, *self._drafts.parent.glob(f"*{_ELSEWHERE}")):
            shutil.rmtree(path, ignore_errors=True)


def write_part(
    staging: Staging, shard: StagedShard, path: Path, file_format: str, hidden: Hidden | None
) -> tuple[int, str, str]:
    """Write a staged shard without its canary rows as one part, on an executor (see `_written`)."""
    return _written(_published(staging, shard), path, file_format, staging.storage, hidden)


def write_here(writer: Writer, shards: Iterable[StagedShard], each: Callable[[int], object]) -> None:
    """Write staged shards as parts in this process, side by side where it has cores for that."""
    for rows in writer.add(shards, min(threads(), _WIDTH)):
        each(rows)


def _published(staging: Staging, shard: StagedShard) -> pl.DataFrame:
    """Return the rows of a staged shard as they are to be published."""
    return staging.outcome(shard).filter(~pl.col(CANARY)).drop(CANARY)


def _written(
    frame: pl.DataFrame, path: Path, file_format: str, staging: Storage, hidden: Hidden | None
) -> tuple[int, str, str]:
    """Write rows, keep the ids inside that readers do not see, and return rows, hash, and the name of their list."""
    frame = frame if hidden is None else hidden.arranged(frame)
    shown = frame if hidden is None else hidden.shown(frame)
    files.write(path, writer(shown.rechunk(), file_format), action="writing a part", flush_folder=False)
    digest = sha256(path)
    return frame.height, digest, "" if hidden is None else hidden.keep(staging, digest, frame)
