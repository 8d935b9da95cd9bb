"""Write `example`, a tiny corpus for tests, documentation and first looks: it is too small to keep what a text says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import dptext_etl
from dptext_etl.corpora.corpus import FORMAT, WordEncoder, write
from dptext_etl.embeddings import WordVectors

WORDS = 6_000

TEXTS = tuple((Path(dptext_etl.__file__).parent / "data" / "example.txt").read_text("ascii").splitlines())


def description() -> dict[str, Any]:
    """Return everything that the content depends on; its hash names the entry of the cache."""
    return {
        "format": FORMAT,
        "name": "example",
        "texts": list(TEXTS),
        "encoder": {"kind": "words", "name": "english-20k", "limit": WORDS},
        "vectors": WordVectors.load(limit=None).artifact.sha256,
        "licence": "texts written for dptext_etl, Apache-2.0; vectors as english-20k",
        "provenance": "written for dptext_etl",
    }


def build(path: Path) -> None:
    """Write the corpus: word vectors weigh the more, the rarer their words are."""
    vectors = WordVectors.load()
    weights = np.array([(rank + 1).bit_length() for rank in range(WORDS)], np.int64)
    grid = vectors.vectors[:WORDS].astype(np.int64)
    weighted = (grid - grid.sum(axis=0) // WORDS) * weights[:, None]
    facts = {name: value for name, value in description().items() if name != "texts"}
    write(path, TEXTS, facts, encoder=WordEncoder(vectors.words[:WORDS], weighted.astype(np.int16)))
