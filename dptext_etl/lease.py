"""Hold a folder in an object store for one run: an object names its holder, and until when it works there.

The lease spares a second run its work. What is published does not rest on it: a manifest is replaced only if it is
still the one that the run began with, and every version has names of its own. Nor does what is staged: every attempt at
a shard has names of its own, and the ledger charges a record once.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Self

from dptext_etl.errors import BusyError, DPTextError, InputError

if TYPE_CHECKING:
    from dptext_etl.storage import Storage

NAME = "lease.json"
SECONDS = 120.0
"""How long a run that was killed keeps others out."""


class Lease:
    """The right to publish to a sink, or to work in a staging folder."""

    def __init__(self, store: Storage, what: str) -> None:
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
            while not over.wait(max(SECONDS / 8, 0.05)):
                try:
                    self.renew()
                except BusyError as failure:
                    if not isinstance(failure, InputError):  # a store that is away may come back
                        lost.append(failure)
                        return

        thread = Thread(target=renew, name="dptext-lease", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()
            with suppress(DPTextError):  # it ends by itself
                found = self._store.read_versioned(NAME)
                if found is not None and found[1] == self._tag:
                    self._store.delete(NAME)
        if lost:
            raise lost[0]

    def require_free(self) -> str | None:
        """Refuse what another run holds, and return the tag of the lease that ran out, or None if there is none."""
        found = self._store.read_versioned(NAME)
        if found is None:
            return None
        left = _until(found[0]) - time.time()
        if left > 0:
            hint = f"wait for it, or stop it; one that was killed keeps others out for {max(left, 1):.0f} more seconds"
            raise BusyError(f"another run {self._what}", hint)
        return found[1]

    def renew(self) -> None:
        with self._one:
            held = self._until - time.time() >= SECONDS / 2 or self._write(self._tag)
        if not held:
            raise BusyError(f"this run stood still for so long that another run {self._what}", "run again later")

    def _write(self, tag: str | None) -> bool:
        """Write the lease over the state of a tag, and return whether no one else has."""
        self._until = time.time() + SECONDS
        content = json.dumps({"holder": self._holder, "until": self._until}).encode()
        written = self._store.replace_object(NAME, content, tag)
        self._tag = written or ""
        return written is not None


def _until(content: bytes) -> float:
    try:
        return float(json.loads(content)["until"])
    except (ValueError, KeyError, TypeError):
        return 0.0
