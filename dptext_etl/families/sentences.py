"""Encode private texts with the model that encoded a corpus, each by itself, and fail closed.

What a model computes for a text depends on this text alone: texts go through it one by one. A text on which it fails
becomes the zero vector, which is drawn uniformly at the same cost (docs/spec/surrogate.md#missing-inputs).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.corpora.encoder import Int8s
from dptext_etl.families.probes import SHORT, refuse


class Encoder(Protocol):
    """A loaded model."""

    def encode(self, texts: list[str]) -> Int8s:
        """Return int8 vectors of texts, shape (n, k)."""


class Encoded(NamedTuple):
    """Vectors of texts."""

    vectors: Int8s  # one per part of a text, int8, shape (rows * parts, k)
    failed: npt.NDArray[np.uint32]  # 1 for every row on which the model failed, uint32, shape (rows,)


def cut(text: str, parts: int, n_max: int) -> list[str]:
    """Cut a text into consecutive parts of nearly equal numbers of words; words after the first `n_max` are left out.

    >>> cut("one, two three!", 2, 100)
    ['one, ', 'two three!']
    """
    segments = _kernel.split(text)
    places = [place for place, (_, is_word) in enumerate(segments) if is_word]
    end = places[n_max] if len(places) > n_max else len(segments)
    count = min(len(places), n_max)
    edges = [places[part * count // parts] if part * count // parts < count else end for part in range(parts)]
    edges[0] = 0
    return ["".join(segment for segment, _ in segments[a:b]) for a, b in zip(edges, [*edges[1:], end], strict=True)]


def encoded(model: Encoder, texts: pa.Array, parts: int, n_max: int, size: int) -> Encoded:
    """Encode every part of every text; a null is as an empty text."""
    vectors, failed = np.zeros((len(texts) * parts, size), np.int8), np.zeros(len(texts), np.uint32)
    for row, text in enumerate(texts.to_pylist()):
        for part, piece in enumerate(cut(text or "", parts, n_max)):
            if not piece.strip():
                continue
            try:
                vectors[row * parts + part] = model.encode([piece])[0]
            except Exception:  # noqa: BLE001  (whatever the text does to a model: it stops nothing and shows nothing)
                failed[row] = 1
    return Encoded(vectors, failed)


def probe(model: Encoder) -> None:
    """Encode a public text."""
    try:
        works = bool(model.encode([SHORT])[0].any())
    except Exception:  # noqa: BLE001
        works = False
    if not works:
        refuse()
