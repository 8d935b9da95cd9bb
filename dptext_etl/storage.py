"""Read and write the files of one folder: a local folder, or a prefix of an object store.

Local files are durable and private to their owner. A process that works with a store has its own folder for
copies, which no one else sees. Objects that several writers may replace are written under a condition (`If-None-Match`,
`If-Match`): the store itself lets one writer through. All others have names that no other writer uses.

The lease spares a second run its work. The published table does not rest on it: a manifest is replaced only if it is
still the one that the run began with, and every version has its own names. Nor do staged files: every attempt at
a shard has its own names, and the ledger charges a record once.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, ClassVar, Self, TypeVar
from urllib.parse import quote, unquote

from dptext_etl import files, object_stores
from dptext_etl.errors import BusyError, DPTextError, InputError, UnavailableError, seam

_HINT = "check that the store is reachable and that these credentials suffice. Run the same policy again: it continues"
_GROUPED = re.compile(r"(shard|quarantine|changed|kept|draft|vectors)-(\d{5,})?")

Result = TypeVar("Result")


@dataclass(unsafe_hash=True)
class Storage:
    """The files of one local folder; `Objects` has the same methods for an object store.

    It can be sent to other machines: it holds references to secrets, no secret.
    """

    url: str  # path of the folder, or URL of the prefix
    # options of the store, as a policy writes them
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    # whether the objects of a shard have their own prefix, so that they can be listed by themselves
    grouped: bool = False
    copies: Path | None = None  # folder for copies of objects; None uses a folder of this process
    remote: ClassVar[bool] = False

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        return type(self), (self.url, self.options, self.grouped, self.copies)

    @classmethod
    def open(cls, url: str, options: Mapping[str, str], *, grouped: bool = False) -> Storage:
        return Objects.open(url, options, grouped=grouped) if "://" in url else Storage(url, grouped=grouped)

    @property
    def folder(self) -> Path:
        """The folder, or the local folder for copies of its objects."""
        return Path(self.url)

    @property
    def name(self) -> str:
        return unquote(self.url.rpartition("/")[2]) if self.remote else self.folder.name

    @property
    def parent(self) -> Self:
        return replace(self, url=self.url.rpartition("/")[0] if self.remote else str(self.folder.parent))

    def child(self, name: str) -> Self:
        return replace(self, url=f"{self.url}/{quote(name)}" if self.remote else str(self.folder / name))

    def absolute(self) -> Self:
        """Return the same storage for a process that works in another folder."""
        return self if self.remote else replace(self, url=str(self.folder.absolute()))

    @contextmanager
    def with_own_copies(self) -> Iterator[Self]:
        """Yield the same storage for a block; copies of its objects go with the block."""
        yield self

    def prepare(self) -> None:
        """Make the folder and the three above it, readable only by their owner; ask whether the store answers."""
        for folder in (*reversed(self.folder.parents[:3]), self.folder):
            files.make_private(folder)
        files.require_writable(self.folder)

    @contextmanager
    def lock(self, what: str) -> Iterator[None]:
        """Keep other processes out of the folder, by a lock or a lease; `what` ends the message to them."""
        with files.lock(self.folder, what):
            yield

    def require_unlocked(self, what: str, *, planning: bool) -> None:  # noqa: ARG002  (stores read it)
        """Refuse a folder in which another process works; nothing is made."""
        if self.folder.is_dir():
            with self.lock(what):
                return

    def renew_lock(self) -> None:
        """Make sure that no other process has come in since `lock`, before what others may need is removed."""

    def subfolders(self, last: str = "*") -> list[Self]:
        """Return the folders two levels below this one, all or those whose last part has this name."""
        return [replace(self, url=str(path)) for path in sorted(self.folder.glob(f"*/{last}")) if path.is_dir()]

    def names(self, folder: str = "") -> list[str]:
        """Return the paths, from this folder, of all files below it, or below a folder in it."""
        paths = (self.folder / folder).rglob("*")
        return sorted(path.relative_to(self.folder).as_posix() for path in paths if path.is_file())

    def glob(self, pattern: str) -> list[str]:
        """Return the names of the files of this folder that match, in order."""
        return sorted(path.name for path in self.folder.glob(pattern))

    def modified(self, pattern: str) -> dict[str, float]:
        """Return when the files that match were written, in seconds since the epoch."""
        return {name: (self.folder / name).stat().st_mtime for name in self.glob(pattern)}

    def local_path(self, name: str, *, fresh: bool = False) -> Path:  # noqa: ARG002
        """Return the local path of a file; what lies in a store is fetched first, once or `fresh` every time."""
        return self.folder / name

    def location(self, name: str) -> Path | str:
        return self.folder / name

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none."""
        with seam(f"reading {name}", InputError, "is the folder there, and may you read and write it?"):
            return _unless_missing((self.folder / name).read_bytes)

    def described(self, name: str) -> Path | bytes:
        """Return a Parquet file, or one that has the description of its rows and none of them."""
        return self.folder / name

    def size(self, name: str) -> int:
        """Return the number of bytes of a file, which must be there."""
        return (self.folder / name).stat().st_size

    def sha256(self, name: str) -> str | None:
        return _unless_missing(lambda: files.sha256(self.folder / name))

    def write(self, name: str, content: files.Content, *, action: str = "writing", flush_folder: bool = True) -> None:
        """Write a file durably, completely or not at all (`files.write`); keep a copy of files for a store."""
        files.write(self.folder / name, content, action=action, flush_folder=flush_folder)

    def put(self, name: str, content: bytes | Path) -> None:
        """Write bytes, or a copy of a local file; in a local folder, they need not survive a crash."""
        written = content if isinstance(content, bytes) else content.read_bytes()
        files.write(self.folder / name, written, action=f"writing {name}", durable=False)

    def create(self, name: str, content: bytes) -> None:
        """Write a file durably unless there is one: of several writers, the first one's stays."""
        draft = f"{name}.{secrets.token_hex(8)}.draft"
        self.write(draft, content)
        self.copy(draft, name)
        self.delete(draft)

    def append(self, name: str, line: bytes) -> None:
        """Add a line to a file; in a store, one process may write it at a time."""
        with open(self.folder / name, "ab", opener=files.private) as file:
            file.write(line + b"\n")

    def copy(self, name: str, new: str) -> None:
        """Give a file a second name that outlives the first, if there is such a file and the name is free."""
        files.link(self.folder / name, self.folder / new)

    def delete(self, *names: str) -> None:
        """Delete files that are there, in this order, with their local copies."""
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def delete_folder(self, name: str = "") -> None:
        """Delete all files in a folder, or in this one, with their local copies; a lease goes with its holder."""
        files.remove(self.folder / name)


