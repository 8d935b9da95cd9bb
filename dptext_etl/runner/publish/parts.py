"""Write the files of a version where no reader looks, then put them in place in one step."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO, Self

import polars as pl

from dptext_etl.checks.canaries.rows import CANARY
from dptext_etl.errors import InputError, seam
from dptext_etl.files import flush, sha256
from dptext_etl.runner import durable
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Part
from dptext_etl.runner.shard.staging import StagedShard, Staging

_AGAIN = "is there room and access? Readers still see the version before; run the same policy again"


class Writer:
    """Write the parts of one version.

    They are drafted for their owner alone, until the ledger has recorded the publication. A local sink then gets them
    by one rename. An object store gets its objects one by one: no manifest names them yet, so no reader sees them.

    Args:
        layout: The places of the run.
        staging: The staged shards.
        version: Number of the version.

    Attributes:
        version: Number of the version.
    """

    def __init__(self, layout: Layout, staging: Staging, version: int) -> None:
        self._layout = layout
        self._staging = staging
        self.version = version
        self._shards: list[StagedShard] = []
        self._parts: list[Part] = []
        self._drafts = (
            staging.folder / "parts" if layout.remote_sink else layout.local.versions / f".v{version}.incomplete"
        )

    def __enter__(self) -> Self:
        self._remove_drafts()
        with seam("writing a version", InputError, _AGAIN):
            self._drafts.mkdir(mode=durable.PRIVATE_FOLDER)
        return self

    def __exit__(self, *_: object) -> None:
        self._remove_drafts()

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that were written so far."""
        return tuple(self._parts)

    def add(self, shard: StagedShard) -> None:
        """Write a staged shard without its canary rows."""
        self._shards.append(shard)
        self.add_rows(self._rows(shard))

    def add_rows(self, frame: pl.DataFrame) -> None:
        """Write rows as they are to be published."""
        name = f"part-{len(self._parts):05d}.{self._layout.sink_format}"
        path = self._drafts / name
        durable.write(path, _writer(frame, self._layout.sink_format), action="writing a part")
        self._parts.append(Part(f"v{self.version}/{name}", frame.height, sha256(path)))

    def finish(self) -> None:
        """Put the version where the manifest will point. Call it when the ledger has recorded the publication."""
        if self._layout.remote_sink:
            for shard, part in zip(self._shards, self._parts, strict=True):
                self._upload(shard, part)
            return
        target = self._layout.local.versions / f"v{self.version}"
        with seam("putting a version in place", InputError, _AGAIN):
            for path in self._drafts.iterdir():
                path.chmod(durable.PUBLIC_FILE)
            self._drafts.chmod(target.parent.stat().st_mode & 0o777)
            if target.exists():  # of a run that was killed before its manifest: no reader was pointed at it
                shutil.rmtree(target)
            self._drafts.rename(target)
            flush(target.parent)

    def restore(self, published: tuple[Part, ...]) -> int:
        """Restore missing or damaged local parts from the parts just written, and return how many."""
        if self._layout.remote_sink:
            return 0
        restored = 0
        for part, drafted in zip(published, self._parts, strict=True):
            target = self._layout.local.versions / part.path
            if target.is_file() and sha256(target) == part.sha256:
                continue
            with seam("restoring a part", InputError, _AGAIN):
                target.parent.mkdir(exist_ok=True)
                draft = self._drafts / Path(drafted.path).name
                draft.chmod(durable.PUBLIC_FILE)
                draft.rename(target)
                flush(target.parent)
            restored += 1
        return restored

    def _rows(self, shard: StagedShard) -> pl.DataFrame:
        return self._staging.read(shard).filter(~pl.col(CANARY)).drop(CANARY)

    def _upload(self, shard: StagedShard, part: Part) -> None:
        """Write an object with the writer of Polars, which gives the bytes that were hashed."""
        frame = self._rows(shard).lazy()
        target, options = f"{self._layout.sink}/{part.path}", self._layout.storage
        sinks: dict[str, Callable[..., object]] = {
            "parquet": frame.sink_parquet,
            "csv": frame.sink_csv,
            "ndjson": frame.sink_ndjson,
        }
        with seam(
            "writing an object",
            InputError,
            "is the object store reachable? Run the same policy again: it goes on from here",
        ):
            sinks[self._layout.sink_format](target, storage_options=options)

    def _remove_drafts(self) -> None:
        shutil.rmtree(self._drafts, ignore_errors=True)


def _writer(frame: pl.DataFrame, file_format: str) -> Callable[[IO[bytes]], object]:
    lazy = frame.lazy()
    writers: dict[str, Callable[[IO[bytes]], object]] = {
        "parquet": lazy.sink_parquet,
        "csv": lazy.sink_csv,
        "ndjson": lazy.sink_ndjson,
    }
    return writers[file_format]
