"""Small corpora whose near texts a test decides, and an oracle of the mixture draw from the standard library."""

from decimal import ROUND_FLOOR, Decimal, localcontext

import numpy as np
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.corpora import Corpus, WordEncoder
from dptext_etl.corpora.corpus import nearest, products
from dptext_etl.mechanisms.surrogate import Surrogate

from .fixed_keys import release_with_keys

FACTS = {"name": "toy", "licence": "CC0", "provenance": "written here"}
PURPOSE = 1


def toy(folder, m, k=6, seed=0, **facts):
    """A corpus of m texts over a vocabulary of words with random vectors; some texts have equal vectors."""
    rng = np.random.default_rng(seed)
    words = [f"w{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(4 * k)]
    vectors = rng.integers(-300, 300, (len(words), k)).astype(np.int16)
    vectors[1] = vectors[0]  # two words of one meaning, so that scores tie
    vectors[3] = -vectors[2]  # and two that cancel out
    texts = []
    while len(texts) < m:
        text = " ".join(words[i] for i in rng.integers(0, len(words), int(rng.integers(1, 4))))
        if text not in texts:
            texts.append(text)
    return Corpus.save(folder, texts, FACTS | facts, encoder=WordEncoder(words, vectors))


def mechanism(corpus, epsilon=4.0, **fields):
    return Surrogate(epsilon=epsilon, corpus=str(corpus.path), **fields)


def near_of(corpus, texts, d, parts=1):
    """N(x) of every part of every text, by the reference: arrays of numbers, None where a part says nothing."""
    vectors = corpus.encoder.encode(texts, parts=parts)
    order = nearest(products(vectors, corpus.vectors), d)
    return [row if vector.any() else None for row, vector in zip(order, vectors, strict=True)]


def expected(key, position, near, m, weights):
    """The number that a draw gives, only from the kernel's bounded integers."""
    inside, outside = weights
    if near is None:
        return _kernel.below(key, PURPOSE, position, m, 1)
    number = _kernel.below(key, PURPOSE, position, m * outside + len(near) * (inside - outside), 1)
    if number < m * outside:
        return number // outside
    return int(near[(number - m * outside) // (inside - outside)])


def exact_weights(m, d, epsilon):
    """The weights from 120-digit decimals, by trying every power of two."""
    with localcontext() as digits:
        digits.prec = 120
        odds = min(Decimal(epsilon), Decimal(50)).exp()  # from there on no power fits
        for power in range(46, -1, -1):
            inside = int((odds * 2**power).to_integral_value(ROUND_FLOOR))
            if m * 2**power + d * (inside - 2**power) <= 2**62:
                return inside, 2**power
    return (2**62 - (m - d)) // d, 1


def record_keys(count, seed=0):
    rng = np.random.default_rng(seed)
    return pa.array([rng.bytes(32) for _ in range(count)], pa.binary(32))


def released(drawn, texts, keys):
    return release_with_keys(drawn, pa.array(texts, pa.large_string()), keys).text.to_pylist()


def kernel_corpus(drawn):
    return _kernel.Corpus.open(str(drawn.table.path), drawn.table.sha256)
