"""Compute the figures on the card of word vectors: similarity judgments, neighbors in other sets, coverage."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from scipy.stats import spearmanr

from dptext_etl.embeddings import WordVectors

_TOKEN = re.compile(r"\w+(?:'\w+)*")
_JUDGEMENTS = {"SimLex-999": ("counterfitting_SimLex-999.txt.gz", 3), "SimVerb-3500": ("simverb3500.txt.gz", 2)}
_COLUMNS = ("sst2", "imdb", "uci_sentences")
_K = 20


def figures(path: Path, data: Path) -> str:
    """Return the figures of the grid at `path` as Markdown."""
    vectors = WordVectors.load(path)
    n, d = vectors.vectors.shape
    lines = [
        f"- file: {path.stat().st_size:,} bytes, {n:,} words x {d}, {vectors.vectors.dtype}, scale {vectors.scale!r}"
    ]
    lines += [f"- SHA-256 `{vectors.artifact.sha256}`"]
    lines += _judgements({"this file": vectors, **_others(data / "word_vectors")}, data / "word_lists")
    lines += _neighbours(vectors, data)
    lines += _coverage(vectors, data)
    return "\n".join(lines) + "\n"


def correlation(vectors: WordVectors, path: Path, column: int) -> tuple[float, int]:
    """Return the Spearman correlation of cosines with human judgments, and the number of pairs of known words."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    known = [row for row in rows if row[0] in vectors.index and row[1] in vectors.index]
    unit = _unit(vectors)
    cosines = [float(unit[vectors.index[row[0]]] @ unit[vectors.index[row[1]]]) for row in known]
    return float(spearmanr(cosines, [float(row[column]) for row in known])[0]), len(known)


def overlap(vectors: WordVectors, other: WordVectors, k: int = _K) -> tuple[float, int]:
    """Return the share of k nearest words by cosine on which two sets agree, and the number of words in both sets."""
    common = [word for word in vectors.words if word in other.index]
    first, second = (held.take(common).nearest(slice(None), k, "cosine") for held in (vectors, other))
    shared = [len(set(one) & set(two)) for one, two in zip(first.tolist(), second.tolist(), strict=True)]
    return float(np.mean(shared)) / k, len(common)


def recall(vectors: WordVectors, path: Path, k: int = _K) -> tuple[float, int]:
    """Return the share of published neighbors found among the k nearest by cosine, and the number of lists."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lists: dict[str, list[str]] = json.load(file)
    index = vectors.index
    known = {word: {index[near] for near in found if near in index} for word, found in lists.items() if word in index}
    known = {word: near for word, near in known.items() if near}
    nearest = vectors.nearest([index[word] for word in known], k, "cosine").tolist()
    shares = [len(near & set(row)) / len(near) for near, row in zip(known.values(), nearest, strict=True)]
    return float(np.mean(shares)), len(shares)


def coverage(vectors: WordVectors, path: Path) -> tuple[float, float]:
    """Return the share of known words in a Parquet column "text": of all words, and of words made of letters."""
    counts: Counter[str] = Counter()
    for text in pq.read_table(path, columns=["text"])["text"].to_pylist():
        counts.update(_TOKEN.findall((text or "").replace("\u2019", "'").lower()))
    letters = {word: count for word, count in counts.items() if word.replace("'", "").isalpha()}
    return tuple(  # type: ignore[return-value]
        sum(count for word, count in some.items() if word in vectors.index) / sum(some.values())
        for some in (counts, letters)
    )


def _unit(vectors: WordVectors) -> npt.NDArray[np.float64]:
    lengths = np.sqrt(np.maximum(vectors.norms, 1).astype(np.float64))
    unit: npt.NDArray[np.float64] = vectors.vectors / lengths[:, None]
    return unit


def _others(folder: Path) -> dict[str, WordVectors]:
    return {path.stem: WordVectors.load(path) for path in sorted(folder.glob("*.npz"))}


def _judgements(sets: dict[str, WordVectors], lists: Path) -> list[str]:
    kept = {name: (lists / file, column) for name, (file, column) in _JUDGEMENTS.items() if (lists / file).exists()}
    rows = []
    for name, vectors in sets.items():
        found = [correlation(vectors, path, column) for path, column in kept.values()]
        rows.append([name, *(f"{value:.3f} ({pairs:,})" for value, pairs in found)])
    return _table(["Spearman (pairs known)", *kept], rows if kept else [])


def _neighbours(vectors: WordVectors, data: Path) -> list[str]:
    rows = []
    for name, other in _others(data / "word_vectors").items():
        share, words = overlap(vectors, other)
        rows.append([name, f"{share:.3f}", f"{words:,}"])
    published = data / "word_lists" / "counterfitted_neighbors.json.gz"
    if published.exists():
        share, words = recall(vectors, published)
        rows.append(
            ["published counter-fitted lists (up to 8 words each; share found)", f"{share:.3f}", f"{words:,} lists"]
        )
    return _table([f"{_K} nearest by cosine, against", "share in common", "over words"], rows)


def _coverage(vectors: WordVectors, data: Path) -> list[str]:
    paths = [path for path in (data / name / f"{name}.parquet" for name in _COLUMNS) if path.exists()]
    rows = [[path.stem, *(f"{100 * share:.1f}" for share in coverage(vectors, path))] for path in paths]
    return _table(["words known, %", "of all", "of those made of letters"], rows)


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    return ["", *(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])]
