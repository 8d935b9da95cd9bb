"""Write the manifest of a published table, one small file that lists the parts of its current version, and read both.

It is replaced in one step. Nothing in it depends on a text beyond what is published anyway: configuration, its
constants, row counts, and hashes of the published files. It holds no time, so a run that was killed and resumed writes
the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import polars as pl

from dptext_etl import files
from dptext_etl.checks.sink import MANIFEST
from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.policy import Policy
from dptext_etl.runner.claims import claims
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.shard.records import ColumnHardware
from dptext_etl.runner.source.table import READ_HINT, Files
from dptext_etl.storage import Storage

FORMAT = "dptext-release/1"


@dataclass(frozen=True)
class Part:
    """One published file: its path under the sink, rows, and the SHA-256 of its bytes."""

    path: str
    rows: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The list of parts that readers follow.

    Attributes:
        dataset: Name of the dataset.
        release: Name of the release.
        partition: Name of the partition, or None.
        version: Number of this version, from 1.
        file_format: "parquet", "csv" or "ndjson".
        id: Column of record ids; None where none are published.
        schema: Output columns and their types, in order.
        columns: What is claimed of every text column: mechanism, configuration hash, class, disclosures, constants; and
            where a model computed (`computed`).
        gates: Names of the gates that all passed.
        parts: The files.
        source: Which version of a table of Delta Lake or Iceberg the rows of the last run are from; None, and not
            written, for anything else.
        ids: The policy's `ids`; not written for "keep".
    """

    dataset: str
    release: str
    partition: str | None
    version: int
    file_format: str
    id: str | None
    schema: dict[str, str]
    columns: list[dict[str, Any]]
    gates: list[str]
    parts: tuple[Part, ...]
    source: dict[str, str] | None = None
    ids: str = "keep"

    @property
    def rows(self) -> int:
        """The number of published rows."""
        return sum(part.rows for part in self.parts)

    @property
    def computed(self) -> ColumnHardware:
        """Where models computed."""
        return {column["name"]: column["computed"] for column in self.columns if "computed" in column}

    @property
    def digest(self) -> str:
        """The SHA-256 of the manifest's bytes, 64 hex digits."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    def text(self) -> str:
        """Return the manifest as it is written."""
        facts = {"format": FORMAT, "rows": self.rows, **asdict(self)}
        if self.source is None:
            del facts["source"]
        if self.ids == "keep":
            del facts["ids"]
        return json.dumps(facts, indent=1, ensure_ascii=True) + "\n"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `text` wrote."""
        facts = json.loads(text)
        if facts.pop("format") != FORMAT:
            msg = "another format"
            raise ValueError(msg)
        facts.pop("rows")
        return cls(**{**facts, "parts": tuple(Part(**part) for part in facts["parts"])})

    @classmethod
    def read(cls, layout: Layout) -> Self | None:
        """Return the manifest of a sink, or None if nothing was published there."""
        with seam(
            "reading the manifest of the sink",
            InputError,
            f"the {MANIFEST} of the sink must be one that dptext wrote, and readable",
        ):
            try:
                text = _fetched(layout)
            except FileNotFoundError:
                return None
            return cls.parse(text)

    def write(self, layout: Layout, before: Manifest | None) -> None:
        """Replace the manifest of a sink in one step. Readers see the old one or the new one."""
        if layout.remote_sink:
            self._swap(layout.published, before)
            return
        path, content = Path(layout.manifest), self.text().encode()
        files.write(path, content, mode=files.PUBLIC_FILE, action="writing the manifest")

    def _swap(self, store: Storage, before: Manifest | None) -> None:
        """Write the manifest to a store if it holds the one that the run began with, and look at what it holds then."""
        content, found = self.text().encode(), store.read_versioned(MANIFEST)
        begun = None if before is None else before.digest
        there = None if found is None else _digest(found.content)
        if there != begun or store.replace_object(MANIFEST, content, None if found is None else found.etag) is None:
            raise PolicyError("another run has published to this sink meanwhile", "run the same policy again")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _fetched(layout: Layout) -> str:
    if not layout.remote_sink:
        return layout.local.read_manifest().decode("ascii")
    content = layout.published.read(MANIFEST)
    if content is None:
        raise FileNotFoundError(MANIFEST)
    return content.decode("ascii")


