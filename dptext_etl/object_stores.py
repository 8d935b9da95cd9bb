"""Open object stores with the options that a policy writes, and hold a folder in one for one run by a lease.

The lease spares a second run its work. What is published does not rest on it: a manifest is replaced only if it is
still the one that the run began with, and every version has names of its own. Nor does what is staged: every attempt at
a shard has names of its own, and the ledger charges a record once.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.util import find_spec
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from dptext_etl import extensions, store_options
from dptext_etl.errors import BusyError, DPTextError, InputError, PolicyError, seam

if TYPE_CHECKING:
    from dptext_etl.storage import Objects
    from dptext_etl.store_options import Kind

EXTRA = "objects"
_PROBE = ".dptext-probe"
"""Name of an object that is never there. Readers of tables skip names that begin with a dot."""
_NO_BUCKET = ("<Code>NoSuchBucket</Code>", "<Code>ContainerNotFound</Code>")
_CLIENT = re.compile(
    r"(?:aws_|azure_|google_)?(allow_http|allow_invalid_certificates|connect_timeout|timeout|proxy_url|user_agent)"
)
"""Options of the connection; all stores have them, with a prefix or without."""
_RETRIES = "max_retries"
_POLARS = re.compile(r"retry_.*|file_cache_ttl")
"""Options that Polars alone takes."""
_NUMBERS: dict[str, type[int] | type[float]] = {
    "max_retries": int,
    "retry_timeout_ms": int,
    "retry_init_backoff_ms": int,
    "retry_max_backoff_ms": int,
    "retry_base_multiplier": float,
    "file_cache_ttl": int,
}
"""Options that Polars itself takes, as numbers."""
_TAIL = 1 << 16
"""Bytes at the end of a Parquet file that are read first: most descriptions of columns fit."""
_READ_HINT = "is the object store reachable, and may these credentials read there?"


def client(url: str, options: Mapping[str, Any]) -> Any:
    store_options.require_place(url)
    if find_spec("obstore") is None:
        msg = "publishing to an object store, and reading CSV files or published tables from one, needs obstore"
        raise InputError(msg, f"`{extensions.pip_install(EXTRA)}`")
    return _client(url, tuple(options.items()))


@lru_cache(maxsize=16)
def _client(url: str, options: tuple[tuple[str, Any], ...]) -> Any:
    from obstore.store import from_url

    connection = {found[1]: str(value) for name, value in options if (found := _CLIENT.fullmatch(name))}
    config = {
        name: str(value)
        for name, value in options
        if not _CLIENT.fullmatch(name) and name != _RETRIES and not _POLARS.fullmatch(name)
    }
    retries = next(({_RETRIES: int(value)} for name, value in options if name == _RETRIES), None)
    with seam(f"opening the object store {url}", InputError, "is it an s3://, gs:// or az:// URL?"):
        settings: dict[str, Any] = {"config": config, "client_options": connection, "retry_config": retries}
        return from_url(url, **settings)


def matching(pattern: str, options: Mapping[str, Any]) -> list[str]:
    """Return the URLs of the objects that a URL names, which may hold `*`, `**`, `?` and `[…]`, in order."""
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    if fixed == pattern:
        return [pattern]
    folder = fixed.rpartition("/")[0]
    place, _ = _opened(fixed, options)
    import obstore

    with seam(f"listing the objects of {pattern}", InputError, _READ_HINT):
        urls = [f"{folder}/{item['path']}" for page in obstore.list(place) for item in page]
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|.", pattern)
    wanted = re.compile(
        "".join(parts.get(one) or (one.replace("[!", "[^") if len(one) > 1 else re.escape(one)) for one in tokens)
    )
    found = sorted(url for url in urls if wanted.fullmatch(url))
    if not found:
        raise InputError(f"the source {pattern} has no objects", "is the pattern right?")
    return found


def chunks(url: str, options: Mapping[str, Any]) -> Iterator[bytes]:
    """Read an object from its begin to its end, in chunks."""
    place, name = _opened(url, options)
    import obstore

    with seam(f"reading {url}", InputError, _READ_HINT):
        yield from map(bytes, obstore.get(place, name).stream())


def footer_of(url: str, options: Mapping[str, Any]) -> bytes:
    """Return the description of the rows of a Parquet file (`footer`)."""
    with seam(f"reading {url}", InputError, _READ_HINT):
        return footer(*_opened(url, options))


def footer(place: Any, name: str) -> bytes:
    """Return a Parquet file that describes the rows of another one, and holds none; empty if the other one is."""
    import obstore

    size = int(obstore.head(place, name)["size"])
    most, tail = _TAIL, b""
    while len(tail) < min(most, size):
        tail = bytes(obstore.get_range(place, name, start=max(size - most, 0), end=size))
        most = int.from_bytes(tail[-8:-4], "little") + 8
    return tail and b"PAR1" + tail


def _opened(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Open the folder of an object, whose name has the characters of the URL as they are, as Polars reads it."""
    folder, _, name = url.rpartition("/")
    return client(quote(folder, safe=":/@"), options), name


