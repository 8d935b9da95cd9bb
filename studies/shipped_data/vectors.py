"""Train the embedded word vectors on public text: `python -m studies.shipped_data.vectors --help`.

The vectors are a factorisation of the positive pointwise mutual information of words and their neighbors (Levy,
Goldberg and Dagan 2015, "Improving Distributional Similarity with Lessons Learned from Word Embeddings", sections 2 and
3). Counting is exact, and the factorisation starts from a fixed vector: the same corpus, machine and number of BLAS
threads give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from scipy import sparse
from scipy.sparse.linalg import svds
from scipy.stats import spearmanr

from dptext_etl.artifacts import sha256_file
from dptext_etl.embeddings import WordVectors
from dptext_etl.embeddings.vectors import write_grid
from dptext_etl_models.training.contrast import on_grid
from dptext_etl_models.training.corpus import WORD
from dptext_etl_models.training.counter_fitting import nearest_words

Ids = npt.NDArray[np.int32]
Reals = npt.NDArray[np.float32]

_WORD = re.compile(r"[a-zà-öø-ÿ]+(?:'[a-zà-öø-ÿ]+)*")
_END = -1  # mark between two texts


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a training; the file that ships was made with the defaults."""

    words: int = 20_000  # size of the vocabulary
    dimensions: int = 190  # coordinates per vector
    contexts: int = 20_000  # number of the most frequent words and numbers that count as neighbors
    window: int = 2  # neighbors on either side
    smoothing: float = 0.85  # power of the context counts; below 1 it gives rare contexts less weight
    shift: float = 0.5  # number added to every pointwise mutual information before negative values are set to 0
    weight: float = -0.25  # power of the singular values
    # weight of a capitalized occurrence in the choice of the vocabulary; a small one makes names rarer
    capital: float = 0.25
    seed: int = 7  # seed of the final rotation


def train(texts: Iterable[str], settings: Settings) -> tuple[tuple[str, ...], npt.NDArray[np.int8], float]:
    """Train word vectors."""
    forms, tokens = read_words(texts)
    lowered: dict[str, int] = {}
    kind_of_form = np.array([lowered.setdefault(form.lower(), len(lowered)) for form in forms], dtype=np.int32)
    counts = np.bincount(tokens[tokens >= 0], minlength=len(forms))
    kinds = list(lowered)
    frequency = np.bincount(kind_of_form, weights=counts, minlength=len(kinds)).astype(np.int64)
    small = np.array([form == form.lower() for form in forms])
    evidence = np.bincount(kind_of_form, weights=counts * np.where(small, 1.0, settings.capital), minlength=len(kinds))
    chosen = _vocabulary(kinds, frequency, evidence, settings.words)
    contexts = np.array(
        sorted(range(len(kinds)), key=lambda kind: (-frequency[kind], kinds[kind]))[: settings.contexts]
    )
    texts_of_kinds = np.where(tokens == _END, _END, kind_of_form[tokens])
    pairs = _cooccurrence(
        texts_of_kinds, _position(chosen, len(kinds)), _position(contexts, len(kinds)), settings.window
    )
    left = _factorise(_information(pairs, settings.smoothing, settings.shift), settings)
    grid, scale = _rotated(left, settings.seed)
    return tuple(kinds[kind] for kind in chosen), grid, scale


def read_words(texts: Iterable[str]) -> tuple[list[str], Ids]:
    """Split texts into words nearly as releases do; return the different words and the ids of the running text."""
    forms: dict[str, int] = {}
    running = array("i")
    for text in texts:
        running.extend([forms.setdefault(form, len(forms)) for form in WORD.findall(text.replace("\u2019", "'"))])
        running.append(_END)
    return list(forms), np.array(running, dtype=np.int32)


def _vocabulary(kinds: Sequence[str], frequency: npt.NDArray[Any], evidence: npt.NDArray[Any], size: int) -> list[int]:
    """Choose words of letters by evidence, of single letters only "a" and "i", and order them by frequency."""
    possible = [kind for kind, word in enumerate(kinds) if _WORD.fullmatch(word) and (len(word) > 1 or word in "ai")]
    chosen = sorted(possible, key=lambda kind: (-evidence[kind], kinds[kind]))[:size]
    return sorted(chosen, key=lambda kind: (-frequency[kind], kinds[kind]))


def _position(chosen: Sequence[int] | npt.NDArray[Any], size: int) -> Ids:
    """Return the position of each word among the chosen ones, or -1; one more entry maps `_END` to -1."""
    position = np.full(size + 1, -1, dtype=np.int32)
    position[np.asarray(chosen, dtype=np.int64)] = np.arange(len(chosen))
    return position


def _cooccurrence(tokens: Ids, rows: Ids, columns: Ids, window: int) -> sparse.csr_array:
    """Count the occurrences of a context within `window` words of a word in the same text."""
    text = np.cumsum(tokens == _END)
    word, context = rows[tokens], columns[tokens]
    shape = (int(rows.max()) + 1, int(columns.max()) + 1)
    total = sparse.csr_array(shape, dtype=np.float32)
    for step in range(1, window + 1):
        near = text[:-step] == text[step:]
        for here, there in ((word[:-step], context[step:]), (word[step:], context[:-step])):
            usable = near & (here >= 0) & (there >= 0)
            ones = np.ones(int(usable.sum()), dtype=np.float32)
            total = total + sparse.coo_array((ones, (here[usable], there[usable])), shape=shape).tocsr()
    return total