def draft(
    policy: Policy,
    layout: Layout,
    schema: pl.Schema,
    *,
    gates: list[str],
    parts: tuple[Part, ...],
    version: int,
    computed: ColumnHardware,
    source: dict[str, str] | None = None,
) -> Manifest:
    """Put together the manifest of a version."""
    names = {name: str(dtype) for name, dtype in schema.items()}
    places = {name: {"computed": found} for name, found in computed.items()}
    columns = [{**claim, **places.get(claim["name"], {})} for claim in claims(policy)]
    return Manifest(
        policy.dataset,
        policy.release,
        layout.partition,
        version,
        layout.sink_format,
        policy.id if policy.unlinked is None and policy.ids != "drop" else None,
        names,
        columns,
        gates,
        parts,
        source,
        policy.ids,
    )


def published_manifest(layout: Layout, *, verify: bool = False) -> Manifest:
    """Return the manifest of a sink, its files checked if asked for."""
    manifest = Manifest.read(layout)
    if manifest is None:
        raise InputError(f"nothing is published at {layout.sink}", "`dptext run POLICY` publishes")
    if verify:
        require_whole(layout, manifest)
    return manifest


def require_whole(layout: Layout, manifest: Manifest) -> None:
    """Refuse files that are not those of the manifest, byte for byte."""
    changed = _changed(layout, manifest)
    if changed:
        msg = f"{len(changed)} of {len(manifest.parts)} published files are not those of their manifest: {changed[0]}"
        raise InputError(msg, "`dptext check` says more; the same policy, run again, writes what is damaged anew")


def is_whole(layout: Layout, manifest: Manifest) -> bool:
    """Return whether all files of a manifest are there, byte for byte."""
    return not _changed(layout, manifest)


def _changed(layout: Layout, manifest: Manifest) -> list[str]:
    published = layout.published
    with seam("reading a published file", InputError, "is it readable? `dptext check` says more"):
        return [part.path for part in manifest.parts if published.sha256(part.path) != part.sha256]


def scan_published(sink: str, storage_options: Mapping[str, str] | None = None, *, verify: bool = True) -> pl.LazyFrame:
    """Scan the current version of a published table, and check first that its files are those of its manifest."""
    layout = Layout.of_sink(sink, dict(storage_options or {}))
    return scan(layout, published_manifest(layout, verify=verify))


def scan(layout: Layout, manifest: Manifest) -> pl.LazyFrame:
    """Scan the files of a manifest in row order."""
    as_written = [column["name"] for column in manifest.columns] if manifest.id is None else [manifest.id]
    return scan_parts(manifest, layout, as_written)


def scan_parts(manifest: Manifest, layout: Layout, as_written: Iterable[str] = ()) -> pl.LazyFrame:
    """Scan the parts that a manifest lists, in order."""
    paths = tuple(layout.part(part.path) for part in manifest.parts)
    return Files(paths, manifest.file_format, layout.storage_options).scan(tuple(as_written))


def same_rows(layout: Layout, before: Manifest, drafts: Sequence[Path], rows: int) -> bool:
    """Return whether published files hold the rows of local drafts, in any order: then readers need no new version.

    Engines cut and order rows in ways of their own. Columns and claims are compared elsewhere.
    """
    if layout.remote_sink or before.rows != rows or not is_whole(layout, before):
        return False
    published, names = [layout.part(part.path) for part in before.parts], tuple(before.schema)

    def sums(paths: Iterable[str]) -> tuple[int, ...]:
        """Add up 64-bit hashes of rows, which no order changes."""
        row = pl.struct(pl.col(name) for name in names)
        frame = Files(tuple(paths), before.file_format, {}).scan(names)
        found = frame.select(row.hash(seed).sum().alias(str(seed)) for seed in (0, 1)).collect(engine="streaming")
        return tuple(found.row(0))

    with seam("comparing with what is published", InputError, READ_HINT):
        return sums(published) == sums(map(str, drafts))
