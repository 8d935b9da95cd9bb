"""Write `everyday-30k`: 30,000 sentences of everyday life, made by `studies/shipped_data/everyday.py`.

Sums of floats differ between machines, so the directions that `learn` finds were found once, rounded, and are kept
in `directions.safetensors` next to the sentences. All that follows from them is exact: products of integers below 2^53,
and single operations whose rounding IEEE 754 fixes.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from safetensors.numpy import load_file

import dptext_etl
from dptext_etl.artifacts import sha256_file
from dptext_etl.corpora.corpus import FORMAT, WordEncoder, to_integers, write
from dptext_etl.corpora.learning import SMOOTHING, word_numbers
from dptext_etl.embeddings import WordVectors
from dptext_etl.embeddings.vectors import DATA, DEFAULT_VECTORS
from dptext_etl.files import literal

SOURCE = Path(dptext_etl.__file__).parent / "data" / "everyday"
EVERYDAY = "everyday-30k"
LICENSE = "Apache-2.0"
PROVENANCE = "written for dptext_etl: templates and word lists in dptext_etl/data/everyday"
"""A part of the corpus, so it keeps the former place of the templates: today studies/shipped_data/everyday."""


def sentences() -> pl.DataFrame:
    """Return columns `text`, `domain`, and `kind`: 30,000 rows, in an order that mixes domains and kinds."""
    return pl.read_parquet(literal(SOURCE / "sentences.parquet"))


def everyday_texts() -> tuple[str, ...]:
    """Return the texts of `sentences`."""
    return tuple(sentences()["text"])


DIRECTIONS = SOURCE / "directions.safetensors"
HITS: dict[str, str] = json.loads((SOURCE / "hits.json").read_text("ascii"))
"""Hit rates by epsilon, calibrated once on 1,000 public dialogue turns (Schema-Guided Dialogue) without labels."""
_STEPS = 2.0**22  # of a word's weight


def description() -> dict[str, Any]:
    """Return everything that the content depends on; its hash names the entry of the cache."""
    return {
        "format": FORMAT,
        "name": EVERYDAY,
        "texts": hashlib.sha256("".join(f"{text}\n" for text in everyday_texts()).encode()).hexdigest(),
        "encoder": {
            "kind": "words",
            "name": "english-20k",
            "vectors": sha256_file(DATA / f"{DEFAULT_VECTORS}.safetensors"),
            "smoothing": repr(SMOOTHING),
            "half_whitening": True,
            "directions": sha256_file(DIRECTIONS),
        },
        "hits": HITS,
        "hits_from": "public dialogue turns (Schema-Guided Dialogue) without labels, once",
        "licence": f"texts {LICENSE}; vectors as english-20k (CC BY-SA 3.0)",
        "provenance": PROVENANCE,
    }


def build(path: Path) -> None:
    texts = everyday_texts()
    write(path, texts, description(), encoder=encoder_of(texts, load_file(DIRECTIONS)["directions"]))


def encoder_of(texts: tuple[str, ...], directions: npt.NDArray[np.int16]) -> WordEncoder:
    """Weigh words by their rarity in the texts and turn their vectors, exactly."""
    vectors = WordVectors.load()
    numbers = word_numbers(WordEncoder(vectors.words, np.zeros((len(vectors), 1), np.int16)), texts)[1]
    likely = np.bincount(numbers, minlength=len(vectors)) / (SMOOTHING * len(numbers))
    lengths = np.sqrt(np.maximum(vectors.norms, 1).astype(np.float64))
    weights = np.rint(_STEPS / ((1.0 + likely) * lengths))
    # integers: every sum is exact
    table = (vectors.vectors.astype(np.float64) * weights[:, None]) @ directions.astype(np.float64)
    return WordEncoder(vectors.words, to_integers(table))