def require_writable(url: str, options: Mapping[str, str]) -> None:
    """Refuse a prefix of a store in which the credentials of a policy cannot write; nothing is written."""
    probe(url, resolved(options))


def probe(url: str, options: Mapping[str, Any]) -> None:
    """Refuse a prefix of a store in which these credentials cannot write; nothing is written.

    The store is asked to replace an object that is not there. It answers that the right to write is missing, or else
    that the object is. A store that ignores the condition writes an empty object, which is deleted.
    """
    place = client(url, options)
    import obstore
    from obstore.exceptions import PreconditionError

    hint = "may these credentials write there, and does the store answer? Nothing was charged"
    missing = False
    with seam(f"checking write access to {url}", InputError, hint):
        try:
            obstore.put(place, _PROBE, b"", mode={"e_tag": '"0"', "version": "1"})
        except (PreconditionError, FileNotFoundError) as error:
            missing = any(code in str(error) for code in _NO_BUCKET)
        else:
            obstore.delete(place, _PROBE)
    if missing:
        raise InputError(f"the bucket of {url} is missing", "create it; nothing was charged")


def resolved(options: Mapping[str, str], known: Mapping[str, Kind] | None = None) -> dict[str, Any]:
    """Return the options of a store, or the `known` ones, with environment references resolved; never print them.

    Options, values of variables, and hosts that are not allowed are refused.
    """
    problem = None
    try:
        store_options.require_options(options, known)
    except ValueError as refused:
        problem = str(refused)
    if problem is not None:
        raise PolicyError(problem)
    found: dict[str, str] = {}
    for name, value in options.items():
        variable = store_options.variable_of(value)
        if variable is not None and variable not in os.environ:
            raise PolicyError(f"storage option {name!r} refers to {variable}, which is not set", f"export {variable}")
        found[name] = value if variable is None else os.environ[variable]
        if variable is not None:
            store_options.require_value(name, found[name], known)
    store_options.require_hosts(found, known)
    return {name: _typed(name, value) for name, value in found.items()}


def _typed(name: str, value: str) -> str | float:
    kind = _NUMBERS.get(name)
    try:
        return value if kind is None else kind(value)
    except ValueError:
        problem = f"storage option {name!r} must be a number"
    raise PolicyError(problem, 'write: storage_options = { max_retries = "2" }')


LEASE = "lease.json"
LEASE_SECONDS = 120.0
"""How long a run that was killed keeps others out."""


class Lease:
    """The right to publish to a sink, or to work in a staging folder."""

    def __init__(self, store: Objects, what: str) -> None:
        self._store = store
        self._what = what
        self._holder = secrets.token_hex(8)
        self._tag = ""
        self._until = 0.0
        self._one = Lock()

    @contextmanager
    def held(self) -> Iterator[Self]:
        """Hold the lease for a block, and renew it from a thread."""
        if not self._write(self.require_free()):
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
                found = self._store.read_versioned(LEASE)
                if found is not None and found[1] == self._tag:
                    self._store.delete(LEASE)
        if lost:
            raise lost[0]

    def require_free(self) -> str | None:
        """Refuse what another run holds, and return the tag of the lease that ran out, or None if there is none."""
        found = self._store.read_versioned(LEASE)
        if found is None:
            return None
        left = _until(found[0]) - time.time()
        if left > 0:
            hint = f"wait for it, or stop it; one that was killed keeps others out for {max(left, 1):.0f} more seconds"
            raise BusyError(f"another run {self._what}", hint)
        return found[1]

    def renew(self) -> None:
        with self._one:
            held = self._until - time.time() >= LEASE_SECONDS / 2 or self._write(self._tag)
        if not held:
            raise BusyError(f"this run stood still for so long that another run {self._what}", "run again later")

    def _write(self, tag: str | None) -> bool:
        """Write the lease over the state of a tag, and return whether no one else has."""
        self._until = time.time() + LEASE_SECONDS
        content = json.dumps({"holder": self._holder, "until": self._until}).encode()
        written = self._store.replace_object(LEASE, content, tag)
        self._tag = written or ""
        return written is not None


def _until(content: bytes) -> float:
    try:
        return float(json.loads(content)["until"])
    except (ValueError, KeyError, TypeError):
        return 0.0
