"""Hold a sink in an object store for one run: an object that says who publishes there, and until when.

The lease spares a second run its work. What is published does not rest on it: a manifest is replaced only if it is
still the one that the run began with, and every version has names of its own.
"""

from __future__ import annotations

import json
import secrets
import time
from types import TracebackType
from typing import Self

from dptext_etl.errors import DPTextError, PolicyError
from dptext_etl.objects import Objects

NAME = "lease.json"
SECONDS = 120.0
"""How long a run that was killed keeps others out."""


class Lease:
    """The right to publish to a sink.

    Args:
        store: The sink.

    Raises:
        PolicyError: Another run holds it.
    """

    def __init__(self, store: Objects) -> None:
        self._store = store
        self._holder = secrets.token_hex(8)
        self._tag = ""
        self._until = 0.0

    def __enter__(self) -> Self:
        held = self._store.get(NAME)
        left = 0.0 if held is None else _until(held.content) - time.time()
        hint = f"wait for it, or stop it; one that was killed keeps others out for {max(left, 1):.0f} more seconds"
        if left > 0 or not self._write(None if held is None else held.tag):
            raise PolicyError("another run is publishing to this sink", hint)
        return self

    def renew(self) -> None:
        """Hold the sink for longer, if half of the time is gone.

        Raises:
            PolicyError: The time ran out, and another run has taken the sink.
        """
        if self._until - time.time() < SECONDS / 2 and not self._write(self._tag):
            raise PolicyError("this run stood still for so long that another publishes to its sink", "run again later")

    def _write(self, tag: str | None) -> bool:
        """Write the lease over the state that `tag` names, and return whether nobody else has."""
        self._until = time.time() + SECONDS
        said = json.dumps({"holder": self._holder, "until": self._until}).encode()
        written = self._store.swap(NAME, said, tag)
        self._tag = written or ""
        return written is not None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            held = self._store.get(NAME)
            if held is not None and held.tag == self._tag:
                self._store.delete(NAME)
        except DPTextError:
            return  # it ends by itself


def _until(content: bytes) -> float:
    try:
        return float(json.loads(content)["until"])
    except (ValueError, KeyError, TypeError):
        return 0.0
