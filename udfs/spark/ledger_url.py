"""Which ledger a Spark function charges: by URL or by reference, on one machine or on many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Ledger
from dptext_etl.ledger.store import POSTGRES, PREFIX, location, resolved
from dptext_etl.policy import LedgerSpec
from udfs.spark.shipping import is_local

_KEY_FILE = "file:"


def is_file(url: str) -> bool:
    """Whether a URL names a SQLite file: a thing of one machine."""
    return not url.startswith(POSTGRES)


def founded(spark: Any, spec: LedgerSpec) -> tuple[LedgerSpec, str]:
    """Open, or make, the ledger on the driver, so that workers find it.

    Args:
        spark: The session.
        spec: The ledger's URL, path or "env:NAME", and the key of its ids.

    Returns:
        What workers are told, paths absolute, and the ledger's own name.

    Raises:
        LedgerError: A SQLite ledger and workers on several machines, or a ledger that cannot be opened.
    """
    url, key = resolved(spec.url), spec.id_key
    if is_file(url) and not is_local(spark):
        raise LedgerError(
            "a SQLite ledger is a file of one machine, and this session's workers are not known to run on it",
            "use a local master, or a PostgreSQL ledger",
        )
    if key is not None and key.startswith(_KEY_FILE):
        key = _KEY_FILE + str(Path(key.removeprefix(_KEY_FILE)).absolute())  # a worker has another working folder
    with Ledger.open(url, key) as ledger:
        name = ledger.ledger_id
    told = PREFIX + str(location(url).absolute()) if url == spec.url and is_file(url) else spec.url
    return LedgerSpec(url=told, id_key=key), name
