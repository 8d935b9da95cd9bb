"""Find the files of a published table, and read and write its manifest.

    published/                the current data files and nothing else, in row order
    published.versions/       versions before it (v1, …), until they expire; the name of the current one links to it
    published.manifest.json   which files are current, and their claims
    published.classifier-….safetensors   the classifier of a synthetic table, named by its hash

A file is named by its place and its hash, so a reader that lists and then opens never mixes two versions. A table of
Delta Lake keeps all of this in its own folder, and its log says what readers see:

    published/_delta_log            the log of the table
    published/v1, v2, …             the files of every version
    published/_dptext/manifest.json

A glob of `published` of the first kind finds one version. A manifest names a file by its path in `published.versions`.
It is replaced in one step. Nothing in it depends on a text, except through published rows: configuration, its
constants, row counts, and hashes of the published files. It holds no time, so a run that was killed and resumed writes
the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from glob import escape
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, Self

from dptext_etl import files
from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.policy import Policy
from dptext_etl.storage import Objects, Storage

MANIFEST = "manifest.json"
VERSIONS = ".versions"
_HASHED = re.compile(r"part-\d+-[0-9a-f]{16}\.")
"""Begins the name of a file that readers see; tables and stores have folders per version instead."""
TABLE = "_dptext"
"""Folder of the manifest inside a table with its own log; clean-ups of tables skip such names."""


@dataclass(frozen=True)
class LocalSink:
    """The places of a published table."""

    path: Path  # where readers look; links of the user's own are followed
    table: bool = False  # whether the folder is a table with its own log
    copied: bool = False  # whether this is a copy of an object store, which has no folder of current files
    listed: frozenset[str] | None = None  # paths of the files that the current version of a table with a log lists

    @classmethod
    def at(cls, path: str | Path, *, table: bool = False) -> Self:
        """Find the places of a table by the path that readers use; one with a log is recognized by its manifest."""
        here = Path(path) if Path(path).name else Path(path).absolute()
        for _ in range(40):  # a chain of links without end stops here
            if not here.is_symlink():
                break
            here = here.parent / here.readlink()
        return cls(here, table or (here / TABLE / MANIFEST).is_file())

    @property
    def versions(self) -> Path:
        return self.path if self.table else self.path.with_name(self.path.name + VERSIONS)

    @property
    def manifest(self) -> Path:
        storage, name = self.next_to(MANIFEST)
        return storage.folder / name

    def next_to(self, name: str) -> tuple[Storage, str]:
        """Return the storage of a file next to the manifest, and its name there."""
        if self.table:
            return Storage(str(self.path / TABLE)), name
        return Storage(str(self.path.parent)), f"{self.path.name}.{name}"

    def read(self) -> Manifest:
        """Return the manifest, which must be there."""
        manifest = Manifest.read(self)
        if manifest is None:
            raise InputError("nothing is published there", HINT)
        return manifest

    def of_part(self, part: Part) -> Path | None:
        """Return the file of a part; None if it is missing or lies outside the folder."""
        path = self.file(part.path) if is_inside(part.path) else None
        return path if path is not None and path.is_file() else None

    def listing(self, manifest: Manifest) -> list[Path]:
        """Return where readers of the folder find the parts; none where they read a log or the manifest."""
        if self.copied or self.table:
            return []
        ends = manifest.file_format
        return [self.path / part_name(at, part.sha256, ends) for at, part in enumerate(manifest.parts)]

    def file(self, path: str, *, lasting: bool = False) -> Path:
        """Find a file of a manifest where readers look, or by a path that outlives the next publication."""
        inside = self.versions / path
        places = [self.path / inside.name, inside] if _HASHED.match(inside.name) else [inside]
        return next((place for place in places[:: -1 if lasting else 1] if place.is_file()), places[0])


def part_name(number: int, sha256: str, file_format: str) -> str:
    """Name a current data file by its place in row order and its hash."""
    return f"part-{number:05d}-{sha256[:16]}.{file_format}"


def classifier_name(sha256: str) -> str:
    """Name the file of a classifier by its hash."""
    return f"classifier-{sha256[:16]}.safetensors"


def place_of(sink: str) -> str:
    """Return where a sink is, the same from every folder: a URL, or an absolute path."""
    if "://" in sink and not sink.startswith("file://"):
        return sink.rstrip("/")
    path = LocalSink.at(sink.removeprefix("file://").rstrip("/")).path
    return str(path.parent.resolve() / path.name)


HINT = "give the folder that `dptext run` published, one of its files, or a table"


def is_inside(path: str) -> bool:
    """Return whether a path of a manifest stays below its folder."""
    relative = PurePosixPath(path)
    return not relative.is_absolute() and ".." not in relative.parts


class Place(Protocol):
    """Where a table is published: `LocalSink`, or the layout of a run."""

    def next_to(self, name: str) -> tuple[Storage, str]: ...


FORMAT = "dptext-release/1"


@dataclass(frozen=True)
class Part:
    """One published file: its path under the sink, rows, and the SHA-256 of its bytes."""

    path: str
    rows: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The list of parts that readers follow."""

    dataset: str
    release: str
    partition: str | None
    version: int  # number of this version, from 1
    file_format: str  # a name of `FORMATS`
    id: str | None  # column of record ids; None where none are published
    schema: dict[str, str]  # output columns and their types, in order
    # the claims on every text column: mechanism, configuration hash, class, disclosures, constants; and where a
    # model computed (`computed`)
    columns: list[dict[str, Any]]
    gates: list[str]  # names of the gates that all passed
    parts: tuple[Part, ...]  # the files
    # the following are written only if they have another value than here:
    # which version of a table of Delta Lake or Iceberg the rows of the last run are from; None for anything else
    source: dict[str, str] | None = None
    ids: str = "keep"  # the policy's `ids`
    exact: bool = False  # whether values of CSV columns keep their spelling under their types
    coarse: dict[str, dict[str, Any]] = field(default_factory=dict)  # coarsened columns by `Kept.rule`
    classifier: str | None = None  # SHA-256 of the classifier of a synthetic table with labels
    audience: str | None = None  # whose table it is

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def computed(self) -> dict[str, Sequence[Mapping[str, str]]]:
        return {column["name"]: column["computed"] for column in self.columns if "computed" in column}

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.text().encode()).hexdigest()

    def text(self) -> str:
        facts: dict[str, Any] = {"format": FORMAT, "rows": self.rows}
        for item in fields(self):
            value = getattr(self, item.name)
            unwritten = item.default if item.default_factory is MISSING else item.default_factory()
            if unwritten is MISSING or value != unwritten:
                facts[item.name] = value
        facts["parts"] = [vars(part) for part in self.parts]
        return json.dumps(facts, indent=1, ensure_ascii=True) + "\n"

    @classmethod
    def parse(cls, text: str) -> Self:
        facts = json.loads(text)
        if facts.pop("format") != FORMAT:
            msg = "another format"
            raise ValueError(msg)
        facts.pop("rows")
        return cls(**{**facts, "parts": tuple(Part(**part) for part in facts["parts"])})

    @property
    def name(self) -> str:
        """Its name in the ledger: unique over partitions and sinks, the same when a killed run continues.

        It ends with ":" and the name of an audience, and "@" follows where it names a version of a table with a log.
        """
        where = "" if self.partition is None else f"{self.partition}/"
        return f"{where}v{self.version}-{self.digest[:12]}{'' if self.audience is None else f':{self.audience}'}"

    @classmethod
    def read(cls, place: Place) -> Self | None:
        """Return the manifest of a sink, or None if nothing was published there."""
        hint = f"restore the {MANIFEST} of the sink; without a copy, remove it, and run the same policy again"
        storage, name = place.next_to(MANIFEST)
        with seam("reading the manifest of the sink", InputError, hint):
            content = storage.read(name)
            return None if content is None else cls.parse(content.decode("ascii"))

    @classmethod
    def of_release(cls, policy: Policy, place: Place) -> Self | None:
        """Return the manifest of a sink, or None if it is not one of this release."""
        manifest = cls.read(place)
        same = manifest is not None and (manifest.dataset, manifest.release) == (policy.dataset, policy.release)
        return manifest if same else None

    def require_of(self, policy: Policy, partition: str | None) -> None:
        """Refuse a version of another release, or of another configuration of a column, than the policy's."""
        hint = "`dptext run POLICY` publishes; or name the policy of the published release"
        here, wanted = (self.dataset, self.release, self.partition), (policy.dataset, policy.release, partition)
        if here != wanted:
            there, named = (" / ".join(filter(None, names)) for names in (here, wanted))
            raise InputError(f"the sink holds the release {there}, and the policy is of {named}", hint)
        stated = {item["name"]: (item["cfg"], item.get("chain")) for item in self.columns}
        for column in policy.charged_columns():
            was, now = stated.get(column.column, ("", None)), (column.mechanism.cfg(), column.chain)
            if was != now:
                msg = f"the sink holds column {column.column!r} under the configuration {_short(was)}"
                raise InputError(f"{msg}, and the policy has {_short(now)}", hint)

    def read_classifier(self, place: Place) -> bytes | None:
        """Return the bytes of the classifier; None if the manifest names none, or the file is not the named one."""
        if self.classifier is None:
            return None
        storage, name = place.next_to(classifier_name(self.classifier))
        content = storage.read(name)
        return content if content is not None and hashlib.sha256(content).hexdigest() == self.classifier else None

    def holds_classifier(self, place: Place) -> bool:
        """Return whether the file of the classifier is as the manifest says; also if it names none."""
        return self.classifier is None or self.read_classifier(place) is not None

    def write_classifier(self, place: Place, content: bytes) -> None:
        """Write the file of the classifier, unless it is there; readers find it by its hash in the manifest."""
        if self.holds_classifier(place):
            return
        storage, name = place.next_to(classifier_name(str(self.classifier)))
        if isinstance(storage, Objects):
            storage.put(name, content)
        else:
            files.write(storage.folder / name, content, mode=files.PUBLIC_FILE, action="writing the classifier")

    def expire_classifiers(self, place: Place, before: Manifest | None) -> None:
        """Delete the classifiers that neither this manifest nor the one before names."""
        shas = {self.classifier, None if before is None else before.classifier} - {None}
        storage, pattern = place.next_to(classifier_name("*"))
        head, _, tail = pattern.rpartition("*")
        named = {place.next_to(classifier_name(sha))[1] for sha in shas if sha is not None}
        storage.delete(*({*storage.glob(f"{escape(head)}*{tail}")} - named))

    def write(self, place: Place, before: Manifest | None) -> None:
        """Replace the manifest of a sink in one step; a store must still hold the one that the run began with."""
        content, (storage, name) = self.text().encode(), place.next_to(MANIFEST)
        if not isinstance(storage, Objects):
            for stale in storage.folder.glob(f".{escape(name)}-*.draft"):  # of a run that was killed
                stale.unlink(missing_ok=True)
            files.write(storage.folder / name, content, mode=files.PUBLIC_FILE, action="writing the manifest")
            return
        now, etag = storage.read_versioned(name) or (None, None)
        begun = None if before is None else before.digest
        there = None if now is None else self.parse(now.decode("ascii")).digest
        if there != begun or storage.replace_object(name, content, etag) is None:
            raise PolicyError("another run has published to this sink meanwhile", "run the same policy again")

    def restore(self, place: Place) -> bool:
        """Write the manifest again if its file says the same in other bytes, and return whether it does."""
        storage, name = place.next_to(MANIFEST)
        changed = storage.read(name) != self.text().encode()
        if changed:
            self.write(place, self)
        return changed


def _short(configured: tuple[str, str | None]) -> str:
    """Return the first digits of the hashes of a configuration and of its post-processing."""
    return " and ".join(f"{digest[:12]}…" for digest in configured if digest) or "none"


def fetched(store: Objects, folder: Path) -> LocalSink:
    """Copy a table that is published in an object store, what no one listed in its versions included."""
    sink = LocalSink(folder / "sink", copied=True)
    if not store.download(MANIFEST, sink.manifest):
        sink = replace(sink, table=True)
        if not store.download(f"{TABLE}/{MANIFEST}", sink.manifest):
            raise InputError("nothing is published there", HINT)
    manifest = sink.read()
    listed = {part.path for part in manifest.parts if is_inside(part.path)}
    present = {name for top in {path.partition("/")[0] for path in listed} for name in store.names(top)}
    for path in sorted(listed | {name for name in present if is_inside(name)}):
        store.download(path, sink.versions / path)
    if manifest.classifier is not None:
        name = classifier_name(manifest.classifier)
        storage, file = sink.next_to(name)
        store.download(f"{TABLE}/{name}" if sink.table else name, storage.folder / file)
    return sink