def _information(pairs: sparse.csr_array, smoothing: float, shift: float) -> sparse.csr_array:
    """Return the positive pointwise mutual information of every pair that occurs."""
    counts = pairs.astype(np.float64).tocoo()
    of_words = counts.sum(axis=1)
    of_contexts = counts.sum(axis=0) ** smoothing
    row, column = counts.coords
    share = of_contexts[column] / of_contexts.sum()
    values = np.log(counts.data) - np.log(of_words[row]) - np.log(share) + shift
    kept = values > 0
    coords = (row[kept], column[kept])
    return sparse.coo_array((values[kept].astype(np.float32), coords), shape=counts.shape).tocsr()


def _factorise(information: sparse.csr_array, settings: Settings) -> Reals:
    start = np.ones(min(information.shape), dtype=np.float32)
    left, strength, _ = svds(information, k=settings.dimensions, v0=start, tol=1e-3, solver="arpack")
    order = np.argsort(-strength, kind="stable")
    vectors: Reals = left[:, order] * strength[order] ** settings.weight
    return vectors


def _rotated(vectors: Reals, seed: int) -> tuple[npt.NDArray[np.int8], float]:
    """Give vectors length 1, rotate them so that no coordinate is special, and round them to int8."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    unit = vectors / np.maximum(lengths, np.finfo(np.float64).tiny)
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((vectors.shape[1], vectors.shape[1])))
    return on_grid(unit @ rotation)


_JUDGMENTS = {"SimLex-999": ("counterfitting_SimLex-999.txt.gz", 3), "SimVerb-3500": ("simverb3500.txt.gz", 2)}
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
    lines += _judgments({"this file": vectors, **_others(data / "word_vectors")}, data / "word_lists")
    lines += _neighbors(vectors, data)
    lines += _coverage(vectors, data)
    return "\n".join(lines) + "\n"


def correlation(vectors: WordVectors, path: Path, column: int) -> tuple[float, int]:
    """Return the Spearman correlation of cosines with human judgments, and the number of pairs of known words."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    rows_in_both = [row for row in rows if row[0] in vectors.index and row[1] in vectors.index]
    unit = _unit(vectors)
    cosines = [float(unit[vectors.index[row[0]]] @ unit[vectors.index[row[1]]]) for row in rows_in_both]
    return float(spearmanr(cosines, [float(row[column]) for row in rows_in_both])[0]), len(rows_in_both)


def overlap(vectors: WordVectors, other: WordVectors, k: int = _K) -> tuple[float, int]:
    """Return the share of k nearest words by cosine on which two sets agree, and the number of words in both sets."""
    common = [word for word in vectors.words if word in other.index]
    first, second = (nearest_words(side.take(common), range(len(common)), k) for side in (vectors, other))
    shared = [len(set(one) & set(two)) for one, two in zip(first.tolist(), second.tolist(), strict=True)]
    return float(np.mean(shared)) / k, len(common)


def recall(vectors: WordVectors, path: Path, k: int = _K) -> tuple[float, int]:
    """Return the share of published neighbors found among the k nearest by cosine, and the number of lists."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lists: dict[str, list[str]] = json.load(file)
    index = vectors.index
    nearest_of = {
        word: {index[near] for near in near_words if near in index}
        for word, near_words in lists.items()
        if word in index
    }
    nearest_of = {word: near for word, near in nearest_of.items() if near}
    nearest = nearest_words(vectors, [index[word] for word in nearest_of], k).tolist()
    shares = [len(near & set(row)) / len(near) for near, row in zip(nearest_of.values(), nearest, strict=True)]
    return float(np.mean(shares)), len(shares)


def coverage(vectors: WordVectors, path: Path) -> tuple[float, float]:
    """Return the share of known words in a Parquet column "text": of all words, and of words made of letters."""
    counts: Counter[str] = Counter()
    for text in pq.read_table(path, columns=["text"])["text"].to_pylist():
        counts.update(WORD.findall((text or "").replace("\u2019", "'").lower()))
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


def _judgments(sets: dict[str, WordVectors], lists: Path) -> list[str]:
    kept = {name: (lists / file, column) for name, (file, column) in _JUDGMENTS.items() if (lists / file).exists()}
    rows = []
    for name, vectors in sets.items():
        correlations = [correlation(vectors, path, column) for path, column in kept.values()]
        rows.append([name, *(f"{value:.3f} ({pairs:,})" for value, pairs in correlations)])
    return _table(["Spearman (pairs known)", *kept], rows if kept else [])


def _neighbors(vectors: WordVectors, data: Path) -> list[str]:
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on a Parquet column "text" and write the grid; with --evaluate, print the figures of the card."""
    prog = "python -m studies.shipped_data.vectors"
    parser = argparse.ArgumentParser(prog=prog, description=main.__doc__)
    parser.add_argument("--corpus", type=Path, help="Parquet file with a column `text`")
    parser.add_argument("--out", type=Path, required=True, help="the grid file to write, or to evaluate as it is")
    parser.add_argument("--provenance", default="", help="where the corpus comes from; written into the file")
    parser.add_argument("--license", default="", help="the license terms of the corpus; written into the file")
    parser.add_argument("--evaluate", type=Path, metavar="DATA", help="folder of word_lists, word_vectors, imdb, …")
    defaults = asdict(Settings())
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    given = parser.parse_args(arguments)
    if given.corpus is not None:
        settings = Settings(**{name: getattr(given, name) for name in defaults})
        words, vectors, scale = train(pq.read_table(given.corpus, columns=["text"])["text"].to_pylist(), settings)
        facts = {
            "scale": repr(scale),
            "provenance": given.provenance or f"trained on {given.corpus.name}",
            "licence": given.license or "that of the corpus",
            "corpus": sha256_file(given.corpus),
            "settings": {name: repr(value) for name, value in asdict(settings).items()},
        }
        write_grid(given.out, words, vectors, facts)
    if given.evaluate is not None:
        sys.stdout.write(figures(given.out, given.evaluate))


if __name__ == "__main__":
    main()
