"""Locate the files that a run reads, stages, and publishes: the paths of a policy with the partition filled in."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dptext_etl import files, object_stores
from dptext_etl.checks.sink_files import MANIFEST, TABLE, LocalSink, place_of
from dptext_etl.errors import PolicyError
from dptext_etl.file_formats import PARQUET, format_of
from dptext_etl.object_stores import require_place
from dptext_etl.policy import PARTITION, Policy
from dptext_etl.policy.terms import FASTEST, PLAIN_CSV, Compression, CsvSpec, TableSpec
from dptext_etl.storage import Objects, Storage

if TYPE_CHECKING:
    from dptext_etl.table_formats import TableFormat

_FILE = "file://"
_NONE = Storage("")
_ENCODED = re.compile(r"[#?]|%[0-9A-Fa-f]{2}")
_PARTITION_NAME = re.compile(r"[\w=+-][\w=+.-]*", re.ASCII)


@dataclass(frozen=True)
class Layout:
    source: str  # file, folder, glob or object-store URL of the raw table
    sink: str  # folder or object-store URL of the published table
    staging: Storage = _NONE  # unpublished rows of this release and partition, inside the boundary
    partition: str | None = None
    # options for object stores, as a policy writes them
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    # the same, with environment references resolved; never printed
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    csv: CsvSpec = PLAIN_CSV  # how CSV files of the source are written
    table: TableSpec | None = None  # the format of the published table, if it has a log
    logged: bool = False  # whether it has one
    catalog: Mapping[str, str] = field(default_factory=dict, repr=False)  # the catalog of a source that is a table
    newest: int = 2  # number of versions of a folder that a publication leaves there
    compression: Compression = FASTEST  # of the Parquet files of the published table

    @classmethod
    def of(cls, policy: Policy, partition: str | None = None) -> Layout:
        check_partition(policy, partition)
        source = policy.source.replace(PARTITION, partition or "").removeprefix(_FILE)
        sink = policy.sink.replace(PARTITION, partition or "").removeprefix(_FILE).rstrip("/")
        for place in (source, sink, policy.staging or ""):
            require_place(place)
        # writers and readers resolve these to different folders
        if any(is_remote(place) and _ENCODED.search(place) for place in (sink, policy.staging or "")):
            msg = 'the URL of sink or staging has "#", "?", or an encoded character such as %20'
            hint = "name a folder without these; spaces are allowed"
            raise PolicyError(f"{msg}: not all libraries read these alike", hint)
        release, part = folder_name(policy.release), folder_name("_" if partition is None else partition)
        table = policy.table
        if table is not None and table.name is not None:
            table = table.model_copy(update={"name": table.name.replace(PARTITION, partition or "")})
        return cls(
            source,
            sink,
            options=policy.storage_options,
            storage_options=object_stores.resolved(policy.storage_options),
            staging=_root(policy).child(release).child(part),
            partition=partition,
            csv=policy.csv,
            table=table,
            logged=table is not None,
            catalog=policy.source_catalog,
            newest=max(2, policy.retention.versions or 0),
            compression=policy.compression,
        )

    @classmethod
    def of_sink(cls, sink: str, storage_options: dict[str, str]) -> Layout:
        resolved = object_stores.resolved(storage_options)
        layout = cls("", sink.removeprefix(_FILE).rstrip("/"), options=storage_options, storage_options=resolved)
        store = layout.published
        if not isinstance(store, Objects):
            return replace(layout, logged=layout.local.table)
        return replace(layout, logged=store.etag(MANIFEST) is None and store.etag(f"{TABLE}/{MANIFEST}") is not None)

    @property
    def memory(self) -> Storage:
        """The storage inside the boundary that all releases and partitions share."""
        return self.staging.parent.parent

    @property
    def sink_format(self) -> str:
        """The format of the published parts: by the suffix of the sink, else by the suffix of the source."""
        if self.logged:
            return PARQUET.name
        return (format_of(self.sink.rstrip("/")) or format_of(self.source) or PARQUET).name

    @property
    def scratch(self) -> Path | None:
        """The folder for files without a name; None, which is the system's, where a plan makes no folder."""
        return self.staging.folder if self.staging.folder.is_dir() else None

    @property
    def remote_sink(self) -> bool:
        return is_remote(self.sink)

    @property
    def plain(self) -> bool:
        """Whether readers see a folder of files: no object store, and no table with a log."""
        return not (self.remote_sink or self.logged)

    @property
    def place(self) -> str:
        return place_of(self.sink)

    @property
    def local(self) -> LocalSink:
        return LocalSink.at(self.sink, table=self.logged)

    @property
    def manifest(self) -> str:
        """Path or URL of the manifest that a publication writes."""
        return f"{self.described.url}/{MANIFEST}" if self.remote_sink else str(self.local.manifest)

    @property
    def described(self) -> Storage:
        """The storage of the manifest and of the lock: where the parts are, or a folder there that clean-ups leave."""
        return self.published.child(TABLE) if self.logged else self.published

    def next_to(self, name: str) -> tuple[Storage, str]:
        """Return the storage of a file next to the manifest, and its name there."""
        if self.remote_sink:
            return self.described, name
        return self.local.next_to(name)

    @property
    def table_format(self) -> TableFormat | None:
        """The published table, if it has a log."""
        if self.table is None:
            return None
        from dptext_etl.table_formats import open_table  # other sinks start without it

        return open_table(self.table, self.published)

    @property
    def published(self) -> Storage:
        return Storage.open(self.sink if self.remote_sink else str(self.local.versions), self.options)

    def part(self, path: str) -> str:
        """Return the path or URL of a part of a manifest; the next publication leaves it there."""
        return str(self.published.location(path) if self.remote_sink else self.local.file(path, lasting=True))


