"""Name the ledger that Spark functions charge, by URL or by reference, on one machine or on many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dptext_etl.engines.spark.shipping import is_local
from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Ledger
from dptext_etl.ledger.storage.store import POSTGRES, PREFIX, location, resolved
from dptext_etl.policy import LedgerSpec

_KEY_FILE = "file:"


def is_file(url: str) -> bool:
    """Say whether a URL names a SQLite file, which belongs to one machine."""
    return not url.startswith(POSTGRES)


def require_reach(spark: Any, url: str) -> None:
    """Refuse a ledger that a session's workers do not share."""
    if is_file(resolved(url)) and not is_local(spark):
        raise LedgerError(
            "a SQLite ledger is a file of one machine, and this session's workers are not known to run on it",
            "use a local master, or a PostgreSQL ledger",
        )


def for_workers(spec: LedgerSpec) -> LedgerSpec:
    """Return the ledger for workers: references stay, and paths become absolute, since workers use other folders."""
    url, key = spec.url, spec.id_key
    if url == resolved(url) and is_file(url):
        url = PREFIX + str(location(url).absolute())
    if key is not None and key.startswith(_KEY_FILE):
        key = _KEY_FILE + str(Path(key.removeprefix(_KEY_FILE)).absolute())
    anchors = spec.anchors and str(Path(spec.anchors).absolute())
    return spec.model_copy(update={"url": url, "id_key": key, "anchors": anchors})


def opened(spark: Any, spec: LedgerSpec) -> tuple[LedgerSpec, str]:
    """Open or make the ledger on the driver, so that workers find it."""
    require_reach(spark, spec.url)
    with Ledger.open(spec.url, spec.id_key) as ledger:
        return for_workers(spec), ledger.ledger_id
