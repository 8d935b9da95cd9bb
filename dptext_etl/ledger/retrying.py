"""Wait for a ledger that others write to, for as long as the caller lives: only a refusal is an answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from dptext_etl.errors import LockedLedgerError, UnavailableLedgerError

PAUSE = 1.0
"""Seconds between two attempts."""
AWAY = 300.0
"""Seconds for which a server may be away."""

T = TypeVar("T")


def patient(call: Callable[[], T], given_up: Callable[[], bool] = lambda: False) -> T:
    """Make a call again until the ledger answers."""
    away_since: float | None = None
    while True:
        try:
            return call()
        except LockedLedgerError:
            away_since = None
            if given_up():
                raise
        except UnavailableLedgerError:
            away_since = time.monotonic() if away_since is None else away_since
            if given_up() or time.monotonic() - away_since > AWAY:
                raise
        time.sleep(PAUSE)
