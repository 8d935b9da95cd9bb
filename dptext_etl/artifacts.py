"""Name public inputs by content hash and provenance, and cache derived ones.

Everything that a mechanism is fitted on or reads (word vectors, tables, word lists) is an artifact: it is public, the
SHA-256 of its bytes names it, and every use verifies it (docs/spec/privacy.md#public-parameters). A derived artifact is
built once per machine. Its name is the hash of a description of everything that it depends on, and it never changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import BaseModel

from dptext_etl import files
from dptext_etl.errors import ArtifactError, file_failure

if TYPE_CHECKING:
    import numpy.typing as npt

Described = TypeVar("Described", bound=BaseModel)

CACHE_VARIABLE = "DPTEXT_CACHE"
DERIVED = Path(__file__).parent / "data" / "derived"
"""Cache entries that come with the package, because computing them from its word vectors needs seconds."""
_RECORD = "about.json"
_KINDS = {"i": "I", "u": "U", "f": "F"}
SETTLED = 10**9  # nanoseconds until a change is sure to show in a file's times
# Hashes by the identity and times of files. Any thread adds an entry: two of them would add the same.
_HASHES: dict[tuple[int, ...], str] = {}
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canon(value: Any) -> bytes:
    """Write plain data as canonical JSON: sorted keys, no blanks, ASCII (docs/spec/stream.md#stream).

    >>> canon({"b": [1, "x"], "a": None})
    b'{"a":null,"b":[1,"x"]}'
    """
    return _CANONICAL.encode(value).encode("ascii")


@contextmanager
def _refusing(problem: str, hint: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise file_failure(exc, problem, hint, ArtifactError) from None


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, 64 hex digits.

    A process reads a file again only if its inode, size or times of change differ from the last time.
    """
    with _refusing(f"the artifact {path} cannot be read", "check the path and its permissions"):
        status = path.stat()
        state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        digest = _HASHES.get(state) or files.sha256(path)
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > SETTLED:
        _HASHES[state] = digest
    return digest


@dataclass(frozen=True)
class Artifact:
    """A public input: a file, the hash of its bytes, and where it comes from."""

    path: Path  # of the file on this machine, which is not part of its identity
    sha256: str  # the identity, 64 hex digits
    provenance: str = "public, as declared by the user who named the path"  # for people and for the ledger
    license: str = "not stated"  # its terms, one sentence
    description: Mapping[str, Any] = field(default_factory=dict, compare=False)  # facts about the content, plain data

    @classmethod
    def open(cls, path: str | Path, sha256: str | None = None, **facts: Any) -> Self:
        """Name the file at `path`; if `sha256` is given, the content must have this hash."""
        actual = sha256_file(Path(path))
        _refuse_other(Path(path), actual, sha256 or actual)
        return cls(Path(path), actual, **facts)

    def read_bytes(self) -> bytes:
        """Return the bytes of the file, which have this hash."""
        with _refusing(f"the artifact {self.path} cannot be read", "check the path and its permissions"):
            content = self.path.read_bytes()
        _refuse_other(self.path, hashlib.sha256(content).hexdigest(), self.sha256)
        return content

    def verify(self) -> Self:
        """Hash the file again, if it may have changed, and return this artifact."""
        _refuse_other(self.path, sha256_file(self.path), self.sha256)
        return self


def _refuse_other(path: Path, actual: str, expected: str) -> None:
    if actual != expected:
        difference = f"its hash differs ({actual[:12]}…, expected {expected[:12]}…)"
        hint = "restore the original file; an entry of the artifact cache may be deleted, it is built again"
        raise ArtifactError(f"the artifact {path} is not the one that was named: {difference}", hint)


def cache_directory() -> Path:
    """Return the folder of derived artifacts (`DPTEXT_CACHE`, otherwise the XDG cache); only its owner may use it."""
    hint = f"set {CACHE_VARIABLE} to your own folder"
    place, home = os.environ.get(CACHE_VARIABLE), files.home()
    caches = os.environ.get("XDG_CACHE_HOME") or (home and home / ".cache")
    if not (place or caches):
        raise ArtifactError("there is no folder for the artifact cache: this user has no home folder", hint)
    folder = Path(place or Path(caches or "", "dptext")).absolute()
    with _refusing(f"the artifact cache {folder} cannot be used", hint):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=files.PRIVATE_FOLDER, exist_ok=True)
        mode = folder.stat().st_mode
    if mode & 0o002:
        raise ArtifactError(f"every user may write to the artifact cache {folder}", hint)
    return folder


