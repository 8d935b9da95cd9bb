"""Read and write the files of one folder: a local folder, or a prefix of an object store.

Local files are durable and private to their owner. A process that works with a store has a folder of its own for
copies, which no one else sees. Objects that several writers may replace are written under a condition (`If-None-Match`,
`If-Match`): the store itself lets one writer through. All others have names that no other writer uses.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote, unquote

from dptext_etl import files, object_stores
from dptext_etl.errors import InputError, seam
from dptext_etl.object_stores import LEASE, Lease

_HINT = (
    "is the object store reachable, and may these credentials do it? Run the same policy again: it goes on from here"
)
_FOLDER_HINT = "is the folder there, and may you read and write it?"
_GROUPED = re.compile(r"(shard|quarantine|changed|kept|draft)-(\d{5,})?")

Result = TypeVar("Result")


@dataclass(unsafe_hash=True)
class Storage:
    """The files of one folder. It can be sent to other machines: it holds references to secrets, no secret."""

    url: str  # path of the folder, or URL of the prefix
    # options of the store, as a policy writes them
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    # whether the objects of a shard have a prefix of their own, so that they can be listed by themselves
    grouped: bool = False
    copies: Path | None = None  # folder for copies of objects; None takes a folder of this process

    def __post_init__(self) -> None:
        self._lease: Lease | None = None

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        return type(self), (self.url, self.options, self.grouped, self.copies)

    @classmethod
    def open(cls, url: str, options: Mapping[str, str], *, grouped: bool = False) -> Self:
        return cls(url.rstrip("/"), tuple(options.items()), grouped) if "://" in url else cls(url, grouped=grouped)

    @property
    def remote(self) -> bool:
        return "://" in self.url

    @property
    def folder(self) -> Path:
        """The folder, or the local folder for copies of its objects."""
        if not self.remote:
            return Path(self.url)
        folder = self.copies or files.process_folder() / hashlib.sha256(self.url.encode()).hexdigest()[:16]
        files.make_private(folder)
        return folder

    @property
    def name(self) -> str:
        return unquote(self.url.rpartition("/")[2]) if self.remote else Path(self.url).name

    @property
    def parent(self) -> Self:
        return replace(self, url=self.url.rpartition("/")[0] if self.remote else str(Path(self.url).parent))

    def child(self, name: str) -> Self:
        return replace(self, url=f"{self.url}/{quote(name)}" if self.remote else str(Path(self.url) / name))

    def absolute(self) -> Self:
        """Return the same storage for a process that works in another folder."""
        return self if self.remote else replace(self, url=str(Path(self.url).absolute()))

    @contextmanager
    def with_own_copies(self) -> Iterator[Self]:
        """Yield the same storage for a block; copies of its objects go with the block."""
        if not self.remote:
            yield self
            return
        with files.temporary_folder() as folder:
            yield replace(self, copies=folder)

    def subfolders(self, last: str = "*") -> list[Self]:
        """Return the folders two levels below this one, all or those whose last part has this name."""
        if not self.remote:
            return [replace(self, url=str(path)) for path in sorted(Path(self.url).glob(f"*/{last}")) if path.is_dir()]
        paths = (name.split("/") for name in self.names())
        found = {(parts[0], parts[1]) for parts in paths if len(parts) > 2 and last in {"*", parts[1]}}
        return [self.child(first).child(second) for first, second in sorted(found)]

    def prepare(self) -> None:
        """Make the folder and the two above it, readable by their owner alone; ask whether the store answers."""
        if self.remote:
            self.etag(LEASE)
            return
        for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
            files.make_private(folder)
        files.require_writable(self.folder)

    def lock(self, what: str) -> AbstractContextManager[None]:
        """Keep other processes out of the folder, by a lock or a lease; `what` ends the message to them."""
        return self._leased(what) if self.remote else files.lock(self.folder, what)

    @contextmanager
    def _leased(self, what: str) -> Iterator[None]:
        with Lease(self, what).held() as lease:
            self._lease = lease
            try:
                yield
            finally:
                self._lease = None

    def require_unlocked(self, what: str) -> None:
        """Refuse a folder in which another process works; nothing is made."""
        if self.remote:
            Lease(self, what).require_free()
        elif self.folder.is_dir():
            with files.lock(self.folder, what):
                return

    def renew_lock(self) -> None:
        """Make sure that no other process has come in since `lock`, before what others may need is removed."""
        if self._lease is not None:
            self._lease.renew()

    def glob(self, pattern: str) -> list[str]:
        """Return the names of the files of this folder that match, in order."""
        if not self.remote:
            return sorted(path.name for path in self.folder.glob(pattern))
        names = (name.rpartition("/")[2] for name in self.names(_group(pattern) if self.grouped else ""))
        return sorted(name for name in names if fnmatchcase(name, pattern))

    def names(self, folder: str = "") -> list[str]:
        """Return the paths, from this folder, of all files below it, or below a folder in it."""
        if self.remote:
            return [item["path"] for item in self._listed(folder)]
        root = self.folder / folder
        return sorted(path.relative_to(self.folder).as_posix() for path in root.rglob("*") if path.is_file())

    def modified(self, pattern: str) -> dict[str, float]:
        """Return when the files that match were written, in seconds since the epoch."""
        names = self.glob(pattern)
        if not self.remote:
            return {name: (self.folder / name).stat().st_mtime for name in names}
        times = {item["path"].rpartition("/")[2]: item["last_modified"].timestamp() for item in self._listed("")}
        return {name: times[name] for name in names if name in times}

    def local_path(self, name: str, *, fresh: bool = False) -> Path:
        """Return the local path of a file; what lies in a store is fetched first, once or `fresh` every time."""
        path = self.folder / name
        if self.remote and (fresh or not path.is_file()):
            draft = files.draft_of(path)
            try:
                if self.download(name, draft):
                    draft.replace(path)
                else:
                    path.unlink(missing_ok=True)
            finally:
                draft.unlink(missing_ok=True)
        return path

    def location(self, name: str) -> Path | str:
        return f"{self.url}/{self._key(name)}" if self.remote else self.folder / name

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none."""
        if self.remote:
            found = self.read_versioned(name)
            return None if found is None else found[0]
        with seam(f"reading {name}", InputError, _FOLDER_HINT):
            return _unless_missing((self.folder / name).read_bytes)

    def read_versioned(self, name: str) -> tuple[bytes, str] | None:
        """Return an object and the tag that `replace_object` takes, or None if there is none."""

        def read(obstore: Any, client: Any) -> tuple[bytes, str]:
            found = obstore.get(client, self._key(name))
            # Google Cloud Storage compares generations, all others compare tags
            state = "version" if self.url.startswith("gs://") else "e_tag"
            return bytes(found.bytes()), str(found.meta[state])

        return self._ask("reading an object", read)

    def etag(self, name: str) -> str | None:
        """Return the tag that identifies the state of an object, or None if there is none."""
        found = self._ask("reading an object", lambda obstore, client: obstore.head(client, self._key(name)))
        return None if found is None else str(found["e_tag"] or f"{found['last_modified']} {found['size']}")

    def size(self, name: str) -> int:
        """Return the number of bytes of a file, which must be there."""
        if not self.remote:
            return (self.folder / name).stat().st_size
        found = self._ask("reading an object", lambda obstore, client: obstore.head(client, self._key(name)))
        if found is None:
            raise InputError(f"the object {name} is missing", _HINT)
        return int(found["size"])

    def tail(self, name: str, most: int) -> bytes | None:
        """Return the last bytes of an object, or None if there is none."""

        def tail(obstore: Any, client: Any) -> bytes:
            size = int(obstore.head(client, self._key(name))["size"])
            start = max(size - most, 0)
            return bytes(obstore.get_range(client, self._key(name), start=start, end=size)) if size else b""

        return self._ask("reading an object", tail)

    def sha256(self, name: str) -> str | None:
        if not self.remote:
            return _unless_missing(lambda: files.sha256(self.folder / name))

        def digest(obstore: Any, client: Any) -> str:
            whole = hashlib.sha256()
            for chunk in obstore.get(client, self._key(name)).stream():
                whole.update(memoryview(chunk))
            return whole.hexdigest()

        return self._ask("reading an object", digest)

    def download(self, name: str, path: Path) -> bool:
        def download(obstore: Any, client: Any) -> bool:
            found = obstore.get(client, self._key(name)).stream()
            files.make_folders(path.parent)
            with open(path, "wb", opener=files.private) as file:
                file.writelines(memoryview(chunk) for chunk in found)
            return True

        return self._ask("reading an object", download) or False

    def write(self, name: str, content: files.Content, *, action: str = "writing", flush_folder: bool = True) -> None:
        """Write a file durably, whole or not at all (`files.write`); what goes into a store is copied here, too."""
        files.write(self.folder / name, content, action=action, flush_folder=flush_folder)
        if self.remote:
            self.put(name, self.folder / name)

    def put(self, name: str, content: bytes | Path) -> None:
        """Write bytes, or a copy of a local file; in a local folder, they need not survive a crash."""
        if not self.remote:
            written = content if isinstance(content, bytes) else content.read_bytes()
            files.write(self.folder / name, written, action=f"writing {name}", durable=False)
            return
        client = self._client
        import obstore

        with seam(f"writing the object {name}", InputError, _HINT):
            obstore.put(client, self._key(name), content)

    def append(self, name: str, line: bytes) -> None:
        """Add a line to a file; in a store, one process may write it at a time."""
        if self.remote:
            self.put(name, (self.read(name) or b"") + line + b"\n")
            return
        with open(self.folder / name, "ab", opener=files.private) as file:
            file.write(line + b"\n")

    def replace_object(self, name: str, content: bytes, etag: str | None) -> str | None:
        """Write an object if it is still in the state of `etag` (None: there is none), and return its new tag."""

        def put(obstore: Any, client: Any) -> None:
            with suppress(obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
                known = {"e_tag": etag, "version": etag}  # a store takes the one that it compares
                obstore.put(client, self._key(name), content, mode="create" if etag is None else known)

        self._ask(f"writing the object {name}", put)
        # what was refused may be ours all the same: of an attempt whose answer was lost
        found = self.read_versioned(name)
        return found[1] if found is not None and found[0] == content else None

    def copy(self, name: str, new: str) -> None:
        """Give a file a second name that outlives the first, if there is such a file and the name is free."""
        if not self.remote:
            files.link(self.folder / name, self.folder / new)
        elif self.etag(new) is None:
            keys = self._key(name), self._key(new)
            self._ask("copying an object", lambda obstore, client: obstore.copy(client, *keys))

    def delete(self, *names: str) -> None:
        """Delete files that are there, in this order, with their local copies."""
        if self.remote:
            self._delete(*map(self._key, names))
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def delete_folder(self, name: str) -> None:
        if self.remote:
            self._delete(*self.names(name))
        elif (self.folder / name).exists():
            shutil.rmtree(self.folder / name)

    def clear(self) -> None:
        """Delete all files; the lease goes with its holder."""
        if self.remote:
            self._delete(*(name for name in self.names() if name != LEASE))
        shutil.rmtree(self.folder)

    @property
    def _client(self) -> Any:
        return object_stores.client(self.url, object_stores.resolved(dict(self.options)))

    def _key(self, name: str) -> str:
        group = _group(name) if self.grouped else ""
        return f"{group}/{name}" if group else name

    def _ask(self, action: str, call: Callable[[Any, Any], Result]) -> Result | None:
        client = self._client
        import obstore
        import obstore.exceptions

        with seam(action, InputError, _HINT):
            return _unless_missing(lambda: call(obstore, client))

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        pages = self._ask("listing objects", lambda obstore, client: [*obstore.list(client, prefix=folder or None)])
        return [item for page in pages or () for item in page]

    def _delete(self, *keys: str) -> None:
        def delete(obstore: Any, client: Any) -> None:
            if len(keys) > 1:
                with suppress(FileNotFoundError):
                    obstore.delete(client, [*keys])
                    return
            for key in keys:
                with suppress(FileNotFoundError):
                    obstore.delete(client, key)

        self._ask("deleting objects", delete)


def _group(name: str) -> str:
    """Return the prefix of objects whose names begin like this; "" is the whole storage."""
    known = _GROUPED.match(name)
    if known is None:
        return ""
    return f"{known[1]}/{known[2]}" if known[1] == "shard" and known[2] else known[1]


def _unless_missing(read: Callable[[], Result]) -> Result | None:
    try:
        return read()
    except (FileNotFoundError, NotADirectoryError):
        return None
