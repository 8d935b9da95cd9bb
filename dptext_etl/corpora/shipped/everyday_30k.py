"""Write `everyday-30k`: our sentences of everyday life, with vectors that are the same on every machine.

Sums of floats differ between machines, so the directions that `learn` finds were found once, rounded, and are kept
in `directions.safetensors` beside the source. All that follows from them is exact: products of integers below 2^53, and
single operations whose rounding IEEE 754 fixes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from dptext_etl.artifacts import sha256_file
from dptext_etl.corpora.corpus import FORMAT, write
from dptext_etl.corpora.encoder import SMOOTHING, WordEncoder, to_integers, word_numbers
from dptext_etl.corpora.everyday import EVERYDAY, LICENCE, PROVENANCE, SOURCE, everyday_artifact, everyday_texts
from dptext_etl.embeddings import WordVectors

DIRECTIONS = SOURCE / "directions.safetensors"
HITS: dict[str, str] = json.loads((SOURCE / "hits.json").read_text("ascii"))
"""Hit rates by epsilon, calibrated once on 1,000 public dialogue turns (Schema-Guided Dialogue) without labels."""
_STEPS = 2.0**22  # of a word's weight


def description() -> dict[str, Any]:
    """Return everything that the content depends on; its hash names the entry of the cache."""
    return {
        "format": FORMAT,
        "name": EVERYDAY,
        "texts": everyday_artifact().sha256,
        "encoder": {
            "kind": "words",
            "name": "english-20k",
            "vectors": WordVectors.load().artifact.sha256,
            "smoothing": repr(SMOOTHING),
            "half_whitening": True,
            "directions": sha256_file(DIRECTIONS),
        },
        "hits": HITS,
        "hits_from": "public dialogue turns (Schema-Guided Dialogue) without labels, once",
        "licence": f"texts {LICENCE}; vectors as english-20k (CC BY-SA 3.0)",
        "provenance": PROVENANCE,
    }


def build(path: Path) -> None:
    texts = everyday_texts()
    write(path, texts, description(), encoder=encoder_of(texts, load_file(DIRECTIONS)["directions"]))


def encoder_of(texts: tuple[str, ...], directions: npt.NDArray[np.int16]) -> WordEncoder:
    """Weigh words by their rarity in the texts and turn their vectors, exactly."""
    known = WordVectors.load()
    numbers = word_numbers(WordEncoder(known.words, np.zeros((len(known), 1), np.int16)), texts)[1]
    likely = np.bincount(numbers, minlength=len(known)) / (SMOOTHING * len(numbers))
    lengths = np.sqrt(np.maximum(known.norms, 1).astype(np.float64))
    weights = np.rint(_STEPS / ((1.0 + likely) * lengths))
    # integers: every sum is exact
    table = (known.vectors.astype(np.float64) * weights[:, None]) @ directions.astype(np.float64)
    return WordEncoder(known.words, to_integers(table))
