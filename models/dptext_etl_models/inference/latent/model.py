"""Define the interface of models for latent mechanisms: batches of one shape, and failures that disclose nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dptext_etl_models.inference.latent.batches import Batches

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
            msg = "an encoder gave latents of another shape than the constant one"
            raise ValueError(msg)
        return list(latents)

    return Batches(encode, rows=model.rows, filler="", failed=np.full(model.size, np.nan))


def decoding(model: LatentModel) -> Batches[Latents, str | None]:
    """Decode; None where the decoder fails, which is a function of noisy numbers alone: the text is empty then."""
    filler = np.zeros(model.size, np.float32)

    def decode(rows: Sequence[Latents]) -> list[str | None]:
        return [*model.decode(np.stack(rows))]

    return Batches(decode, rows=model.rows, filler=filler, failed=None)


def works(model: LatentModel, texts: Sequence[str]) -> bool:
    """Whether public texts can be encoded and what they become decoded."""
    latents = np.stack(encoding(model)(texts))
    if not np.isfinite(latents).any(axis=1).all():
        return False
    return None not in decoding(model)(list(np.nan_to_num(latents).astype(np.float32)))