@dataclass(unsafe_hash=True)
class Objects(Storage):
    """The objects below one URL."""

    remote: ClassVar[bool] = True
    _lease: Lease | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def open(cls, url: str, options: Mapping[str, str], *, grouped: bool = False) -> Self:
        return cls(url.rstrip("/"), tuple(options.items()), grouped)

    @property
    def folder(self) -> Path:
        folder = self.copies or files.process_folder() / hashlib.sha256(self.url.encode()).hexdigest()[:16]
        files.make_private(folder)
        return folder

    @contextmanager
    def with_own_copies(self) -> Iterator[Self]:
        with files.temporary_folder() as folder:
            yield replace(self, copies=folder)

    def prepare(self) -> None:
        self.etag(LEASE)

    @contextmanager
    def lock(self, what: str) -> Iterator[None]:
        with Lease(self, what).held() as lease:
            self._lease = lease
            try:
                yield
            finally:
                self._lease = None

    def require_unlocked(self, what: str, *, planning: bool) -> None:
        # a plan writes nothing, so it cannot ask the store for the time, and reads this machine's clock
        Lease(self, what).require_free(datetime.now(UTC) if planning else None)

    def renew_lock(self) -> None:
        if self._lease is not None:
            self._lease.renew()

    def subfolders(self, last: str = "*") -> list[Self]:
        paths = (name.split("/") for name in self.names())
        folders = {(parts[0], parts[1]) for parts in paths if len(parts) > 2 and last in {"*", parts[1]}}
        return [self.child(first).child(second) for first, second in sorted(folders)]

    def names(self, folder: str = "") -> list[str]:
        return [item["path"] for item in self._listed(folder)]

    def glob(self, pattern: str) -> list[str]:
        return [*self.modified(pattern)]

    def modified(self, pattern: str) -> dict[str, float]:
        listed = {item["path"].rpartition("/")[2]: item for item in self._listed(self._group(pattern))}
        matches = sorted(name for name in listed if fnmatchcase(name, pattern))
        return {name: listed[name]["last_modified"].timestamp() for name in matches}

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        pages = self._ask("listing objects", lambda obstore, client: [*obstore.list(client, prefix=folder or None)])
        return [item for page in pages or () for item in page]

    def local_path(self, name: str, *, fresh: bool = False) -> Path:
        path = self.folder / name
        if fresh or not path.is_file():
            draft = files.draft_of(path)
            try:
                if self.download(name, draft):
                    draft.replace(path)
                else:
                    path.unlink(missing_ok=True)
            finally:
                draft.unlink(missing_ok=True)
        return path

    def location(self, name: str) -> str:
        return f"{self.url}/{self._key(name)}"

    def read(self, name: str) -> bytes | None:
        versioned = self.read_versioned(name)
        return None if versioned is None else versioned[0]

    def read_versioned(self, name: str) -> tuple[bytes, str] | None:
        """Return an object and the tag that `replace_object` expects, or None if there is none."""
        # Google Cloud Storage compares generations, all others compare tags
        state = "version" if self.url.startswith("gs://") else "e_tag"
        return self._get(name, lambda result: (bytes(result.bytes()), str(result.meta[state])))

    def read_dated(self, name: str) -> tuple[bytes, str, datetime] | None:
        """Return what `read_versioned` does, and when the object was written, on the store's clock."""
        versioned, head = self.read_versioned(name), self._head(name)
        return None if versioned is None or head is None else (*versioned, head["last_modified"])

    def now(self) -> datetime:
        """Return the time on the store's own clock, which dates an object that is written now."""
        name = f"clock-{secrets.token_hex(8)}"
        self.put(name, b"")
        try:
            head = self._head(name)
        finally:
            self.delete(name)
        if head is None:
            raise UnavailableError(f"the store {self.url} does not return an object that was just written", _HINT)
        time: datetime = head["last_modified"]
        return time

    def etag(self, name: str) -> str | None:
        """Return the tag that identifies the state of an object, or None if there is none."""
        head = self._head(name)
        return None if head is None else str(head["e_tag"] or f"{head['last_modified']} {head['size']}")

    def size(self, name: str) -> int:
        head = self._head(name)
        if head is None:
            raise InputError(f"the object {name} is missing", _HINT)
        return int(head["size"])

    def _head(self, name: str) -> Any:
        return self._ask("reading an object", lambda obstore, client: obstore.head(client, self._key(name)))

    def _get(self, name: str, use: Callable[[Any], Result]) -> Result | None:
        return self._ask("reading an object", lambda obstore, client: use(obstore.get(client, self._key(name))))

    def described(self, name: str) -> bytes:
        footer = self._ask("reading an object", lambda _, client: object_stores.footer(client, self._key(name)))
        if not footer:
            raise FileNotFoundError(name)
        return footer

    def sha256(self, name: str) -> str | None:
        def digest(result: Any) -> str:
            whole = hashlib.sha256()
            for chunk in result.stream():
                whole.update(chunk)
            return whole.hexdigest()

        return self._get(name, digest)

    def download(self, name: str, path: Path) -> bool:
        """Copy an object to a local file, and return whether there is such an object."""

        def fill(result: Any) -> bool:
            files.make_folders(path.parent)
            with open(path, "wb", opener=files.private) as file:
                file.writelines(result.stream())
            return True

        return self._get(name, fill) or False

    def write(self, name: str, content: files.Content, *, action: str = "writing", flush_folder: bool = True) -> None:
        super().write(name, content, action=action, flush_folder=flush_folder)
        self.put(name, self.folder / name)

    def put(self, name: str, content: bytes | Path) -> None:
        self._ask(
            f"writing the object {name}",
            lambda obstore, client: obstore.put(client, self._key(name), content),
            missing=False,
        )

    def create(self, name: str, content: bytes) -> None:
        self.replace_object(name, content, None)

    def append(self, name: str, line: bytes) -> None:
        self.put(name, (self.read(name) or b"") + line + b"\n")

    def replace_object(self, name: str, content: bytes, etag: str | None) -> str | None:
        """Write an object if it is still in the state of `etag` (None: there is none), and return its new tag."""

        def put(obstore: Any, client: Any) -> None:
            with suppress(obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
                condition = {"e_tag": etag, "version": etag}  # a store uses the one that it compares
                obstore.put(client, self._key(name), content, mode="create" if etag is None else condition)

        self._ask(f"writing the object {name}", put)
        # a refused object may be ours: from an attempt whose answer was lost
        versioned = self.read_versioned(name)
        return versioned[1] if versioned is not None and versioned[0] == content else None

    def copy(self, name: str, new: str) -> None:
        if self.etag(new) is None:
            keys = self._key(name), self._key(new)
            self._ask("copying an object", lambda obstore, client: obstore.copy(client, *keys))

    def delete(self, *names: str) -> None:
        self._delete([self._key(name) for name in names])
        super().delete(*names)

    def delete_folder(self, name: str = "") -> None:
        self._delete([key for key in self.names(name) if key != LEASE])
        super().delete_folder(name)

    def _delete(self, keys: list[str]) -> None:
        wanted = keys[0] if len(keys) == 1 else keys
        self._ask("deleting objects", lambda obstore, client: wanted and obstore.delete(client, wanted))

    def _group(self, name: str) -> str:
        """Return the prefix of objects whose names begin like this; "" is the whole storage."""
        match = _GROUPED.match(name) if self.grouped else None
        if match is None:
            return ""
        return f"{match[1]}/{match[2]}" if match[1] == "shard" and match[2] else match[1]

    def _key(self, name: str) -> str:
        group = self._group(name)
        return f"{group}/{name}" if group else name

    def _ask(self, action: str, call: Callable[[Any, Any], Result], *, missing: bool = True) -> Result | None:
        """Call the store; None if the object may be `missing`."""
        client = object_stores.client(self.url, object_stores.resolved(dict(self.options)))
        import obstore
        import obstore.exceptions

        with seam(action, InputError, _HINT):
            return _unless_missing(lambda: call(obstore, client)) if missing else call(obstore, client)


def _unless_missing(read: Callable[[], Result]) -> Result | None:
    try:
        return read()
    except (FileNotFoundError, NotADirectoryError):
        return None


LEASE = "lease.json"
LEASE_SECONDS = 120.0  # how long a run that was killed keeps others out


class Lease:
    """The right to publish to a sink, or to work in a staging folder.

    It runs out on the store's own clock, which dates it. Its holder renews it by the time that passes on its own
    machine. So the clocks of two machines are never compared.
    """

    def __init__(self, store: Objects, what: str) -> None:
        self._store, self._what = store, what
        self._holder, self._renewals = secrets.token_hex(8), 0
        self._tag = ""
        self._begun = (0.0, 0.0)
        self._one = Lock()

    @contextmanager
    def held(self) -> Iterator[Self]:
        """Hold the lease for a block, and renew it from a thread."""
        if not self._write(self.require_free(None)):
            raise BusyError(f"another run {self._what}", "wait for it, or stop it")
        over, lost = Event(), list[BusyError]()

        def renew() -> None:
            while not over.wait(max(LEASE_SECONDS / 8, 0.05)):
                try:
                    self.renew()
                except BusyError as failure:
                    lost.append(failure)
                    return
                except DPTextError:  # a store that is away may come back
                    continue

        thread = Thread(target=renew, name="dptext-lease", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()
            with suppress(DPTextError):  # it ends by itself
                lease = self._store.read_versioned(LEASE)
                if lease is not None and lease[1] == self._tag:
                    self._store.delete(LEASE)
        if lost:
            raise lost[0]

    def require_free(self, now: datetime | None) -> str | None:
        """Refuse what another run holds, and return the tag of the lease that ran out, or None if there is none.

        Without a time, the store is asked for its own.
        """
        lease = self._store.read_dated(LEASE)
        if lease is None:
            return None
        left = LEASE_SECONDS - ((now or self._store.now()) - lease[2]).total_seconds()
        if left > 0:
            hint = f"wait for it, or stop it; one that was killed keeps others out for {max(left, 1):.0f} more seconds"
            raise BusyError(f"another run {self._what}", hint)
        return lease[1]

    def renew(self) -> None:
        with self._one:
            # no time passes on the first clock while the machine sleeps, and the second one can be set back
            passed = max(time.monotonic() - self._begun[0], time.time() - self._begun[1])
            fresh = passed <= LEASE_SECONDS / 2 or self._write(self._tag)
        if not fresh:
            raise BusyError(f"this run paused for so long that another run {self._what}", "run again later")

    def _write(self, tag: str | None) -> bool:
        """Write the lease over the state of a tag, and return whether no one else has."""
        self._begun, self._renewals = (time.monotonic(), time.time()), self._renewals + 1
        content = json.dumps({"holder": self._holder, "renewals": self._renewals}).encode()
        written = self._store.replace_object(LEASE, content, tag)
        self._tag = written or ""
        return written is not None
