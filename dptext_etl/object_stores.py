"""Open object stores with the options that a policy writes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from dptext_etl import extras
from dptext_etl.errors import InputError, PolicyError, seam

EXTRA = "objects"
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


def client(url: str, options: Mapping[str, Any]) -> Any:
    if find_spec("obstore") is None:
        msg = "publishing to an object store, and reading from one by its manifest, needs obstore"
        raise InputError(msg, f"`{extras.install(EXTRA)}`")
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


def resolved(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a store with environment references resolved; never print them."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        variable = value.removeprefix("env:") if value.startswith("env:") else None
        if variable is not None and variable not in os.environ:
            raise PolicyError(f"storage option {name!r} refers to {variable}, which is not set", f"export {variable}")
        found[name] = _typed(name, value if variable is None else os.environ[variable])
    return found


def _typed(name: str, value: str) -> str | float:
    kind = _NUMBERS.get(name)
    try:
        return value if kind is None else kind(value)
    except ValueError:
        problem = f"storage option {name!r} must be a number"
    raise PolicyError(problem, 'write: storage_options = { max_retries = "2" }')
