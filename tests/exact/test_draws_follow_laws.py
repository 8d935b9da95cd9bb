"""Draws of every kind of mechanism against its exact law, by chi-square at a fixed key.

Specification: docs/spec/privacy.md#s1. Files of the mechanisms show how each draw follows from the words of its stream.
"""

from collections import Counter

import numpy as np
import pytest

from dptext_etl import _kernel
from dptext_etl.families.words import sample_many
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.mechanisms.diffractor import Diffractor
from dptext_etl.mechanisms.santext import SanText
from tests.later import later

from .choice_toys import mechanism as surrogate
from .choice_toys import record_keys, released, toy
from .listed_words import permuted

stats = later("scipy.stats")

SECRET = _kernel.Secret.from_bytes(bytes(range(50, 82)))
N = 20_000
WORDS = {
    "custext": lambda vectors, lists: CusText(epsilon=3.0, k=20, vectors=vectors),
    "santext": lambda vectors, lists: SanText(epsilon=3.0, vectors=vectors),
    "santext-plus": lambda vectors, lists: SanText(epsilon=3.0, variant="plus", p=0.3, vectors=vectors),
    "diffractor-tem": lambda vectors, lists: Diffractor(epsilon=0.75, lists=lists),
    "diffractor-geometric": lambda vectors, lists: Diffractor(epsilon=0.75, variant="geometric", lists=lists),
}


def is_law(draws, outputs, chances):
    """Whether draws fit their law; outputs of which fewer than five are expected are one cell."""
    counts = Counter(draws)
    assert counts.keys() <= {output for output, chance in zip(outputs, chances, strict=True) if chance}
    seen, expected = np.array([(counts[o], len(draws) * float(p)) for o, p in zip(outputs, chances, strict=True)]).T
    rare = expected < 5
    seen, expected = (np.append(one[~rare], one[rare].sum() or []) for one in (seen, expected))
    assert len(seen) > 1
    return stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-6


@pytest.mark.parametrize("name", WORDS)
def test_s1_words_follow_the_law(small_vectors, tmp_path, name):
    mechanism = WORDS[name](small_vectors, permuted(tmp_path, 9, 3)[0])
    words = mechanism.input_words()
    for word in (words[0], words[len(words) // 2], "nonesuch"):
        outputs, chances = mechanism.transition(word)
        draws = sample_many(mechanism, word, N, secret=SECRET)
        assert is_law(draws, outputs, chances)
        assert not is_law(draws, outputs, np.roll(chances, 1)) or len(set(chances)) == 1, "another law is seen"


def test_s1_texts_follow_the_law(tmp_path):
    corpus = toy(tmp_path, 6)
    drawn = surrogate(corpus, 2.0, hit=0.7)
    for text in (corpus.texts[2], "nothing known"):
        assert is_law(released(drawn, [text] * 5_000, record_keys(5_000)), *drawn.transition(text))