def is_remote(path: str) -> bool:
    return "://" in path


def folder_name(name: str) -> str:
    """Write a release or partition name as one folder name: reversible, without separators, never hidden."""
    quoted = quote(name, safe=" +=@")
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def check_partition(policy: Policy, partition: str | None) -> None:
    """Refuse a partition that is missing, that the policy has no place for, or that cannot be part of a path."""
    wanted = PARTITION in policy.source
    if wanted and partition is None:
        msg = f"the policy's source holds {PARTITION}, but no partition was named"
        raise PolicyError(msg, "name one: --partition 2026-01")
    if not wanted and partition is not None:
        msg = "a partition was named, but the policy's source has no place for it"
        raise PolicyError(msg, f"write {PARTITION} into source and sink")
    if partition is not None and not _PARTITION_NAME.fullmatch(partition):
        msg = f"the partition {partition!r}: a name holds ASCII letters, digits, and any of _ - + = . inside"
        raise PolicyError(msg, "rename the file or folder, as 2026-01 or 2026-01-31T23")


def _root(policy: Policy) -> Storage:
    """Return the storage above staging, by default next to the policy file: no one looks for published tables there.

    Its name follows from the sink: two tables of one release share no file.
    """
    dataset, sink = folder_name(policy.dataset), policy.sink.removeprefix(_FILE).rstrip("/")
    if policy.staging is not None:
        place = policy.staging.removeprefix(_FILE)
        sink = sink if is_remote(sink) else os.path.relpath(sink, place) if not is_remote(place) else place_of(sink)
        storage = Storage.open(place, policy.storage_options, grouped=True).child(dataset)
        return storage.child(hashlib.sha256(sink.encode()).hexdigest()[:16])
    if is_remote(sink) or policy.folder is None:
        reason = "the sink is an object store" if is_remote(sink) else "the policy was not read from a file"
        hint = 'write: staging = "staging" (inside the boundary, readable only by you)'
        raise PolicyError(f"{reason}, so the policy must name a place for unpublished rows", hint)
    # the same when the folder of the policy is moved with all that is in it
    name = hashlib.sha256(os.path.relpath(sink, policy.folder).encode()).hexdigest()[:16]
    return Storage(str(policy.folder / files.INSIDE)).child(dataset).child(name)
