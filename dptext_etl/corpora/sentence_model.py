"""Encode texts with a model of sentence-transformers as int8 vectors (extra `semantic`).

A model computes in floats: vectors may differ by machine, so a mechanism over such a corpus is not reproducible, and
the first commit is the release (docs/spec/surrogate.md#exactness). The theorem holds whatever the model computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dptext_etl.corpora.encoder import MOST_DIMENSIONS, Int8s
from dptext_etl.errors import ArtifactError, PolicyError, seam
from dptext_etl.extras import install

EXTRA = "semantic"


class SentenceModel:
    """A model that gives a vector to each text."""

    def __init__(self, name: str, batch: int = 1) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            missing = True
        else:
            missing = False
        if missing:
            raise PolicyError("the encoder sentence-transformers needs a library that is not here", install(EXTRA))
        with seam("loading a model of sentence-transformers", ArtifactError, "name its folder, or its name on the hub"):
            self._model: Any = SentenceTransformer(name)
        self._batch = batch

    def encode(self, texts: Sequence[str]) -> Int8s:
        """Return int8 vectors of length 127 or less, shape (n, k); zeros for an empty text and for no finite vector."""
        with seam("encoding texts", ArtifactError):
            found = self._model.encode(list(texts), batch_size=self._batch, show_progress_bar=False)
            floats = np.asarray(found, dtype=np.float64)
        if floats.ndim != 2 or not 1 <= floats.shape[1] <= MOST_DIMENSIONS:
            raise ArtifactError(f"the model's vectors have shape {floats.shape}; allowed: up to {MOST_DIMENSIONS} wide")
        lengths = np.linalg.norm(floats, axis=1, keepdims=True)
        usable = np.isfinite(lengths) & (lengths > 0) & np.array([[bool(text.strip())] for text in texts])
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = 127.0 * floats / lengths
        vectors: Int8s = np.rint(np.where(usable, scaled, 0.0)).astype(np.int8)
        return vectors
