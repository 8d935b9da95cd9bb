"""Move word vectors so that synonyms come near and antonyms part (counter-fitting).

Paper: Mrkšić et al. 2016, "Counter-fitting Word Vectors to Linguistic Constraints", section 2. Three forces act on unit
vectors: antonyms repel each other until their cosine is at most 0, synonyms attract each other, and words that were
near stay near. The paper steps pair by pair in random order; here all forces of a pass act at once, so that equal
inputs give equal vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import sparse

from dptext_etl.embeddings import WordVectors
from dptext_etl.errors import InputError, seam
from dptext_etl.files import literal
from dptext_etl_models.training.contrast import Reals, unit

TABLES = ("senses", "sense_relations", "synset_relations")
Pairs = npt.NDArray[np.int64]


class Thesaurus(NamedTuple):
    """Pairs of words of a vocabulary, each once, by their places in it."""

    synonyms: Pairs  # shape (pairs, 2)
    antonyms: Pairs  # shape (pairs, 2)


def read_thesaurus(folder: Path, words: Sequence[str], senses: int = 2) -> Thesaurus:
    """Read the pairs of a vocabulary.

    Synonyms share a synset, or are in two synsets of adjectives that WordNet calls similar. Antonyms come from
    WordNet, and words of synsets that are similar to theirs: "excellent" is similar to "good", whose antonym is "bad".
    """
    with seam("reading WordNet's tables", InputError, f"give a folder of {', '.join(TABLES)} as Parquet files"):
        sense, lexical, between = (pl.read_parquet(literal(folder / f"{name}.parquet")) for name in TABLES)
        place = pl.DataFrame({"lemma": list(words), "place": range(len(words))})
        senses_of_words = (
            sense.filter(pl.col("sense_rank") <= senses).join(place, on="lemma").select("synset", "place").unique()
        )
        alike = between.filter(pl.col("relation") == "similar").select("source", "target")
        alike = pl.concat([alike, alike.select(source="target", target="source")]).unique()
        same = senses_of_words.join(senses_of_words, on="synset").select("place", "place_right")
        near = senses_of_words.join(alike, left_on="synset", right_on="source").join(
            senses_of_words, left_on="target", right_on="synset"
        )
        opposite = lexical.filter(pl.col("relation") == "antonym").select("source", "target").unique()
        first = opposite.join(alike.rename({"target": "near"}), on="source").select(source="near", target="target")
        second = opposite.join(alike.rename({"target": "near"}), left_on="target", right_on="source")
        wider = [opposite, first, second.select(source="source", target="near")]
        against = pl.concat(wider).unique()
        apart = senses_of_words.join(against, left_on="synset", right_on="source").join(
            senses_of_words, left_on="target", right_on="synset"
        )
        antonyms = _pairs(apart)
        synonyms = _pairs(pl.concat([same, near.select("place", "place_right")]))
    return Thesaurus(_without(synonyms, antonyms), antonyms)


def _pairs(frame: pl.DataFrame) -> Pairs:
    low, high = pl.min_horizontal("place", "place_right"), pl.max_horizontal("place", "place_right")
    pairs = frame.select(low=low, high=high).filter(pl.col("low") < pl.col("high")).unique().sort("low", "high")
    return pairs.to_numpy().astype(np.int64)


def _without(pairs: Pairs, others: Pairs) -> Pairs:
    """Return the pairs that are not among others: a word may be alike in one sense and opposite in another."""
    refused = set(map(tuple, others.tolist()))
    return np.array([pair for pair in pairs.tolist() if tuple(pair) not in refused], np.int64).reshape(-1, 2)


_AT_ONCE = 512  # words whose cosines are held at once
_SAME = 1e-6  # cosines that differ by less did not change: rounding must not pull


@dataclass(frozen=True)
class Settings:
    """Hold the settings of counter-fitting."""

    passes: int = 20  # number of passes
    step: float = 0.1  # step of a pull, in units of length; the paper uses 0.1 times 0.1
    antonyms: float = 1.0  # weight of the push between antonyms
    synonyms: float = 0.3  # weight of the pull between synonyms
    neighbors: float = 1.0  # weight of the pull between words that were near
    near: int = 10  # number of nearest words that count as near
    margin: float = 0.0  # cosine that antonyms shall not exceed
    # how much the cosines of near words may grow. With 0, as in the paper, nearness is only kept; a little more lets
    # words follow their neighbors that have synonyms, and gave better releases (the card says how much)
    gain: float = 0.1


def fit(vectors: WordVectors, pairs: Thesaurus, settings: Settings) -> Reals:
    """Return moved vectors of length 1, shape (words, dimensions)."""
    start = unit(vectors.vectors.astype(np.float64))
    near = min(settings.near, len(vectors) - 1)
    nearest = nearest_words(vectors, range(len(vectors)), near)
    around = np.stack([np.repeat(np.arange(len(vectors)), near), nearest.ravel()], axis=1)
    around = np.unique(np.sort(around[around[:, 0] != around[:, 1]], axis=1), axis=0)
    around = _without(around, pairs.antonyms)
    was = _cosines(start, around)
    moved = start
    for _ in range(settings.passes):
        close = _cosines(moved, pairs.antonyms) > settings.margin
        far = _cosines(moved, pairs.synonyms) < 1.0
        lost = _cosines(moved, around) < was + settings.gain - _SAME
        pull = (
            settings.synonyms * _matrix(pairs.synonyms[far], len(vectors))
            + settings.neighbors * _matrix(around[lost], len(vectors))
            - settings.antonyms * _matrix(pairs.antonyms[close], len(vectors))
        )
        moved = unit(moved + settings.step * (pull @ moved))
    return moved


def nearest_words(vectors: WordVectors, rows: Sequence[int], k: int) -> Pairs:
    """Return the k nearest other words of each row by cosine, nearest first, shape (rows, k)."""
    nearest = np.empty((len(rows), k), np.int64)
    for start in range(0, len(rows), _AT_ONCE):
        block = list(rows[start : start + _AT_ONCE])
        for at, (row, keys) in enumerate(zip(block, vectors.rank_keys(block, slice(None), "cosine"), strict=True)):
            keys[row] = np.inf
            near = np.flatnonzero(keys <= np.partition(keys, k - 1)[k - 1])
            nearest[start + at] = near[np.argsort(keys[near], kind="stable")][:k]
    return nearest


def _matrix(pairs: Pairs, words: int) -> sparse.csr_array:
    ones = np.ones(2 * len(pairs))
    rows, columns = np.concatenate([pairs, pairs[:, ::-1]]).T if len(pairs) else (np.empty(0, int), np.empty(0, int))
    return sparse.coo_array((ones, (rows, columns)), shape=(words, words)).tocsr()


def _cosines(vectors: Reals, pairs: Pairs) -> Reals:
    cosines: Reals = np.einsum("ij,ij->i", vectors[pairs[:, 0]], vectors[pairs[:, 1]])
    return cosines
