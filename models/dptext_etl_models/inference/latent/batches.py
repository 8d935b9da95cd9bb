"""Run a model on batches of one shape, so that the result of a record never depends on other rows of its batch.

Specification: docs/spec/privacy.md#batch-independence.

Every batch has the same number of rows, constant filler where records are missing. A record on which the model fails is
replaced by a constant, and the other rows of its batch are computed again apart from it. How many failed decides
nothing: whether the model works at all is asked with public texts (`Mechanism.probe`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from dptext_etl_models.inference.failures import out_of_memory

log = logging.getLogger("dptext_etl.latent")

Item = TypeVar("Item")
Made = TypeVar("Made")

EVERY = 30.0
"""Seconds between two log lines about the progress."""


class Batches(Generic[Item, Made]):
    """Compute over batches of constant shape."""

    def __init__(
        self, compute: Callable[[Sequence[Item]], Sequence[Made]], *, rows: int, filler: Item, failed: Made
    ) -> None:
        self.rows = rows
        self._compute, self._filler, self._failed = compute, filler, failed

    def __call__(self, items: Sequence[Item]) -> list[Made]:
        """Return the results of any number of items, in order."""
        made: list[Made] = []
        while len(made) < len(items):
            some = items[len(made) : len(made) + self.rows]
            try:
                made.extend(self._padded(some))
            except Exception as exc:  # noqa: BLE001  (models fail in any way, and none may quote or drop a text)
                exhausted = out_of_memory(exc)
            else:
                continue
            if exhausted and self.rows > 1:
                self.rows //= 2
            else:
                made.extend(self._apart(some))
        return made

    def _padded(self, some: Sequence[Item]) -> list[Made]:
        made = self._compute([*some, *[self._filler] * (self.rows - len(some))])
        return list(made[: len(some)])

    def _apart(self, some: Sequence[Item]) -> list[Made]:
        made: list[Made] = []
        failures = 0
        for item in some:
            try:
                made.extend(self._padded([item]))
            except Exception:  # noqa: BLE001
                made.append(self._failed)
                failures += 1
        if failures:
            log.warning("the model failed on %d records: a constant took their place", failures)
        return made


class Progress:
    """Log now and then how many records are done, and the time for the rest."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._began = self._said = time.monotonic()

    def add(self, records: int) -> None:
        """Count records that are done."""
        self._done += records
        now = time.monotonic()
        if now - self._said >= EVERY:
            self._said = now
            left = (self._total - self._done) * (now - self._began) / max(1, self._done)
            log.info("released %d of %d records, %.0f s left", self._done, self._total, left)
