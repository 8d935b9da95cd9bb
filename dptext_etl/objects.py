"""Read and write an object store so that no one overwrites what someone else has written.

A manifest and a lease are written under a condition (`If-None-Match`, `If-Match`): the store itself lets one of several
writers through. Everything else is written under a name of its own.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Self

from dptext_etl import extras
from dptext_etl.errors import InputError, PolicyError, seam

EXTRA = "objects"
_HINT = (
    "is the object store reachable, and may these credentials do it? Run the same policy again: it goes on from here"
)
_CLIENT = re.compile(
    r"(?:aws_|azure_|google_)?(allow_http|allow_invalid_certificates|connect_timeout|timeout|proxy_url|user_agent)"
)
"""Options of the connection; all stores have them, with a prefix or without."""
_RETRIES = "max_retries"
_OTHERS = re.compile(r"retry_.*|file_cache_ttl")
"""Options that Polars alone takes."""


class Found(NamedTuple):
    """An object: its bytes, and what names this state of it."""

    content: bytes
    tag: str


class Listed(NamedTuple):
    """What a listing says of an object.

    Attributes:
        name: Its name.
        size: Its bytes.
        written: When it was written.
    """

    name: str
    size: int
    written: datetime


class Objects:
    """The objects below one URL."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        if find_spec("obstore") is None:
            msg = "publishing to an object store, and reading from one by its manifest, needs obstore"
            raise InputError(msg, f"`{extras.install(EXTRA)}`")
        from obstore.store import from_url

        self._url = url
        client = {found[1]: str(value) for name, value in options.items() if (found := _CLIENT.fullmatch(name))}
        config = {
            name: str(value)
            for name, value in options.items()
            if not _CLIENT.fullmatch(name) and name != _RETRIES and not _OTHERS.fullmatch(name)
        }
        retries = {_RETRIES: int(options[_RETRIES])} if _RETRIES in options else None
        with seam(f"opening the object store {url}", InputError, "is it an s3://, gs:// or az:// URL?"):
            settings: dict[str, Any] = {"config": config, "client_options": client, "retry_config": retries}
            self._store: Any = from_url(url, **settings)

    @classmethod
    def of(cls, url: str, options: Mapping[str, str]) -> Self:
        """Open a store with options as a policy writes them."""
        return cls(url, resolved(options))

    def get(self, name: str) -> Found | None:
        """Return an object, or None if there is none."""
        import obstore

        with seam("reading an object", InputError, _HINT):
            try:
                found = obstore.get(self._store, name)
            except FileNotFoundError:
                return None
            return Found(bytes(found.bytes()), str(found.meta["e_tag"]))

    def tag(self, name: str) -> str | None:
        """Return what names the state of an object, or None if there is none."""
        import obstore

        with seam("reading an object", InputError, _HINT):
            try:
                found = obstore.head(self._store, name)
            except FileNotFoundError:
                return None
            return str(found["e_tag"] or f"{found['last_modified']} {found['size']}")

    def swap(self, name: str, content: bytes, tag: str | None) -> str | None:
        """Write an object if it is still in the state that `tag` names."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        refused = suppress(AlreadyExistsError, PreconditionError, FileNotFoundError)
        with seam(f"writing the object {name}", InputError, _HINT), refused:
            obstore.put(self._store, name, content, mode="create" if tag is None else {"e_tag": tag})
        # what was refused may be ours all the same: of an attempt whose answer was lost
        found = self.get(name)
        return found.tag if found is not None and found.content == content else None

    def put_file(self, name: str, path: Path) -> None:
        """Write a file as an object under a name of its own."""
        import obstore

        with seam(f"writing the object {name}", InputError, _HINT):
            obstore.put(self._store, name, path)

    def digest(self, name: str) -> str | None:
        """Return the SHA-256 of an object, 64 hex digits, or None if there is none."""
        import obstore

        whole = hashlib.sha256()
        with seam("reading an object", InputError, _HINT):
            try:
                for chunk in obstore.get(self._store, name).stream():
                    whole.update(memoryview(chunk))
            except FileNotFoundError:
                return None
        return whole.hexdigest()

    def download(self, name: str, path: Path) -> bool:
        """Write an object to a file, and return whether there was one."""
        import obstore

        with seam("reading an object", InputError, _HINT):
            try:
                found = obstore.get(self._store, name).stream()
            except FileNotFoundError:
                return False
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.writelines(memoryview(chunk) for chunk in found)
            return True

    def tail(self, name: str, most: int) -> bytes | None:
        """Return the last bytes of an object, or None if there is none."""
        import obstore

        with seam("reading an object", InputError, _HINT):
            try:
                size = int(obstore.head(self._store, name)["size"])
                return bytes(obstore.get_range(self._store, name, start=max(size - most, 0), end=size)) if size else b""
            except FileNotFoundError:
                return None

    def put(self, name: str, content: bytes) -> None:
        """Write an object, whatever was there."""
        import obstore

        with seam(f"writing the object {name}", InputError, _HINT):
            obstore.put(self._store, name, content)

    def copy(self, name: str, again: str) -> bool:
        """Give an object a second name inside the store, and return whether there was one."""
        import obstore

        with seam("copying an object", InputError, _HINT):
            try:
                obstore.copy(self._store, name, again)
            except FileNotFoundError:
                return False
            return True

    def listed(self, prefix: str) -> list[Listed]:
        """List the objects whose names begin with a folder."""
        import obstore

        with seam("listing objects", InputError, _HINT):
            found = obstore.list(self._store, prefix=prefix or None)
            return [Listed(item["path"], item["size"], item["last_modified"]) for page in found for item in page]

    def names(self, prefix: str) -> list[str]:
        """List the names of the objects whose names begin with a folder."""
        return [item.name for item in self.listed(prefix)]

    def delete(self, *names: str) -> None:
        """Delete objects, those that are there."""
        import obstore

        with seam("deleting objects", InputError, _HINT):
            if len(names) > 1:
                with suppress(FileNotFoundError):
                    obstore.delete(self._store, list(names))
                    return
            for name in names:
                with suppress(FileNotFoundError):
                    obstore.delete(self._store, name)


_NUMBERS: dict[str, type[int] | type[float]] = {
    "max_retries": int,
    "retry_timeout_ms": int,
    "retry_init_backoff_ms": int,
    "retry_max_backoff_ms": int,
    "retry_base_multiplier": float,
    "file_cache_ttl": int,
}
"""Options that Polars itself takes, as numbers."""


def resolved(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a store with environment references resolved; never print them."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        variable = value.removeprefix("env:") if value.startswith("env:") else None
        if variable is not None and variable not in os.environ:
            raise PolicyError(f"storage option {name!r} refers to {variable}, which is not set", f"export {variable}")
        found[name] = _typed(name, value if variable is None else os.environ[variable])
    return found


def _typed(name: str, value: str) -> str | int | float:
    kind = _NUMBERS.get(name)
    try:
        return value if kind is None else kind(value)
    except ValueError:
        problem = f"storage option {name!r} must be a number"
    raise PolicyError(problem, 'write: storage_options = { max_retries = "2" }')
