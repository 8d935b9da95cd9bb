"""Read pairs of synonyms and antonyms of a vocabulary from tables of WordNet.

The tables are those of Open English WordNet: `senses` (lemma, synset, sense_rank), `sense_relations` (source_lemma,
relation, target_lemma, source, target) and `synset_relations` (source, relation, target), as Parquet files of one
folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from dptext_etl.errors import InputError, seam

TABLES = ("senses", "sense_relations", "synset_relations")
Pairs = npt.NDArray[np.int64]


class Thesaurus(NamedTuple):
    """Pairs of words of a vocabulary, each once, by their places in it."""

    synonyms: Pairs  # shape (pairs, 2)
    antonyms: Pairs  # shape (pairs, 2)


def read(folder: Path, words: Sequence[str], senses: int = 2) -> Thesaurus:
    """Read the pairs of a vocabulary.

    Synonyms share a synset, or stand in two synsets of adjectives that WordNet calls similar. Antonyms are those of
    WordNet, and words of synsets that are similar to theirs: "excellent" is similar to "good", whose antonym is "bad".
    """
    with seam("reading WordNet's tables", InputError, f"give a folder of {', '.join(TABLES)} as Parquet files"):
        sense, lexical, between = (pl.read_parquet(folder / f"{name}.parquet") for name in TABLES)
        place = pl.DataFrame({"lemma": list(words), "place": range(len(words))})
        known = sense.filter(pl.col("sense_rank") <= senses).join(place, on="lemma").select("synset", "place").unique()
        alike = between.filter(pl.col("relation") == "similar").select("source", "target")
        alike = pl.concat([alike, alike.select(source="target", target="source")]).unique()
        same = known.join(known, on="synset").select("place", "place_right")
        near = known.join(alike, left_on="synset", right_on="source").join(known, left_on="target", right_on="synset")
        opposite = lexical.filter(pl.col("relation") == "antonym").select("source", "target").unique()
        first = opposite.join(alike.rename({"target": "near"}), on="source").select(source="near", target="target")
        second = opposite.join(alike.rename({"target": "near"}), left_on="target", right_on="source")
        wider = [opposite, first, second.select(source="source", target="near")]
        against = pl.concat(wider).unique()
        apart = known.join(against, left_on="synset", right_on="source").join(
            known, left_on="target", right_on="synset"
        )
        antonyms = _pairs(apart)
        synonyms = _pairs(pl.concat([same, near.select("place", "place_right")]))
    return Thesaurus(_without(synonyms, antonyms), antonyms)


def _pairs(frame: pl.DataFrame) -> Pairs:
    low, high = pl.min_horizontal("place", "place_right"), pl.max_horizontal("place", "place_right")
    held = frame.select(low=low, high=high).filter(pl.col("low") < pl.col("high")).unique().sort("low", "high")
    return held.to_numpy().astype(np.int64)


def _without(pairs: Pairs, others: Pairs) -> Pairs:
    """Return the pairs that are not among others: a word may be alike in one sense and opposite in another."""
    refused = set(map(tuple, others.tolist()))
    return np.array([pair for pair in pairs.tolist() if tuple(pair) not in refused], np.int64).reshape(-1, 2)
