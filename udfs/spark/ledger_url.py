"""Which ledger a Spark function charges: by URL or by reference, on one machine or on many."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Ledger
from udfs.spark.shipping import is_local

_REFERENCE = "env:"
_FILE = "sqlite:///"


def resolved(url: str) -> str:
    """Return the URL behind "env:NAME"; any other text is the URL.

    Raises:
        LedgerError: The variable is not set where this runs.
    """
    if not url.startswith(_REFERENCE):
        return url
    name = url.removeprefix(_REFERENCE)
    found = os.environ.get(name)
    if not found:
        raise LedgerError(
            f"the ledger's URL is named by the environment variable {name}, which is not set here",
            "set it before Spark starts, or for executors with spark.executorEnv." + name,
        )
    return found


def is_file(url: str) -> bool:
    """Whether a URL names a SQLite file: a thing of one machine."""
    return "://" not in url or url.startswith("sqlite:")


def founded(spark: Any, url: str, id_key: str | None) -> tuple[str, str]:
    """Open, or make, the ledger on the driver, so that workers find it.

    Args:
        spark: The session.
        url: URL, path, or "env:NAME".
        id_key: Reference to the key of its ids.

    Returns:
        What workers are told in the place of `url`, and the ledger's own name.

    Raises:
        LedgerError: A SQLite ledger and workers on several machines, a URL that may hold a password, or a ledger that
            cannot be opened.
    """
    where = resolved(url)
    if is_file(where) and not is_local(spark):
        raise LedgerError(
            "a SQLite ledger is a file of one machine, and this session's workers are not known to run on it",
            "use a local master; several machines need a ledger on a server",
        )
    if not is_file(where) and url == where and "@" in where:
        raise LedgerError(
            "a ledger URL that may hold a password would be written into plans",
            'name it by reference: ledger="env:NAME"',
        )
    with Ledger.open(where, id_key) as ledger:
        name = ledger.ledger_id
    if url == where and is_file(url):
        url = _FILE + str(Path(url.removeprefix(_FILE)).absolute())  # a worker has another working folder
    return url, name
