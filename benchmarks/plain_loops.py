"""The plain per-word loops that our rates are compared with. FROZEN: a change here changes every ratio ever reported.

Written by us from the papers, in the way research scripts are written: whitespace words, dictionaries of lists,
one NumPy call per word, one full sort per output set. Nothing here is private: NumPy's generator draws, unknown words
stay in clear. They count only where they reach 80 % of the rate at which the published scripts were measured
(`PUBLISHED`, CPU-seconds of one thread of a machine of this class).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

PUBLISHED = {
    "custext_words_per_second": 86_000.0,
    "custext_mapping_seconds": 9.1,
    "santext_words_per_second": 15_600.0,  # at a vocabulary of 10,000 words
}
ENOUGH = 0.8

Sets = dict[str, list[str]]
Probabilities = dict[str, list[float]]


def custext_mapping(
    words: list[str], vectors: npt.NDArray[np.float64], k: int, epsilon: float
) -> tuple[Sets, Probabilities]:
    """Build output sets and probabilities (cosine): for each word not yet in a set, score all, sort all, take k."""
    table = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    index = {word: row for row, word in enumerate(words)}
    sets: Sets = {}
    probabilities: Probabilities = {}
    for word in words:
        if word in sets:
            continue
        similarities = table @ table[index[word]]
        chosen = [int(row) for row in np.argsort(-similarities)[:k]]
        names = [words[row] for row in chosen]
        for name in names:
            if name in sets:
                continue
            scores = np.array([float(table[row] @ table[index[name]]) for row in chosen])
            spread = scores.max() - scores.min()
            utility = (scores - scores.min()) / spread if spread > 0 else np.zeros(len(scores))
            weights = np.exp(epsilon * utility / 2)
            sets[name] = names
            probabilities[name] = list(weights / weights.sum())
        for row in chosen:
            table[row] = 0.0
    return sets, probabilities


def custext_texts(texts: list[str], sets: Sets, probabilities: Probabilities) -> list[str]:
    """Replace word by word: split at white space, look up, draw, join with blanks; numbers shifted, others kept."""
    released = []
    for text in texts:
        out = []
        for word in text.split():
            if word in sets:
                out.append(np.random.choice(sets[word], p=probabilities[word]))
            elif word.isdigit():
                out.append(str(int(word) + np.random.randint(1000)))
            else:
                out.append(word)
        released.append(" ".join(out))
    return released


def santext_probabilities(vectors: npt.NDArray[np.float32], epsilon: float) -> npt.NDArray[np.float32]:
    """Build the whole matrix of probabilities: all distances, a softmax of every row."""
    norms = (vectors * vectors).sum(axis=1)
    squared = norms[:, None] + norms[None, :] - 2 * vectors @ vectors.T
    scores = -epsilon * np.sqrt(np.maximum(squared, 0)) / 2
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: npt.NDArray[np.float32] = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return probabilities


def santext_texts(texts: list[str], words: list[str], probabilities: npt.NDArray[np.float32]) -> list[str]:
    """Replace word by word: look up the row, draw from it, join with blanks; unknown words become any word."""
    index = {word: row for row, word in enumerate(words)}
    released = []
    for text in texts:
        out = []
        for word in text.split():
            if word in index:
                out.append(words[np.random.choice(len(words), 1, p=probabilities[index[word]])[0]])
            else:
                out.append(words[np.random.randint(len(words))])
        released.append(" ".join(out))
    return released