def store(description: Mapping[str, Any], build: Callable[[Path], None], *, suffix: str = "", **facts: str) -> Artifact:
    """Return the artifact of a description; build it if neither the package nor this machine has it.

    Several processes may call this at once. Each builds in its own folder, one entry is moved into place, and all
    processes get that entry.
    """
    name = hashlib.sha256(canon(description)).hexdigest()
    entry = DERIVED / name
    if not entry.is_dir():
        entry = cache_directory() / name
    if not entry.is_dir():
        hint = f"free some space, or set {CACHE_VARIABLE} to a folder that you may write to"
        problem = f"an artifact cannot be written to the cache {entry.parent}"
        with _refusing(problem, hint), files.temporary_folder(entry.parent) as aside:
            content = aside / f"content{suffix}"
            build(content)
            content.chmod(0o400)
            files.flush(content)
            record = canon({"description": dict(description), "sha256": sha256_file(content)})
            files.write(aside / _RECORD, record, mode=0o400)
            try:
                aside.rename(entry)
            except OSError:
                if not entry.is_dir():  # otherwise another process was first, and its entry is the artifact
                    raise
            files.flush(entry.parent)
    try:
        digest = str(json.loads((entry / _RECORD).read_bytes())["sha256"])
    except (OSError, ValueError, LookupError, TypeError):
        digest = ""
    if not digest:
        raise ArtifactError(f"the cache entry {entry} is damaged", "delete this folder; it is built again")
    return Artifact.open(entry / f"content{suffix}", digest, description=dict(description), **facts)


def save_tensors(path: Path, tensors: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file whose bytes depend only on its content.

    (The library's own writer orders metadata differently in every process, so equal contents would get different
    hashes.)
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    end = 0
    for name in order:
        array = tensors[name]
        start, end = end, end + array.nbytes
        kind = f"{_KINDS[array.dtype.kind]}{8 * array.itemsize}"
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [start, end]}
    head = canon(header)
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name in order:
            file.write(tensors[name].astype(tensors[name].dtype.newbyteorder("<"), copy=False).tobytes())


def placed(described: Described, artifacts: Mapping[str, Artifact]) -> Described:
    """Return the same mechanism or post-processing with `artifacts` (by role) at their paths on this machine.

    Workers get artifacts that another machine built and verified. If a role is a field, the field becomes the
    artifact's path; any other artifact replaces the one that would be computed. Compare `cfg()` afterwards.
    """
    paths = {role: str(item.path) for role, item in artifacts.items() if role in type(described).model_fields}
    again = type(described)(**{**described.model_dump(), **paths})
    again.__dict__.update({role: item for role, item in artifacts.items() if role not in paths})
    return again


MADE_FROM = "made_from"
"""The entry that lists the files from which an artifact was made; for a model, the file `made_from.json` in its folder.
"""
_LISTS = (f"{MADE_FROM}.json", "card.json", "training.json", "dptext_clip.json", "dptext_latent_clip.json")
_DIGEST = re.compile(r"[0-9a-f]{64}")
Lineage = dict[str, tuple[str, int | None]]
"""Base names and sizes of files by SHA-256; None for a size that is not stated."""


def made_from(inputs: Iterable[str | Path]) -> Lineage:
    """List the files among inputs (files and folders), and those from which they were made, for a new artifact."""
    lineage: Lineage = {}
    for path in (Path(item) for item in inputs if Path(item).exists()):
        lineage |= listed(path)
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            if file.is_file():
                lineage[sha256_file(file)] = file.name, file.stat().st_size
    return dict(sorted(lineage.items()))


def listed(path: Path) -> Lineage:
    """Return the files from which the artifact at a path was made, as it states them; empty if it states none."""
    if path.is_dir():
        places = [path / name for name in _LISTS]
    elif path.suffix == ".safetensors":
        places = [path, *([path.parent / name for name in _LISTS] if path.name in _OF_FOLDERS else [])]
    else:
        places = [path if path.suffix == ".json" else path.with_suffix(".json")]
    lineage: Lineage = {}
    for place in filter(Path.is_file, places):  # JSON, or facts in the header of safetensors, where there are any
        facts: Any = None
        with suppress(OSError, ValueError, LookupError, TypeError, RecursionError), place.open("rb") as file:
            if place.suffix == ".safetensors":
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
                facts = json.loads(header["__metadata__"]["description"])
            else:
                facts = json.load(file)
        lineage |= _stated(facts)
    return lineage


_OF_FOLDERS = frozenset({"corpus.safetensors", "model.safetensors"})


def _stated(facts: Any) -> Lineage:
    """Collect the files in facts: the list `MADE_FROM`, or else every SHA-256, in whatever entry."""
    if isinstance(facts, str):
        return {facts: ("", None)} if _DIGEST.fullmatch(facts) else {}
    if not isinstance(facts, dict | list):
        return {}
    if isinstance(facts, dict) and MADE_FROM in facts:
        return {digest: (name, size) for digest, (name, size) in facts[MADE_FROM].items()}
    lineage: Lineage = {}
    for item in facts if isinstance(facts, list) else [*facts, *facts.values()]:
        lineage |= _stated(item)
    return lineage
