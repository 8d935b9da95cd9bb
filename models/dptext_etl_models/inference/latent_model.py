"""Define the interface of models for latent mechanisms, and run them on batches of one shape.

The result of a record never depends on other rows of its batch (docs/spec/privacy.md#batch-independence): every batch
has the same number of rows, constant filler where records are missing. A record on which the model fails is replaced by
a constant, and the other rows of its batch are computed again without it. The number of failures decides nothing:
whether the model works at all is tested with public texts (`Mechanism.probe`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import without_panics
from dptext_etl_models.inference.running import out_of_memory

log = logging.getLogger("dptext_etl.latent")

Item = TypeVar("Item")
Made = TypeVar("Made")


class Batches(Generic[Item, Made]):
    """Compute over batches of constant shape."""

    def __init__(
        self, compute: Callable[[Sequence[Item]], Sequence[Made]], *, rows: int, filler: Item, failed: Made
    ) -> None:
        self.rows = rows
        self._compute, self._filler, self._failed = compute, filler, failed

    def __call__(self, items: Sequence[Item]) -> list[Made]:
        """Return the results of any number of items, in order."""
        results: list[Made] = []
        while len(results) < len(items):
            batch = items[len(results) : len(results) + self.rows]
            try:
                with without_panics():
                    results.extend(self._padded(batch))
            except Exception as exc:  # noqa: BLE001  (models fail in any way, and none may quote or drop a text)
                exhausted = out_of_memory(exc)
            else:
                continue
            if exhausted and self.rows > 1:
                self.rows //= 2
            else:
                results.extend(self._apart(batch))
        return results

    def _padded(self, batch: Sequence[Item]) -> list[Made]:
        results = self._compute([*batch, *[self._filler] * (self.rows - len(batch))])
        return list(results[: len(batch)])

    def _apart(self, batch: Sequence[Item]) -> list[Made]:
        results: list[Made] = []
        failures = 0
        for item in batch:
            try:
                with without_panics():
                    results.extend(self._padded([item]))
            except Exception:  # noqa: BLE001
                results.append(self._failed)
                failures += 1
        if failures:
            log.warning("the model failed on %d records: a constant replaced them", failures)
        return results


Latents = npt.NDArray[np.float32]


class LatentModel(Protocol):
    """A model that turns texts into vectors and back, in batches of `rows` items that do not affect each other.

    Attributes:
        rows: Rows of every batch.
        size: Numbers in a vector, the same for every text.
    """

    @property
    def rows(self) -> int:
        """Records per batch."""

    @property
    def size(self) -> int:
        """Numbers in a latent."""

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.floating]:
        """Return latents, shape (rows, size), any floats."""

    def decode(self, latents: Latents) -> list[str]:
        """Return texts from noisy latents, shape (rows, size)."""


def encoding(model: LatentModel) -> Batches[str, Any]:
    """Return an encoder of batches; a record on which it fails is NaN, which counts as 0 before noise."""

    def encode(texts: Sequence[str]) -> list[npt.NDArray[np.float64]]:
        latents = np.asarray(model.encode(texts), np.float64)
        if latents.shape != (len(texts), model.size):
            raise ValueError("an encoder gave latents of another shape than the constant one")
        return list(latents)

    return Batches(encode, rows=model.rows, filler="", failed=np.full(model.size, np.nan))


def decoding(model: LatentModel) -> Batches[Latents, str | None]:
    """Decode; None where the decoder fails, which is a function of noisy numbers only: the text is empty then."""
    filler = np.zeros(model.size, np.float32)

    def decode(rows: Sequence[Latents]) -> list[str | None]:
        return [*model.decode(np.stack(rows))]

    return Batches(decode, rows=model.rows, filler=filler, failed=None)


def works(model: LatentModel, texts: Sequence[str]) -> bool:
    """Whether public texts can be encoded and the results can be decoded."""
    latents = np.stack(encoding(model)(texts))
    if not np.isfinite(latents).any(axis=1).all():
        return False
    return None not in decoding(model)(list(np.nan_to_num(latents).astype(np.float32)))
