"""Write word vectors from a static sentence embedding: `python studies/static_vectors.py TOKENIZER WEIGHTS OUT.npz`.

The vector of a word of `english-20k` is the sum of the vectors of its tokens, so that the sum over the words of a text
is its embedding before it is scaled. With `--share S`, vectors of the encoder of `everyday-30k` are appended, and carry
the share S of the squared length of its sentences. A corpus over the file (`dptext corpus build --vectors OUT.npz
--plain`) has integers that are the same on every machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from dptext_etl.corpora import Corpus, WordEncoder

Floats = np.ndarray[Any, np.dtype[np.float64]]


def summed(words: Sequence[str], tokenizer: Any, weights: Floats) -> Floats:
    """Return the sum of the token vectors of every word, shape (words, dimensions)."""
    sums = np.zeros((len(words), weights.shape[1]))
    for place, word in enumerate(words):
        ids = [one for one in tokenizer.encode(word, add_special_tokens=False).ids if one < len(weights)]
        sums[place] = weights[ids].sum(axis=0)
    return sums


def joined(static: Floats, place: Corpus, share: float) -> Floats:
    """Append the vectors of the words of a corpus' encoder, as the share of the squared length of its texts."""
    vectors = place.encoder.vectors.astype(np.float64)

    def unit(table: Floats) -> Floats:
        encoder = WordEncoder(place.encoder.words, np.zeros((len(table), 1), np.int16))
        numbers = (row[row < len(table)] for row in encoder.numbers(place.texts))
        scaled: Floats = table / np.sqrt(sum(float((table[row].sum(axis=0) ** 2).sum()) for row in numbers))
        return scaled

    return np.concatenate([unit(static) * np.sqrt(1 - share), unit(vectors) * np.sqrt(share)], axis=1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file."""
    from tokenizers import Tokenizer

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tokenizer", type=Path, help="tokenizer of the embedding, as JSON")
    parser.add_argument("weights", type=Path, help="one tensor with a vector per token, .safetensors")
    parser.add_argument("out", type=Path, help=".npz file of word vectors")
    parser.add_argument("--share", type=float, default=0.0, help="share of the vectors of everyday-30k")
    given = parser.parse_args(arguments)
    (weights,) = load_file(given.weights).values()
    place = Corpus.open("everyday-30k")
    words = list(place.encoder.words)
    vectors = summed(words, Tokenizer.from_file(str(given.tokenizer)), weights.astype(np.float64))
    if given.share:
        vectors = joined(vectors, place, given.share)
    np.savez(given.out, words=np.array(words), vectors=vectors.astype(np.float32))
    print(f"{len(words):,} words of {vectors.shape[1]} dimensions: {given.out}")


if __name__ == "__main__":
    main()
